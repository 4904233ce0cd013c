// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onboard/cause.h"
#include "onboard/deployment.h"

namespace leapp_policy::onboard {

// Requests of one tick, as bits: 1 << the control code of the packet.
enum ControlBit : uint32_t {
  kControlArm = 1u << 1,
  kControlStart = 1u << 2,
  kControlStop = 1u << 3,
  kControlEstop = 1u << 4,
  kControlSwitch = 1u << 5,
};

// What the machine decides from, all of it an input: the same values give the same decisions.
struct SafetyInput {
  int64_t now_ns = 0;
  uint32_t control = 0;   // ControlBit
  bool missed = false;    // the last step ended after its deadline
  Problem problem;        // of the signals
  Problem start_problem;  // the same with the start envelope
};

// The states of a runner:
//
//   init -> armed      arm was requested, the signals are good and within the start envelope
//   armed -> running   start was requested, and the same holds
//   armed -> init      stop was requested, or a signal is bad
//   running -> hold    stop, a bad signal, a bad action, too many missed deadlines
//   hold -> running    the cause was a signal and is gone for recover_s
//   hold, damped -> armed  arm was requested and the signals are good
//   hold -> damped     hold_s is over
//   damped -> fault    damped_s is over
//   any -> fault       emergency stop; out of range or missed deadlines where the policy says so
//
// Fault is left by a new start of the program alone.
class SafetyMachine {
 public:
  // `auto_start` arms and starts without a request. `spec` is borrowed.
  SafetyMachine(const SafetySpec& spec, bool auto_start);

  // One tick, before the policy runs.
  void Update(const SafetyInput& input) noexcept;
  // The policy of this tick gave nothing that can be sent.
  void ActionFailed(int64_t now_ns, Cause cause) noexcept;

  State state() const { return state_; }
  // Why the state was entered.
  Problem cause() const { return cause_; }
  // The request that was refused in the last tick, or none.
  Problem refusal() const { return refusal_; }
  // Whether the last tick entered this state.
  bool entered(State state) const { return entered_ && state_ == state; }

 private:
  void Enter(State state, Problem cause, int64_t now_ns) noexcept;
  bool TryArm(const SafetyInput& input) noexcept;
  void UpdateHold(const SafetyInput& input) noexcept;
  void UpdateRunning(const SafetyInput& input) noexcept;
  void CountMisses(bool missed) noexcept;

  const SafetySpec& spec_;
  const bool auto_start_;
  State state_ = State::kInit;
  Problem cause_, refusal_;
  bool entered_ = false;
  int64_t since_ns_ = 0;       // when the state was entered
  int64_t good_since_ns_ = 0;  // in hold: since when the signals are good
  uint32_t misses_ = 0;        // in a row
};

}  // namespace leapp_policy::onboard
