// SPDX-License-Identifier: Apache-2.0
#include "core/wrp_header.h"

#include <cstring>

#include "core/error.h"

namespace leapp_policy {
namespace {

// Warp's .wrp layout, format 18 (native/apic_types.h): a header of 64 bytes, a table of sections,
// the sections. The metadata section starts with its format and the producer's version.
constexpr size_t kHeaderSize = 64;
constexpr size_t kFormatAt = 4;
constexpr size_t kSectionCountAt = 12;
constexpr size_t kSectionTableAt = 16;
constexpr size_t kDeviceAt = 24;
constexpr size_t kSectionSize = 32;
constexpr uint32_t kMetadataSection = 1;
constexpr uint32_t kMaxSections = 64;
constexpr uint32_t kMaxVersionLength = 64;

bool Fits(ByteSpan bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size && size <= bytes.size - offset;
}

std::optional<std::string> ReadVersion(ByteSpan wrp) {
  const uint32_t sections = ReadU32(wrp.data + kSectionCountAt);
  const uint64_t table = ReadU64(wrp.data + kSectionTableAt);
  if (sections > kMaxSections || !Fits(wrp, table, uint64_t{sections} * kSectionSize)) {
    return std::nullopt;
  }
  for (uint32_t i = 0; i < sections; ++i) {
    const uint8_t* entry = wrp.data + table + size_t{i} * kSectionSize;
    if (ReadU32(entry) != kMetadataSection) continue;
    const uint64_t offset = ReadU64(entry + 8);
    if (!Fits(wrp, offset, 8)) return std::nullopt;
    const uint32_t length = ReadU32(wrp.data + offset + 4);
    if (length == 0 || length > kMaxVersionLength || !Fits(wrp, offset + 8, length)) {
      return std::nullopt;
    }
    std::string version(reinterpret_cast<const char*>(wrp.data + offset + 8), length);
    if (version.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz.+-") != std::string::npos) {
      return std::nullopt;
    }
    return version;
  }
  return std::nullopt;
}

}  // namespace

WrpHeader ReadWrpHeader(ByteSpan wrp) {
  if (wrp.size < kHeaderSize || std::memcmp(wrp.data, "WRP1", 4) != 0) {
    throw Error(LP_BAD_BUNDLE,
                "The bundle's .wrp file does not start with a 'WRP1' header of 64 bytes; the file "
                "is damaged, export it again.");
  }
  WrpHeader header;
  header.format = ReadU32(wrp.data + kFormatAt);
  header.device = wrp.data[kDeviceAt];
  header.warp_version = ReadVersion(wrp);
  return header;
}

}  // namespace leapp_policy
