// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace leapp_policy::onboard {

// As in the packets (docs/onboard.md). Numbers are kept for good: logs and robots hold them.
enum class State : uint32_t {
  kInit = 0,
  kArmed = 1,
  kRunning = 2,
  kHold = 3,
  kDamped = 4,
  kFault = 5
};

// Why the state changed, or why a request was refused.
enum class Cause : uint32_t {
  kNone = 0,
  kArmRequest = 1,
  kStartRequest = 2,
  kStopRequest = 3,
  kEmergencyStop = 4,
  kSwitchRequest = 5,
  kNoSensors = 10,
  kStaleSensor = 11,
  kStaleCommand = 12,
  kNotFiniteSensor = 13,
  kOutOfRange = 14,
  kOutsideEnvelope = 15,
  kNotFiniteAction = 16,
  kModelFailed = 17,
  kDeadlineMissed = 18,
  kHoldTimedOut = 19,
  kDampedTimedOut = 20,
  kRecovered = 21,
  kNothingToSwitchTo = 22,
};

// A cause and the signal that it is about, -1 for none.
struct Problem {
  Cause cause = Cause::kNone;
  int32_t signal = -1;
  explicit operator bool() const { return cause != Cause::kNone; }
};

const char* StateName(State state);
// "signal 'goal' is stale", or without a signal's name "a signal is stale". Who sends degrees for
// radians is told the unit.
std::string Describe(Cause cause, const std::string& signal, const std::string& unit = "");

}  // namespace leapp_policy::onboard
