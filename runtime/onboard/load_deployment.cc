// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "core/byte_span.h"
#include "core/error.h"
#include "core/sha256.h"
#include "onboard/deployment.h"

namespace leapp_policy::onboard {
namespace {

// The bytes of a file, in memory that goes back to the system at once: libraries of hundreds of
// megabytes are read here, and the heap would keep their place.
class FileBytes {
 public:
  FileBytes(const std::string& path, const std::string& remedy) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    bool good = file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (good && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      void* memory =
          ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      good = memory != MAP_FAILED;
      data_ = good ? static_cast<uint8_t*>(memory) : nullptr;
      for (size_t at = 0; good && at < size_;) {
        const ssize_t got = ::read(file, data_ + at, size_ - at);
        good = got > 0;
        at += good ? static_cast<size_t>(got) : 0;
      }
    }
    if (file >= 0) ::close(file);
    if (good) return;
    Release();
    throw Error(LP_INVALID_ARGUMENT, "File '" + path + "' cannot be read; " + remedy + ".");
  }
  ~FileBytes() { Release(); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::string digest() const { return Sha256Hex({data_, size_}); }
  std::string text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  void Release() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

void CheckDigest(const std::string& name, const std::string& expected, const std::string& got) {
  if (expected == got) return;
  throw Error(LP_BAD_BUNDLE, "'" + name +
                                 "' does not belong to this deployment: expected SHA-256 " +
                                 expected + ", got " + got + "; copy the whole folder again.");
}

}  // namespace

Deployment LoadDeployment(const std::string& folder) {
  const std::string remedy = "name a folder that 'leapp-policy pack' wrote, as a whole";
  const FileBytes document(folder + "/deploy.json", remedy);
  const std::string sealed = FileBytes(folder + "/deploy.json.sha256", remedy).text();
  const std::string text = document.text();
  const std::string digest = document.digest();
  CheckDigest("deploy.json", sealed.substr(0, sealed.find_first_of(" \t\r\n")), digest);

  DeployText found = ParseDeployment(text, folder);
  Deployment& out = found.deployment;
  out.digest = digest;
  const std::map<std::string, std::string> digests(found.digests.begin(), found.digests.end());
  for (const std::string& each : found.needed) {
    if (digests.count(each) == 0) {
      throw Error(LP_BAD_METADATA, "'digests' of deploy.json lacks '" + each +
                                       "', which is not run unchecked; pack the policy again.");
    }
  }
  std::map<std::string, std::string> initial_bytes;
  for (const InitialFile& each : found.initials) initial_bytes[each.file];
  for (const auto& [file, expected] : digests) {
    const FileBytes bytes(file[0] == '/' ? file : folder + "/" + file,
                          "copy the whole folder again");
    CheckDigest(file, expected, bytes.digest());
    // The bytes that were checked are those that are used.
    if (initial_bytes.count(file) != 0) initial_bytes[file] = bytes.text();
  }
  for (size_t i = 0; i < out.states.size(); ++i) {
    const std::string& bytes = initial_bytes[found.initials[i].file];
    const uint64_t offset = found.initials[i].offset;
    const size_t size = out.states[i].tensor.bytes();
    if (offset > bytes.size() || size > bytes.size() - offset) {
      throw Error(LP_BAD_METADATA,
                  "State '" + out.states[i].tensor.name + "' needs " + std::to_string(size) +
                      " bytes at " + std::to_string(offset) + " of '" + found.initials[i].file +
                      "', which has " + std::to_string(bytes.size()) + "; pack the policy again.");
    }
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data()) + offset;
    out.states[i].initial.assign(begin, begin + size);
  }
  return out;
}

}  // namespace leapp_policy::onboard
