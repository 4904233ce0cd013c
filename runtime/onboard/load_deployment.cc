// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "core/byte_span.h"
#include "core/error.h"
#include "core/sha256.h"
#include "onboard/deployment.h"

namespace leapp_policy::onboard {
namespace {

std::string ReadFile(const std::string& path, const std::string& remedy) {
  struct stat status{};
  std::ifstream file(path, std::ios::binary);
  // A folder opens as a file and reads as nothing.
  if (!file || ::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(LP_INVALID_ARGUMENT, "File '" + path + "' cannot be read; " + remedy + ".");
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Digest(const std::string& bytes) {
  return Sha256Hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// Of a file as it is, without a copy: Warp's library has 300 MB, and the heap would stay that large
// and be locked.
std::string FileDigest(const std::string& path, const std::string& remedy) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  const bool is_file = file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<size_t>(is_file ? status.st_size : 0);
  void* memory = MAP_FAILED;
  if (size > 0) memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (file >= 0) ::close(file);
  if (!is_file || (size > 0 && memory == MAP_FAILED)) {
    throw Error(LP_INVALID_ARGUMENT, "File '" + path + "' cannot be read; " + remedy + ".");
  }
  const std::string digest = Sha256Hex({static_cast<const uint8_t*>(memory), size});
  if (size > 0) ::munmap(memory, size);
  return digest;
}

void CheckDigest(const std::string& name, const std::string& expected, const std::string& got) {
  if (expected == got) return;
  throw Error(LP_BAD_BUNDLE, "'" + name +
                                 "' does not belong to this deployment: expected SHA-256 " +
                                 expected + ", got " + got + "; copy the whole folder again.");
}

}  // namespace

Deployment LoadDeployment(const std::string& folder) {
  const std::string remedy = "name a folder that 'leapp-policy pack' wrote, as a whole";
  const std::string text = ReadFile(folder + "/deploy.json", remedy);
  const std::string sealed = ReadFile(folder + "/deploy.json.sha256", remedy);
  const std::string digest = Digest(text);
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
    const std::string path = file[0] == '/' ? file : folder + "/" + file;
    const std::string copy_again = "copy the whole folder again";
    if (initial_bytes.count(file) == 0) {
      CheckDigest(file, expected, FileDigest(path, copy_again));
      continue;
    }
    // The bytes that were checked are those that are used.
    std::string bytes = ReadFile(path, copy_again);
    CheckDigest(file, expected, Digest(bytes));
    initial_bytes[file] = std::move(bytes);
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
