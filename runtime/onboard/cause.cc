// SPDX-License-Identifier: Apache-2.0
#include "onboard/cause.h"

namespace leapp_policy::onboard {

const char* StateName(State state) {
  switch (state) {
    case State::kInit:
      return "init";
    case State::kArmed:
      return "armed";
    case State::kRunning:
      return "running";
    case State::kHold:
      return "hold";
    case State::kDamped:
      return "damped";
    case State::kFault:
      return "fault";
  }
  return "unknown";
}

std::string Describe(Cause cause, const std::string& signal, const std::string& unit) {
  const std::string subject = signal.empty() ? "a signal" : "signal '" + signal + "'";
  switch (cause) {
    case Cause::kNone:
      return "nothing";
    case Cause::kArmRequest:
      return "arming was requested";
    case Cause::kStartRequest:
      return "a start was requested";
    case Cause::kStopRequest:
      return "a stop was requested";
    case Cause::kEmergencyStop:
      return "emergency stop";
    case Cause::kSwitchRequest:
      return "a switch to the other policy was requested";
    case Cause::kNoSensors:
      return "no sensors packet has come";
    case Cause::kStaleSensor:
      return subject + " is stale";
    case Cause::kStaleCommand:
      return "command " + subject.substr(subject.find(' ') + 1) + " is stale";
    case Cause::kNotFiniteSensor:
      return subject + " is not finite";
    case Cause::kOutOfRange:
      return subject + " is out of its range" + (unit.empty() ? "" : "; its unit is " + unit);
    case Cause::kOutsideEnvelope:
      return subject + " is outside of the start envelope";
    case Cause::kNotFiniteAction:
      return "the policy's output is not finite";
    case Cause::kModelFailed:
      return "a model failed";
    case Cause::kDeadlineMissed:
      return "too many deadlines in a row were missed";
    case Cause::kHoldTimedOut:
      return "the time in hold is over";
    case Cause::kDampedTimedOut:
      return "the time in damped is over";
    case Cause::kRecovered:
      return "the signals are good again";
    case Cause::kNothingToSwitchTo:
      return "there is no other policy to switch to";
  }
  return "unknown";
}

}  // namespace leapp_policy::onboard
