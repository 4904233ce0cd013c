// SPDX-License-Identifier: Apache-2.0
// Without these a robot could move when it must not, or go on when it must stop.
#include <limits>

#include "onboard/safety.h"
#include "onboard/target_guard.h"
#include "test/check.h"

namespace {

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone

constexpr int64_t kMs = 1'000'000;
const Problem kStale{Cause::kStaleSensor, 2};

struct Machine {
  SafetySpec spec;
  SafetyMachine machine;
  int64_t now = 0;

  explicit Machine(SafetySpec wanted = {}, bool auto_start = false)
      : spec(wanted), machine(spec, auto_start) {}

  void Tick(uint32_t control = 0, Problem problem = {}, bool missed = false, Problem start = {}) {
    now += 10 * kMs;
    machine.Update({now, control, missed, problem, problem ? problem : start});
  }
  void ToRunning() {
    Tick(kControlArm);
    Tick(kControlStart);
  }
  bool Is(State state, Cause cause) const {
    return machine.state() == state && machine.cause().cause == cause;
  }
};

void TestArmAndStart() {
  Machine m;
  m.Tick(kControlStart);
  CHECK(m.machine.state() == State::kInit);
  m.Tick(kControlArm, kStale);
  CHECK(m.machine.state() == State::kInit && m.machine.refusal().cause == Cause::kStaleSensor &&
        m.machine.refusal().signal == 2);
  m.Tick(kControlArm, {}, false, {Cause::kOutsideEnvelope, 0});
  CHECK(m.machine.refusal().cause == Cause::kOutsideEnvelope);
  m.Tick(kControlArm);
  CHECK(m.Is(State::kArmed, Cause::kArmRequest) && m.machine.entered(State::kArmed));
  m.Tick();
  CHECK(m.machine.state() == State::kArmed && !m.machine.entered(State::kArmed));
  m.Tick(kControlStart, {}, false, {Cause::kOutsideEnvelope, 0});
  CHECK(m.machine.state() == State::kArmed && m.machine.refusal());
  m.Tick(kControlStart);
  CHECK(m.Is(State::kRunning, Cause::kStartRequest) && m.machine.entered(State::kRunning));
}

void TestArmedFallsBack() {
  Machine m;
  m.Tick(kControlArm);
  m.Tick(0, kStale);
  CHECK(m.Is(State::kInit, Cause::kStaleSensor));
  m.Tick(kControlArm);
  m.Tick(kControlStop);
  CHECK(m.Is(State::kInit, Cause::kStopRequest));
}

void TestAutoStart() {
  Machine m({}, true);
  m.Tick(0, {Cause::kNoSensors, -1});
  CHECK(m.machine.state() == State::kInit);
  m.Tick();
  CHECK(m.machine.state() == State::kArmed);
  m.Tick();
  CHECK(m.machine.state() == State::kRunning);
}

void TestEachProblemHolds() {
  for (const Cause cause : {Cause::kNoSensors, Cause::kStaleSensor, Cause::kStaleCommand,
                            Cause::kNotFiniteSensor, Cause::kOutOfRange}) {
    Machine m;
    m.ToRunning();
    m.Tick(0, {cause, 1});
    CHECK(m.Is(State::kHold, cause) && m.machine.cause().signal == 1);
  }
  SafetySpec strict;
  strict.on_range = RangePolicy::kFault;
  Machine m(strict);
  m.ToRunning();
  m.Tick(0, {Cause::kOutOfRange, 1});
  CHECK(m.Is(State::kFault, Cause::kOutOfRange));
}

void TestActionFailures() {
  for (const Cause cause : {Cause::kNotFiniteAction, Cause::kModelFailed}) {
    SafetySpec spec;
    spec.recover_ns = 0;
    Machine m(spec);
    m.ToRunning();
    m.machine.ActionFailed(m.now, cause);
    CHECK(m.Is(State::kHold, cause));
    for (int i = 0; i < 20; ++i) m.Tick();
    CHECK(m.machine.state() == State::kHold);  // a defect does not go away by itself
  }
}

void TestHoldDampedFault() {
  Machine m;
  m.ToRunning();
  m.Tick(kControlStop);
  CHECK(m.Is(State::kHold, Cause::kStopRequest));
  for (int i = 0; i < 49; ++i) m.Tick();
  CHECK(m.machine.state() == State::kHold);
  m.Tick();
  CHECK(m.Is(State::kDamped, Cause::kHoldTimedOut));
  for (int i = 0; i < 199; ++i) m.Tick();
  CHECK(m.machine.state() == State::kDamped);
  m.Tick();
  CHECK(m.Is(State::kFault, Cause::kDampedTimedOut));
  m.Tick(kControlArm | kControlStart);
  CHECK(m.machine.state() == State::kFault);
}

void TestDampedForEver() {
  SafetySpec spec;
  spec.damped_ns.reset();
  spec.hold_ns = 0;
  Machine m(spec);
  m.ToRunning();
  m.Tick(kControlStop);
  for (int i = 0; i < 5000; ++i) m.Tick();
  CHECK(m.machine.state() == State::kDamped);
  m.Tick(kControlArm, kStale);
  CHECK(m.machine.state() == State::kDamped && m.machine.refusal());
  m.Tick(kControlArm);
  CHECK(m.Is(State::kArmed, Cause::kArmRequest));
}

void TestRecovery() {
  SafetySpec spec;
  spec.recover_ns = 30 * kMs;
  Machine m(spec);
  m.ToRunning();
  m.Tick(0, kStale);
  m.Tick();
  m.Tick();
  m.Tick(0, kStale);  // the time begins anew
  for (int i = 0; i < 3; ++i) m.Tick();
  CHECK(m.machine.state() == State::kHold);
  m.Tick();
  CHECK(m.Is(State::kRunning, Cause::kRecovered) && m.machine.entered(State::kRunning));
  m.Tick(kControlStop);
  for (int i = 0; i < 10; ++i) m.Tick();
  CHECK(m.machine.state() == State::kHold);  // who stops it must start it
  m.Tick(kControlArm);
  CHECK(m.machine.state() == State::kArmed);
}

void TestMisses() {
  for (const MissPolicy policy : {MissPolicy::kContinue, MissPolicy::kHold, MissPolicy::kFault}) {
    SafetySpec spec;
    spec.on_miss = policy;
    spec.max_misses = 2;
    Machine m(spec);
    m.ToRunning();
    m.Tick(0, {}, true);
    m.Tick();
    m.Tick(0, {}, true);
    CHECK(m.machine.state() == State::kRunning);  // never two in a row
    m.Tick(0, {}, true);
    const State expected = policy == MissPolicy::kContinue ? State::kRunning
                           : policy == MissPolicy::kHold   ? State::kHold
                                                           : State::kFault;
    CHECK(m.machine.state() == expected);
    if (expected != State::kRunning) CHECK(m.machine.cause().cause == Cause::kDeadlineMissed);
  }
}

void TestEmergencyStop() {
  for (int steps = 0; steps < 5; ++steps) {
    SafetySpec spec;
    spec.hold_ns = 10 * kMs;
    Machine m(spec);
    if (steps > 0) m.Tick(kControlArm);
    if (steps > 1) m.Tick(kControlStart);
    if (steps > 2) m.Tick(kControlStop);
    if (steps > 3) m.Tick();
    CHECK(m.machine.state() == static_cast<State>(steps));
    m.Tick(kControlEstop | kControlArm | kControlStart, kStale);
    CHECK(m.Is(State::kFault, Cause::kEmergencyStop));
  }
}

// Two targets without limits.
TargetSpec OpenTargets() {
  constexpr float kOpen = std::numeric_limits<float>::infinity();
  TargetSpec spec;
  spec.order = {0, 1};
  spec.lower = {-kOpen, -kOpen};
  spec.upper = {kOpen, kOpen};
  spec.max_rate = {kOpen, kOpen};
  return spec;
}

void TestBlendBetweenLargestNumbers() {
  constexpr float kMost = std::numeric_limits<float>::max();
  const TargetSpec spec = OpenTargets();
  TargetGuard guard(spec, 10 * kMs, 100 * kMs);
  const float pose[2] = {-kMost, -kMost}, wanted[2] = {kMost, kMost};
  guard.Place(pose);
  guard.BeginBlend(0);
  guard.Follow(wanted, 0);  // their difference is infinite, and 0 times it is no number
  CHECK(guard.values()[0] == -kMost);
  guard.Follow(wanted, 50 * kMs);
  CHECK(guard.values()[1] == 0.0f);
}

void TestBlendWhenTimeRunsBack() {
  const TargetSpec spec = OpenTargets();
  TargetGuard guard(spec, 10 * kMs, 100 * kMs);
  const float pose[2] = {0.0f, 1.0f}, wanted[2] = {0.1f, 1.1f};
  guard.Place(pose);
  guard.BeginBlend(1000 * kMs);
  guard.Follow(wanted, 900 * kMs);
  CHECK(guard.values()[0] == 0.0f && guard.values()[1] == 1.0f);
}

void TestWords() {
  CHECK(Describe(Cause::kStaleCommand, "goal") == "command 'goal' is stale");
  CHECK(Describe(Cause::kStaleSensor, "imu") == "signal 'imu' is stale");
  CHECK(std::string(StateName(State::kDamped)) == "damped");
}

}  // namespace

int main() {
  TestArmAndStart();
  TestArmedFallsBack();
  TestAutoStart();
  TestEachProblemHolds();
  TestActionFailures();
  TestHoldDampedFault();
  TestDampedForEver();
  TestRecovery();
  TestMisses();
  TestEmergencyStop();
  TestBlendBetweenLargestNumbers();
  TestBlendWhenTimeRunsBack();
  TestWords();
  return leapp_policy::test::Result();
}
