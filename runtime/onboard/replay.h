// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "onboard/runner.h"
#include "onboard/step_log.h"

namespace leapp_policy::onboard {

struct ReplayResult {
  uint64_t steps = 0;      // that were repeated
  bool equal = false;      // every action, target and state, bit by bit
  std::string difference;  // the first one, a sentence
};

// Repeats a logged run on a runner that was just opened and warmed up. Throws Error: the log lacks
// records, or belongs to another deployment.
ReplayResult Replay(const LogFile& log, Runner* runner);

}  // namespace leapp_policy::onboard
