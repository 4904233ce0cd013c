// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace leapp_policy {

enum class DeviceFamily { kCpu, kCuda };

// A device as the artifact or the caller names it: "cpu", "cuda", "cuda:1".
struct Device {
  DeviceFamily family = DeviceFamily::kCpu;
  int index = 0;
};

// Throws Error(LP_INVALID_ARGUMENT) on any other text.
Device ParseDevice(const std::string& text);

// "cpu" or "cuda".
const char* DeviceFamilyName(DeviceFamily family);

}  // namespace leapp_policy
