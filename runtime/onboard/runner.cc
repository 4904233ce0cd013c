// SPDX-License-Identifier: Apache-2.0
#include "onboard/runner.h"

#include <chrono>
#include <cmath>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

int64_t NowNs() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

template <typename Value>
void ExpectSame(const char* what, const Value& first, const Value& second) {
  if (first == second) return;
  throw Error(LP_INVALID_ARGUMENT,
              std::string("The two policies must have the same ") + what +
                  ", they do not; pack the second one for the same robot and rate.");
}

}  // namespace

Runner::Runner(std::vector<Deployment> deployments, const OpenSession& open, bool auto_start)
    : policies_([&] {
        std::vector<std::unique_ptr<Policy>> policies;
        for (Deployment& each : deployments) {
          policies.push_back(std::make_unique<Policy>());
          policies.back()->deployment = std::move(each);
        }
        return policies;
      }()),
      machine_(policies_.at(0)->deployment.safety, auto_start) {
  CheckPair();
  for (auto& policy : policies_) {
    const Deployment& deployment = policy->deployment;
    std::vector<std::unique_ptr<ModelSession>> sessions;
    for (size_t i = 0; i < deployment.models.size(); ++i) sessions.push_back(open(deployment, i));
    policy->pipeline = std::make_unique<Pipeline>(deployment, std::move(sessions));
    policy->binding = std::make_unique<Binding>(deployment, policy->pipeline.get());
    policy->guard = std::make_unique<TargetGuard>(deployment.targets, deployment.period_ns,
                                                  deployment.safety.blend_in_ns);
  }
  action_.resize(deployment().targets.dim());
  measured_.resize(deployment().targets.dim());
}

void Runner::CheckPair() const {
  if (policies_.size() < 2) return;
  const Deployment& first = policies_[0]->deployment;
  const Deployment& second = policies_[1]->deployment;
  ExpectSame("rate_hz", first.period_ns, second.period_ns);
  ExpectSame("sensor_floats", first.sensor_floats, second.sensor_floats);
  ExpectSame("number of targets", first.targets.dim(), second.targets.dim());
  ExpectSame("unit of targets", first.targets.unit, second.targets.unit);
}

WarmUp Runner::Warm(int runs) {
  WarmUp found;
  for (auto& policy : policies_) {
    for (int i = 0; i < runs; ++i) {
      const int64_t began = NowNs();
      if (!policy->pipeline->Run()) {
        throw Error(LP_RUN_FAILED, "Policy '" + policy->deployment.name +
                                       "' failed at its first run: " + policy->pipeline->error());
      }
      const int64_t took = NowNs() - began;
      if (i == 0) found.first_ns += took;
      found.last_ns = took;
    }
    policy->pipeline->Reset(true);
  }
  return found;
}

std::vector<std::string> Runner::notes() const {
  std::vector<std::string> found;
  for (const auto& policy : policies_) {
    for (std::string& each : policy->pipeline->notes()) found.push_back(std::move(each));
  }
  return found;
}

const StepOutput& Runner::Step(const StepInput& input) noexcept {
  MaybeSwitch(input);
  const Binding& binding = *active().binding;
  SafetyInput safety;
  safety.now_ns = input.now_ns;
  safety.control = input.control;
  safety.missed = input.missed;
  safety.problem = binding.Check(input.sensors, input.now_ns, false);
  safety.start_problem =
      safety.problem ? safety.problem : binding.Check(input.sensors, input.now_ns, true);
  machine_.Update(safety);
  output_.ran = false;
  Act(input);
  output_.state = machine_.state();
  output_.cause = machine_.cause();
  if (machine_.refusal()) output_.refusal = machine_.refusal();
  // In fault the packet goes out, too: the robot must brake, whatever the values are.
  output_.send =
      output_.state == State::kFault || (output_.state != State::kInit && active().guard->placed());
  output_.targets = active().guard->values();
  output_.action = action_.data();
  output_.policy = static_cast<uint32_t>(active_);
  return output_;
}

void Runner::MaybeSwitch(const StepInput& input) noexcept {
  output_.refusal = {};
  if ((input.control & kControlSwitch) == 0 || machine_.state() == State::kFault) return;
  if (policies_.size() < 2) {
    output_.refusal = {Cause::kNothingToSwitchTo, -1};
    return;
  }
  Policy& other = *policies_[1 - active_];
  const Problem problem = other.binding->Check(input.sensors, input.now_ns, false);
  if (problem) {
    output_.refusal = problem;
    return;
  }
  // The other one begins where this one's targets are.
  if (active().guard->placed()) other.guard->Place(active().guard->values());
  other.guard->BeginBlend(input.now_ns);
  other.pipeline->Reset(false);
  active_ = 1 - active_;
}

void Runner::PlaceAtMeasured(const Sensors& sensors) noexcept {
  const std::vector<uint32_t>& index = deployment().targets.measured;
  if (index.empty()) return;
  for (size_t i = 0; i < index.size(); ++i) measured_[i] = sensors.values[index[i]];
  active().guard->Place(measured_.data());
}

void Runner::Act(const StepInput& input) noexcept {
  Policy& policy = active();
  if (machine_.entered(State::kArmed)) PlaceAtMeasured(input.sensors);
  if (machine_.entered(State::kRunning)) {
    policy.pipeline->Reset(false);
    // After a hold the last targets are where the blend begins, at a start the measured pose.
    if (machine_.cause().cause == Cause::kStartRequest) PlaceAtMeasured(input.sensors);
    policy.guard->BeginBlend(input.now_ns);
  }
  if (machine_.state() == State::kArmed) {
    // Keeps code and caches warm, so that the first step is no slower than the others.
    if (!policy.pipeline->keeps_state()) RunPolicy(input);
    return;
  }
  if (machine_.state() != State::kRunning) return;
  if (!RunPolicy(input)) return machine_.ActionFailed(input.now_ns, Cause::kModelFailed);
  for (const float each : action_) {
    if (!std::isfinite(each)) {
      return machine_.ActionFailed(input.now_ns, Cause::kNotFiniteAction);
    }
  }
  policy.guard->Follow(action_.data(), input.now_ns);
}

bool Runner::RunPolicy(const StepInput& input) noexcept {
  Policy& policy = active();
  policy.binding->Fill(input.sensors);
  if (!policy.pipeline->Run()) return false;
  output_.ran = true;
  const float* wanted = policy.pipeline->targets();
  const std::vector<uint32_t>& order = policy.deployment.targets.order;
  for (size_t i = 0; i < order.size(); ++i) action_[i] = wanted[order[i]];
  return true;
}

}  // namespace leapp_policy::onboard
