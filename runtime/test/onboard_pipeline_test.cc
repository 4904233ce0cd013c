// SPDX-License-Identifier: Apache-2.0
// Without these a model on a GPU could read what was never sent to it, or a robot follow targets
// of an earlier step.
#include <algorithm>
#include <cstring>
#include <limits>

#include "onboard/pipeline.h"
#include "test/check.h"
#include "test/onboard_fakes.h"

namespace {

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::test::FakeDeployment;
using leapp_policy::test::FakeDocument;
using leapp_policy::test::FakeSession;
using leapp_policy::test::Floats;
using leapp_policy::test::Json;

// Like a GPU's: what one side has, the other has after a copy alone.
class TwoSides : public ModelMemory {
 public:
  explicit TwoSides(size_t bytes) : host_(bytes, 0), model_(bytes, 0) {}

  uint8_t* host() noexcept override { return host_.data(); }
  uint8_t* model() noexcept override { return model_.data(); }
  bool ToModel(size_t offset, size_t bytes) noexcept override {
    ++copies;
    std::memcpy(model_.data() + offset, host_.data() + offset, bytes);
    return !fails;
  }
  bool ToHost(size_t offset, size_t bytes) noexcept override {
    ++copies;
    std::memcpy(host_.data() + offset, model_.data() + offset, bytes);
    return !fails;
  }
  bool Copy(size_t to, size_t from, size_t bytes) noexcept override {
    std::memcpy(model_.data() + to, model_.data() + from, bytes);
    return !fails;
  }
  const char* error() const noexcept override { return "the memory failed"; }

  int copies = 0;
  bool fails = false;

 private:
  std::vector<uint8_t> host_, model_;
};

// An encoder that counts up two states of one output, and a policy that reads both of its outputs.
Json TwoModels() {
  Json document = FakeDocument();
  document["models"] = Json::parse(R"([
    {"name": "encoder", "file": "net.onnx",
     "inputs": [{"name": "q", "shape": [1, 2], "source": {"kind": "signal", "name": "joints"}},
                {"name": "n", "shape": [1], "source": {"kind": "state", "name": "n"}},
                {"name": "m", "shape": [1], "source": {"kind": "state", "name": "m"}}],
     "outputs": [{"name": "feature", "shape": [1, 2]}, {"name": "n_next", "shape": [1]}]},
    {"name": "net", "file": "net.onnx",
     "inputs": [{"name": "feature", "shape": [1, 2],
                 "source": {"kind": "model", "model": "encoder", "output": "feature"}},
                {"name": "n", "shape": [1],
                 "source": {"kind": "model", "model": "encoder", "output": "n_next"}},
                {"name": "c", "shape": [1, 1], "source": {"kind": "signal", "name": "command"}},
                {"name": "dt", "shape": [1], "source": {"kind": "dt"}}],
     "outputs": [{"name": "action", "shape": [1, 2]}]}])");
  Json next = {{"model", "encoder"}, {"output", "n_next"}};
  document["state"][0]["next"] = next;
  document["state"].push_back(document["state"][0]);
  document["state"][1]["name"] = "m";
  return document;
}

bool Encode(const std::vector<void*>& in, const std::vector<void*>& out) {
  for (int i = 0; i < 2; ++i) Floats(out[0])[i] = Floats(in[0])[i] + *Floats(in[2]);
  *Floats(out[1]) = *Floats(in[1]) + 1.0f;
  return true;
}

bool Decide(const std::vector<void*>& in, const std::vector<void*>& out) {
  for (int i = 0; i < 2; ++i) {
    Floats(out[0])[i] = Floats(in[0])[i] + 10.0f * *Floats(in[1]) + *Floats(in[2]) + *Floats(in[3]);
  }
  return true;
}

struct Rig {
  explicit Rig(bool two_sides)
      : deployment(FakeDeployment(TwoModels())),
        pipeline(deployment, Sessions(), [&](auto, auto n) {
          auto made = std::make_unique<TwoSides>(n);
          memory = made.get();
          return two_sides ? std::move(made) : MakeModelMemory("cpu", n);
        }) {}

  std::vector<std::unique_ptr<ModelSession>> Sessions() const {
    std::vector<std::unique_ptr<ModelSession>> sessions;
    sessions.push_back(std::make_unique<FakeSession>(deployment.models[0], &Encode));
    sessions.push_back(std::make_unique<FakeSession>(deployment.models[1], &Decide));
    return sessions;
  }

  // What the policy gives for one joint, or not a number where it failed.
  float Step(float joint, float command) {
    pipeline.signal_input(0, 0)[0] = joint;
    pipeline.signal_input(1, 2)[0] = command;
    return pipeline.Run() ? pipeline.targets()[0] : std::numeric_limits<float>::quiet_NaN();
  }

  Deployment deployment;
  TwoSides* memory = nullptr;
  Pipeline pipeline;
};

void TestSameOnBothKindsOfMemory() {
  Rig one(false), two(true);
  for (int i = 0; i < 20; ++i) {
    if (i == 7) one.pipeline.Reset(false);
    if (i == 7) two.pipeline.Reset(false);
    const float step = static_cast<float>(i < 7 ? i : i - 7);
    const float expected = 0.5f * step + step + 10.0f * (step + 1.0f) - step + 0.01f;
    const float got = one.Step(0.5f * step, -step);
    CHECK(std::max(got - expected, expected - got) < 1e-4f);
    CHECK(two.Step(0.5f * step, -step) == got);
  }
}

void TestStepCopiesOnceEachWay() {
  Rig rig(true);
  const int before = rig.memory->copies;
  rig.Step(1.0f, 0.0f);
  CHECK(rig.memory->copies == before + 2);
}

void TestFailedCopyFailsTheStep() {
  Rig rig(true);
  const float good = rig.Step(1.0f, 0.0f);
  CHECK(rig.pipeline.error()[0] == 0);
  rig.memory->fails = true;
  CHECK(!rig.pipeline.Run());
  CHECK(std::string(rig.pipeline.error()) == "the memory failed");
  rig.memory->fails = false;
  const float next = rig.Step(1.0f, 0.0f);  // the failed step left no trace in the state
  CHECK(next > good + 10.9f && next < good + 11.1f);
  // State that could not be put back must not be run on.
  rig.memory->fails = true;
  rig.pipeline.Reset(true);
  rig.memory->fails = false;
  CHECK(!rig.pipeline.Run());
}

}  // namespace

int main() {
  TestSameOnBothKindsOfMemory();
  TestStepCopiesOnceEachWay();
  TestFailedCopyFailsTheStep();
  return leapp_policy::test::Result();
}
