// SPDX-License-Identifier: Apache-2.0
#include "onboard/safety.h"

namespace leapp_policy::onboard {
namespace {

constexpr int64_t kNever = -1;

// Whether a hold may end by itself: a bad signal may become good, a bad action is a defect.
bool MayRecover(Cause cause) {
  switch (cause) {
    case Cause::kNoSensors:
    case Cause::kStaleSensor:
    case Cause::kStaleCommand:
    case Cause::kNotFiniteSensor:
    case Cause::kOutOfRange:
      return true;
    default:
      return false;
  }
}

}  // namespace

SafetyMachine::SafetyMachine(const SafetySpec& spec, bool auto_start)
    : spec_(spec), auto_start_(auto_start) {}

void SafetyMachine::Enter(State state, Problem cause, int64_t now_ns) noexcept {
  state_ = state;
  cause_ = cause;
  entered_ = true;
  since_ns_ = now_ns;
  good_since_ns_ = kNever;
  misses_ = 0;
}

void SafetyMachine::Update(const SafetyInput& input) noexcept {
  entered_ = false;
  refusal_ = {};
  if (state_ == State::kFault) return;
  if ((input.control & kControlEstop) != 0) {
    return Enter(State::kFault, {Cause::kEmergencyStop, -1}, input.now_ns);
  }
  switch (state_) {
    case State::kInit:
      if (auto_start_ || (input.control & kControlArm) != 0) TryArm(input);
      break;
    case State::kArmed:
      if ((input.control & kControlStop) != 0) {
        Enter(State::kInit, {Cause::kStopRequest, -1}, input.now_ns);
      } else if (input.problem) {
        Enter(State::kInit, input.problem, input.now_ns);
      } else if (auto_start_ || (input.control & kControlStart) != 0) {
        if (input.start_problem) {
          refusal_ = input.start_problem;
        } else {
          Enter(State::kRunning, {Cause::kStartRequest, -1}, input.now_ns);
        }
      }
      break;
    case State::kRunning:
      UpdateRunning(input);
      break;
    case State::kHold:
      UpdateHold(input);
      break;
    case State::kDamped:
      if ((input.control & kControlArm) != 0 && TryArm(input)) break;
      if (spec_.damped_ns && input.now_ns - since_ns_ >= *spec_.damped_ns) {
        Enter(State::kFault, {Cause::kDampedTimedOut, -1}, input.now_ns);
      }
      break;
    case State::kFault:
      break;
  }
}

bool SafetyMachine::TryArm(const SafetyInput& input) noexcept {
  if (input.start_problem) {
    refusal_ = input.start_problem;
    return false;
  }
  Enter(State::kArmed, {Cause::kArmRequest, -1}, input.now_ns);
  return true;
}

void SafetyMachine::UpdateRunning(const SafetyInput& input) noexcept {
  CountMisses(input.missed);
  const bool too_many = misses_ > 0 && misses_ >= spec_.max_misses;
  if ((input.control & kControlStop) != 0) {
    Enter(State::kHold, {Cause::kStopRequest, -1}, input.now_ns);
  } else if (input.problem) {
    const bool is_fault =
        input.problem.cause == Cause::kOutOfRange && spec_.on_range == RangePolicy::kFault;
    Enter(is_fault ? State::kFault : State::kHold, input.problem, input.now_ns);
  } else if (too_many && spec_.on_miss != MissPolicy::kContinue) {
    const bool is_fault = spec_.on_miss == MissPolicy::kFault;
    Enter(is_fault ? State::kFault : State::kHold, {Cause::kDeadlineMissed, -1}, input.now_ns);
  }
}

void SafetyMachine::UpdateHold(const SafetyInput& input) noexcept {
  if ((input.control & kControlArm) != 0 && TryArm(input)) return;
  if (input.problem) {
    good_since_ns_ = kNever;
  } else if (good_since_ns_ == kNever) {
    good_since_ns_ = input.now_ns;
  }
  const bool may_recover = spec_.recover_ns && MayRecover(cause_.cause);
  if (may_recover && good_since_ns_ != kNever &&
      input.now_ns - good_since_ns_ >= *spec_.recover_ns) {
    Enter(State::kRunning, {Cause::kRecovered, -1}, input.now_ns);
  } else if (input.now_ns - since_ns_ >= spec_.hold_ns) {
    Enter(State::kDamped, {Cause::kHoldTimedOut, -1}, input.now_ns);
  }
}

void SafetyMachine::ActionFailed(int64_t now_ns, Cause cause) noexcept {
  Enter(State::kHold, {cause, -1}, now_ns);
}

void SafetyMachine::CountMisses(bool missed) noexcept { misses_ = missed ? misses_ + 1 : 0; }

}  // namespace leapp_policy::onboard
