// SPDX-License-Identifier: Apache-2.0
//
// The library's front: a policy with its safety machine, one call a control period. It owns no
// clock, no thread and no transport, so that the node of any middleware can hold it, and so that a
// log can be replayed: a step depends on nothing but its input and the steps before.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "onboard/binding.h"
#include "onboard/deployment.h"
#include "onboard/pipeline.h"
#include "onboard/safety.h"
#include "onboard/target_guard.h"

namespace leapp_policy::onboard {

struct StepInput {
  int64_t now_ns = 0;    // CLOCK_MONOTONIC
  Sensors sensors;       // the newest; `values` stays the caller's
  uint32_t control = 0;  // ControlBit, all that came since the last step
  bool missed = false;   // the last step ended after its deadline
};

struct StepOutput {
  State state = State::kInit;
  Problem cause;     // why the state was entered
  Problem refusal;   // a request that was refused in this step
  bool ran = false;  // whether the policy ran
  bool send = false;
  const float* targets = nullptr;  // [dim], sent order; valid until the next step
  const float* action = nullptr;   // what the policy wanted, in the same order
  uint32_t policy = 0;             // which of the two is active
};

// Makes the session of a model; a test gives its own.
using OpenSession = std::function<std::unique_ptr<ModelSession>(const Deployment&, size_t model)>;

struct WarmUp {
  int64_t first_ns = 0;  // the first run: code that is compiled or loaded late
  int64_t last_ns = 0;
};

class Runner {
 public:
  // `deployments`: the policy, and optionally another to switch to at run time, which must take
  // the same payload and drive the same targets at the same rate. Throws Error.
  Runner(std::vector<Deployment> deployments, const OpenSession& open, bool auto_start);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs each policy on zeros, then puts its state back. Before the first step. Throws Error.
  WarmUp Warm(int runs);

  // One control step: no allocation, lock or exception of this library, nor a system call.
  const StepOutput& Step(const StepInput& input) noexcept;

  const Deployment& deployment() const { return active().deployment; }
  const Deployment& deployment(size_t policy) const { return policies_.at(policy)->deployment; }
  size_t policies() const { return policies_.size(); }
  // The model's own words after Cause::kModelFailed.
  const char* error() const { return active().pipeline->error(); }
  // What a person should know of how the models run, one sentence each.
  std::vector<std::string> notes() const;

 private:
  struct Policy {
    Deployment deployment;
    std::unique_ptr<Pipeline> pipeline;
    std::unique_ptr<Binding> binding;
    std::unique_ptr<TargetGuard> guard;
  };

  Policy& active() { return *policies_[active_]; }
  const Policy& active() const { return *policies_[active_]; }
  void CheckPair() const;
  void MaybeSwitch(const StepInput& input) noexcept;
  void PlaceAtMeasured(const Sensors& sensors) noexcept;
  bool RunPolicy(const StepInput& input) noexcept;
  void Act(const StepInput& input) noexcept;

  std::vector<std::unique_ptr<Policy>> policies_;
  SafetyMachine machine_;
  size_t active_ = 0;
  std::vector<float> action_, measured_;
  StepOutput output_;
};

}  // namespace leapp_policy::onboard
