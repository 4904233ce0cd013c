// SPDX-License-Identifier: Apache-2.0
// deploy.json is refused with a sentence, or gives a deployment that the runner can rely on.
//
// The input is the document up to the first NUL; the bytes after it decide what the robot, the
// people and the models do in some steps of a runner on that deployment. Never is anything sent
// that is not finite, nothing leaves the limits once it is within them, nor is a state entered that
// docs/onboard-formats.md does not name.
#include <algorithm>
#include <cmath>

#include "fuzz/deployment_rules.h"
#include "fuzz/script.h"
#include "onboard/runner.h"
#include "test/onboard_fakes.h"

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::DType;
using leapp_policy::fuzz::Expect;
using leapp_policy::fuzz::Script;

namespace {

// A larger deployment is parsed and not run: an input must not take long.
constexpr uint64_t kMostBytesToRun = 1u << 16;
constexpr size_t kMostFloatsToRun = 512;
constexpr int kSteps = 24;

void Fill(const TensorSpec& spec, Script* script, void* memory) {
  if (spec.dtype == DType::kFloat32) {
    script->Numbers(static_cast<float*>(memory), spec.elements());
  } else {
    std::memset(memory, script->Byte(), spec.bytes());
  }
}

// A model that reads all of its inputs, and writes what the script says or fails.
std::unique_ptr<ModelSession> OpenScripted(const ModelSpec& model, Script* script) {
  const auto body = [&model, script](const std::vector<void*>& in, const std::vector<void*>& out) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const auto* bytes = static_cast<const uint8_t*>(in[i]);
      for (size_t b = 0; b < model.inputs[i].tensor.bytes(); ++b) sum = sum ^ bytes[b];
    }
    for (size_t i = 0; i < out.size(); ++i) Fill(model.outputs[i], script, out[i]);
    return script->Byte() != 0xFF;
  };
  return std::make_unique<leapp_policy::test::FakeSession>(model, body);
}

// As a step shows it: a start whose first action is bad goes from armed to hold at once.
bool IsLegal(State from, State to) {
  if (from == to || to == State::kFault) return true;
  switch (from) {
    case State::kInit:
      return to == State::kArmed;
    case State::kArmed:
      return to == State::kInit || to == State::kRunning || to == State::kHold;
    case State::kRunning:
      return to == State::kHold;
    case State::kHold:
      return to == State::kArmed || to == State::kRunning || to == State::kDamped;
    case State::kDamped:
      return to == State::kArmed;
    case State::kFault:
      return false;
  }
  return false;
}

// The robot, the people and the clock around a runner.
class Bench {
 public:
  Bench(const Deployment& deployment, Script* script)
      : deployment_(deployment),
        script_(script),
        values_(deployment.sensor_floats),
        before_(deployment.targets.dim()) {
    const bool auto_start = script->Byte() % 2 == 0;
    std::vector<Deployment> policies(script->Byte() % 4 == 0 ? 2 : 1, deployment);
    const auto open = [script](const Deployment& each, size_t model) {
      return OpenScripted(each.models[model], script);
    };
    runner_ = std::make_unique<Runner>(std::move(policies), open, auto_start);
    now_ns_ = static_cast<int64_t>(script->Word() >> 2);
  }

  void Step() {
    MoveTime();
    input_.now_ns = now_ns_;
    input_.control = script_->Byte();
    if (script_->Byte() % 4 != 0) input_.control &= kControlArm | kControlStart;
    input_.missed = script_->Byte() % 8 == 0;
    if (script_->Byte() % 8 != 0) Measure();
    Check(runner_->Step(input_));
  }

 private:
  void MoveTime() {
    switch (script_->Byte() % 16) {
      case 0:
        now_ns_ = static_cast<int64_t>(script_->Word() >> 1);  // also back
        break;
      case 1:
        now_ns_ += std::min<int64_t>(INT64_MAX - now_ns_, 1'000'000'000);
        break;
      default:
        now_ns_ += std::min<int64_t>(INT64_MAX - now_ns_, deployment_.period_ns);
    }
  }

  void Measure() {
    script_->Numbers(values_.data(), values_.size());
    const bool any = script_->Byte() % 8 == 0;
    input_.sensors.time_ns = any ? static_cast<int64_t>(script_->Word()) : now_ns_;
    ++input_.sensors.sequence;
    input_.sensors.values = values_.data();
  }

  void Check(const StepOutput& output) {
    const size_t dim = deployment_.targets.dim();
    Expect(IsLegal(state_, output.state), "a transition is one of the table",
           std::string(StateName(state_)) + " to " + StateName(output.state));
    for (size_t i = 0; i < dim && output.send; ++i) {
      Expect(std::isfinite(output.targets[i]), "what is sent is finite",
             std::to_string(output.targets[i]));
    }
    if (output.state == State::kRunning) CheckGuard(output);
    const bool repeats = output.state == State::kHold || output.state == State::kDamped;
    Expect(state_ != output.state || !repeats ||
               std::equal(before_.begin(), before_.end(), output.targets),
           "hold and damped repeat the last targets");
    placed_ = placed_ || (output.send && output.state != State::kFault);
    std::copy(output.targets, output.targets + dim, before_.begin());
    state_ = output.state;
  }

  // Against where the robot was, or was told to be, before this step.
  void CheckGuard(const StepOutput& output) const {
    const TargetSpec& targets = deployment_.targets;
    const bool starts = state_ == State::kArmed && !targets.measured.empty();
    for (size_t i = 0; i < targets.dim(); ++i) {
      const float sent = output.targets[i];
      const float before = starts ? values_[targets.measured[i]] : before_[i];
      const bool was_within = before >= targets.lower[i] && before <= targets.upper[i];
      if (was_within || (!starts && !placed_)) {
        Expect(sent >= targets.lower[i] && sent <= targets.upper[i],
               "a target that was within its limits stays there", std::to_string(sent));
      }
      const float step = static_cast<float>(targets.max_rate[i] * 1e-9 *
                                            static_cast<double>(deployment_.period_ns));
      if (starts || placed_) {
        Expect(sent >= before - step && sent <= before + step, "no target outruns its rate",
               std::to_string(sent));
      }
    }
  }

  const Deployment& deployment_;
  Script* script_;
  std::vector<float> values_, before_;
  std::unique_ptr<Runner> runner_;
  StepInput input_;
  int64_t now_ns_ = 0;
  State state_ = State::kInit;
  bool placed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = std::find(data, data + size, uint8_t{0});
  DeployText text;
  try {
    text = ParseDeployment(std::string(data, end), "folder");
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_BAD_METADATA);
    return 0;
  }
  const uint64_t bytes = leapp_policy::fuzz::ExpectDeployment(text);
  Deployment& deployment = text.deployment;
  if (bytes > kMostBytesToRun || deployment.sensor_floats > kMostFloatsToRun) return 0;
  const uint8_t* decisions = end == data + size ? end : end + 1;
  Script script(decisions, static_cast<size_t>(data + size - decisions));
  for (StateSpec& each : deployment.states) each.initial.assign(each.tensor.bytes(), 0);
  Bench bench(deployment, &script);
  for (int i = 0; i < kSteps; ++i) bench.Step();
  return 0;
}
