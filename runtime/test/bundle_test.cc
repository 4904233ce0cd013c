// SPDX-License-Identifier: Apache-2.0
// Without these a damaged or hostile bundle could make the runtime read outside its bytes.
#include "core/bundle.h"

#include <string>
#include <utility>
#include <vector>

#include "test/check.h"

namespace {

using leapp_policy::Bundle;
using leapp_policy::ByteSpan;
using leapp_policy::ParseBundle;
using Files = std::vector<std::pair<std::string, std::string>>;

void Append(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i));
}

std::string Pack(const Files& files, uint32_t version = 1) {
  std::string out = "WRPB";
  Append(&out, version, 4);
  Append(&out, files.size(), 4);
  for (const auto& [path, data] : files) {
    Append(&out, path.size(), 4);
    out += path;
    Append(&out, data.size(), 8);
    out += data;
  }
  return out;
}

// A copy of exactly the right size, so that a sanitizer sees a read past the end.
class Bytes {
 public:
  explicit Bytes(const std::string& text) : bytes_(text.begin(), text.end()) {
    bytes_.shrink_to_fit();
  }
  ByteSpan span() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::vector<uint8_t> bytes_;
};

std::string Text(ByteSpan span) {
  return std::string(reinterpret_cast<const char*>(span.data), span.size);
}

void Refuse(const std::string& bytes, const std::string& text) {
  const Bytes copy(bytes);
  CHECK_ERROR(LP_BAD_BUNDLE, text, ParseBundle(copy.span()));
}

const Files kGood = {
    {"segment.wrp", "recording"}, {"segment_modules/a.o", "first"}, {"segment_modules/b.o", ""}};

void TestGood() {
  const Bytes bytes(Pack(kGood));
  const Bundle bundle = ParseBundle(bytes.span());
  CHECK(Text(bundle.wrp) == "recording");
  CHECK(bundle.modules.size() == 2);
  CHECK(bundle.modules[0].filename == "a.o" && Text(bundle.modules[0].data) == "first");
  CHECK(bundle.modules[1].filename == "b.o" && bundle.modules[1].data.size == 0);
  CHECK(bundle.wrp.data > bytes.span().data);  // borrowed, not copied
  CHECK(bundle.wrp.data < bytes.span().data + bytes.span().size);
}

void TestForm() {
  Refuse("", "ends inside its magic");
  Refuse("WRPX" + std::string(8, '\0'), "does not start with 'WRPB'");
  Refuse(Pack(kGood, 2), "format version 2");
  Refuse(Pack({}), "holds no file");
  Refuse(Pack(kGood) + "x", "1 bytes after its last file");
}

void TestPaths() {
  Refuse(Pack({{"segment_modules/a.o", "x"}}), "must start with a '.wrp' file");
  Refuse(Pack({{".wrp", "x"}}), "must start with a '.wrp' file");
  Refuse(Pack({{"/segment.wrp", "x"}}), "must start with a '.wrp' file");
  Refuse(Pack({{"", "x"}}), "path of 0 bytes");
  for (const char* path :
       {"/etc/a.o", "../a.o", "segment_modules/../a.o", "segment_modules/..", "segment_modules/.",
        "segment_modules/", "segment_modules/x/a.o", "other_modules/a.o", "a.o"}) {
    Refuse(Pack({{"segment.wrp", "x"}, {path, "y"}}), "expected 'segment_modules/<file>'");
  }
  Refuse(Pack({{"segment.wrp", "x"}, {"segment_modules/a\\b", "y"}}), "unprintable character");
  Refuse(Pack({{"segment.wrp", "x"}, {std::string("segment_modules/a\0b", 19), "y"}}),
         "unprintable character");
  Refuse(Pack({{"segment.wrp", "x"}, {"segment_modules/a", "y"}, {"segment_modules/a", "z"}}),
         "twice");
}

void TestLengths() {
  const std::string good = Pack(kGood);
  for (size_t size = 0; size < good.size(); ++size) Refuse(good.substr(0, size), "The bundle");
  // A length near 2^64 must not wrap around.
  std::string huge = good;
  const size_t length_at = 12 + 4 + std::string("segment.wrp").size();
  for (size_t i = 0; i < 8; ++i) huge[length_at + i] = '\xff';
  Refuse(huge, "ends inside a file's data");
  std::string long_path = good;
  for (size_t i = 0; i < 4; ++i) long_path[12 + i] = '\xff';
  Refuse(long_path, "path of 4294967295 bytes");
}

// Every single-bit error either parses into parts inside the bytes or is refused with a sentence.
void TestBitFlips() {
  const std::string good = Pack(kGood);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    const Bytes bytes(bad);
    try {
      const Bundle bundle = ParseBundle(bytes.span());
      size_t total = bundle.wrp.size;
      for (const auto& module : bundle.modules) total += module.data.size;
      CHECK(total < bytes.span().size);
    } catch (const leapp_policy::Error& e) {
      CHECK(e.status() == LP_BAD_BUNDLE);
    }
  }
}

}  // namespace

int main() {
  TestGood();
  TestForm();
  TestPaths();
  TestLengths();
  TestBitFlips();
  return leapp_policy::test::Result();
}
