// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

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
    std::string bytes =
        ReadFile(file[0] == '/' ? file : folder + "/" + file, "copy the whole folder again");
    CheckDigest(file, expected, Digest(bytes));
    // The bytes that were checked are those that are used.
    if (initial_bytes.count(file) != 0) initial_bytes[file] = std::move(bytes);
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
