// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "onboard/ort_session.h"
#include "onboard/runner.h"

namespace leapp_policy::onboard {

// A runner on ONNX Runtime, with the library that it lives on.
struct OpenedRunner {
  std::shared_ptr<OrtLibrary> library;
  std::unique_ptr<Runner> runner;
};

// Loads one deployment folder, or two between which the runner can switch. Throws Error.
OpenedRunner OpenRunner(const std::vector<std::string>& folders, bool auto_start);

}  // namespace leapp_policy::onboard
