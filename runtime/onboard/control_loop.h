// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "onboard/runner.h"
#include "onboard/step_log.h"
#include "onboard/transport.h"

namespace leapp_policy::onboard {

struct LoopResult {
  uint64_t steps = 0;
  uint64_t misses = 0;
  int64_t wall_ns = 0;
  bool fault = false;
};

// Runs a policy at its rate until `stop`, fault, or `seconds` have passed (0: without end). At its
// end the robot is told to brake. All arguments are borrowed.
LoopResult RunLoop(Runner* runner, Transport* transport, StepLog* log, double seconds,
                   const std::atomic<bool>& stop) noexcept;

}  // namespace leapp_policy::onboard
