// SPDX-License-Identifier: Apache-2.0
#include "core/device.h"

#include "core/error.h"

namespace leapp_policy {

Device ParseDevice(const std::string& text) {
  if (text == "cpu") return {DeviceFamily::kCpu, 0};
  if (text == "cuda") return {DeviceFamily::kCuda, 0};
  const std::string prefix = "cuda:";
  const std::string digits =
      text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : std::string();
  if (digits.empty() || digits.size() > 4 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(LP_INVALID_ARGUMENT,
                "The device must be 'cpu', 'cuda' or 'cuda:<index>', got '" + text + "'.");
  }
  return {DeviceFamily::kCuda, std::stoi(digits)};
}

const char* DeviceFamilyName(DeviceFamily family) {
  return family == DeviceFamily::kCpu ? "cpu" : "cuda";
}

}  // namespace leapp_policy
