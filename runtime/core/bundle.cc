// SPDX-License-Identifier: Apache-2.0
#include "core/bundle.h"

#include <cstring>
#include <set>

#include "core/error.h"

namespace leapp_policy {
namespace {

constexpr char kMagic[4] = {'W', 'R', 'P', 'B'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxPathLength = 4096;

[[noreturn]] void Fail(const std::string& what) {
  throw Error(LP_BAD_BUNDLE, "The bundle " + what + "; the file is damaged, export it again.");
}

// Walks the archive. Every read is checked against what is left, so no sum can overflow.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size - offset_; }

  const uint8_t* Take(uint64_t size, const char* what) {
    if (size > left()) {
      Fail("ends inside " + std::string(what) + " at byte " + std::to_string(offset_) + " (needs " +
           std::to_string(size) + " bytes, has " + std::to_string(left()) + ")");
    }
    const uint8_t* at = bytes_.data + offset_;
    offset_ += static_cast<size_t>(size);
    return at;
  }

  uint32_t TakeU32(const char* what) { return ReadU32(Take(4, what)); }
  uint64_t TakeU64(const char* what) { return ReadU64(Take(8, what)); }

 private:
  ByteSpan bytes_;
  size_t offset_ = 0;
};

std::string TakePath(Reader* reader) {
  const uint32_t length = reader->TakeU32("a path length");
  if (length == 0 || length > kMaxPathLength) {
    Fail("has a path of " + std::to_string(length) + " bytes at byte " +
         std::to_string(reader->offset() - 4));
  }
  const uint8_t* text = reader->Take(length, "a path");
  std::string path(reinterpret_cast<const char*>(text), length);
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') {
      Fail("has a path with an unprintable character before byte " +
           std::to_string(reader->offset()));
    }
  }
  return path;
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

}  // namespace

Bundle ParseBundle(ByteSpan bytes) {
  Reader reader(bytes);
  if (std::memcmp(reader.Take(sizeof(kMagic), "its magic"), kMagic, sizeof(kMagic)) != 0) {
    Fail("does not start with 'WRPB'");
  }
  const uint32_t version = reader.TakeU32("its version");
  if (version != kVersion) {
    Fail("has format version " + std::to_string(version) + ", this runtime reads version 1");
  }
  const uint32_t count = reader.TakeU32("its file count");
  if (count == 0) Fail("holds no file");

  Bundle bundle;
  std::string modules_prefix;
  std::set<std::string> seen;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string path = TakePath(&reader);
    const uint64_t size = reader.TakeU64("a data length");
    const ByteSpan data{reader.Take(size, "a file's data"), static_cast<size_t>(size)};
    if (i == 0) {
      const std::string suffix = ".wrp";
      if (!IsPlainName(path) || path.size() <= suffix.size() ||
          path.compare(path.size() - suffix.size(), suffix.size(), suffix) != 0) {
        Fail("must start with a '.wrp' file, got '" + path + "'");
      }
      modules_prefix = path.substr(0, path.size() - suffix.size()) + "_modules/";
      bundle.wrp = data;
      continue;
    }
    const bool in_modules = path.compare(0, modules_prefix.size(), modules_prefix) == 0;
    const std::string filename = in_modules ? path.substr(modules_prefix.size()) : std::string();
    if (!IsPlainName(filename)) {
      Fail("has the path '" + path + "', expected '" + modules_prefix + "<file>'");
    }
    if (!seen.insert(filename).second) Fail("holds '" + path + "' twice");
    bundle.modules.push_back({filename, data});
  }
  if (reader.left() != 0) {
    Fail("has " + std::to_string(reader.left()) + " bytes after its last file");
  }
  return bundle;
}

}  // namespace leapp_policy
