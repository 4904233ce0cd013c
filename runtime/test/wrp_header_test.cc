// SPDX-License-Identifier: Apache-2.0
// Without these a damaged recording could be read outside its bytes before Warp checks it.
#include "core/wrp_header.h"

#include <string>
#include <vector>

#include "test/check.h"

namespace {

using leapp_policy::ReadWrpHeader;

void Put(std::vector<uint8_t>* bytes, size_t at, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) (*bytes)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

// A header, one section entry of the metadata kind, and the section's first fields.
std::vector<uint8_t> Wrp() {
  std::vector<uint8_t> bytes(64 + 32 + 8 + 6);
  const std::string magic = "WRP1";
  std::copy(magic.begin(), magic.end(), bytes.begin());
  Put(&bytes, 4, 18, 4);
  Put(&bytes, 12, 1, 4);
  Put(&bytes, 16, 64, 8);
  bytes[24] = leapp_policy::kWrpDeviceCpu;
  Put(&bytes, 64, 1, 4);
  Put(&bytes, 64 + 8, 96, 8);
  Put(&bytes, 96, 18, 4);
  Put(&bytes, 100, 6, 4);
  const std::string version = "1.19.0";
  std::copy(version.begin(), version.end(), bytes.begin() + 104);
  return bytes;
}

leapp_policy::WrpHeader Read(const std::vector<uint8_t>& bytes) {
  return ReadWrpHeader({bytes.data(), bytes.size()});
}

}  // namespace

int main() {
  const std::vector<uint8_t> good = Wrp();
  CHECK(Read(good).format == 18);
  CHECK(Read(good).device == leapp_policy::kWrpDeviceCpu);
  CHECK(Read(good).warp_version == "1.19.0");
  for (size_t size = 0; size < 64; ++size) {
    const std::vector<uint8_t> cut(good.begin(), good.begin() + size);
    CHECK_ERROR(LP_BAD_BUNDLE, "'WRP1' header", Read(cut));
  }
  for (size_t size = 64; size < good.size(); ++size) {
    CHECK(!Read(std::vector<uint8_t>(good.begin(), good.begin() + size)).warp_version);
  }
  // Offsets and counts that leave the file give no version, whatever their size.
  for (const size_t at : {size_t{12}, size_t{16}, size_t{72}, size_t{100}}) {
    std::vector<uint8_t> bad = good;
    Put(&bad, at, UINT64_MAX, 4);
    CHECK(!Read(bad).warp_version);
    if (at == 16 || at == 72) {
      Put(&bad, at, UINT64_MAX - 3, 8);
      CHECK(!Read(bad).warp_version);
    }
  }
  return leapp_policy::test::Result();
}
