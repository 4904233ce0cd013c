// SPDX-License-Identifier: Apache-2.0
// Without these a signal could reach the wrong joint, or a target leave its limits.
#include <cmath>
#include <limits>

#include "onboard/runner.h"
#include "test/check.h"
#include "test/onboard_fakes.h"

namespace {

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::test::CountingBody;
using leapp_policy::test::FakeDeployment;
using leapp_policy::test::FakeDocument;
using leapp_policy::test::FakeOpen;
using leapp_policy::test::Floats;
using leapp_policy::test::Json;
using leapp_policy::test::One;

constexpr int64_t kTick = 10'000'000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Rig {
  Runner runner;
  float payload[4] = {0.4f, -0.2f, 0.0f, 0.0f};  // joints b, a; command; its age
  int64_t now = 1'000'000'000;
  uint64_t sequence = 0;

  explicit Rig(const Json& document = FakeDocument(), OpenSession open = FakeOpen(),
               bool auto_start = true)
      : runner(One(FakeDeployment(document)), open, auto_start) {}

  const StepOutput& Step(uint32_t control = 0, int64_t age = 0) {
    now += kTick;
    return runner.Step({now, {payload, ++sequence, now - age}, control, false});
  }
};

bool Near(float a, float b) { return std::fabs(a - b) < 1e-6f; }

void TestTimesFarApart() {
  Rig rig;
  rig.Step();
  rig.Step();
  // The distance of the two has no int64; the sender chose its own.
  const StepOutput& out = rig.runner.Step({rig.now, {rig.payload, 9, INT64_MIN}, 0, false});
  CHECK(out.state == State::kHold && out.cause.cause == Cause::kStaleSensor);
}

void TestOrderAndState() {
  Rig rig;
  CHECK(rig.Step().state == State::kArmed);
  const StepOutput& out = rig.Step();
  CHECK(out.state == State::kRunning && out.ran && out.send);
  // Policy order is a, b: a = payload[1]; sent order is b, a again.
  CHECK(Near(out.targets[0], 0.5f * 0.4f) && Near(out.targets[1], 0.5f * -0.2f));
  rig.Step();
  CHECK(Near(out.targets[0], 1.2f) && Near(out.action[1], 0.9f));  // the counter is 1
}

void TestClipScaleAndDt() {
  float seen[2] = {};
  Rig rig(FakeDocument(), FakeOpen([&](const auto& in, const auto& out) {
            seen[0] = *Floats(in[1]);
            seen[1] = *Floats(in[3]);
            return CountingBody(in, out);
          }));
  rig.payload[2] = -7.0f;
  rig.Step();
  CHECK(Near(seen[0], -2.0f) && Near(seen[1], 0.01f));
  rig.payload[2] = 3.0f;
  rig.Step();
  CHECK(Near(seen[0], 6.0f));
}

void TestResetAndKeep() {
  for (const bool keep : {false, true}) {
    Json document = FakeDocument();
    document["state"][0]["reset"] = keep ? "keep" : "initial";
    document["safety"]["recover_s"] = 0.0;
    Rig rig(document);
    rig.runner.Warm(5);
    rig.Step();
    for (int i = 0; i < 3; ++i) rig.Step();
    rig.payload[0] = kNan;
    CHECK(rig.Step().state == State::kHold);
    rig.payload[0] = 0.4f;
    const StepOutput& out = rig.Step();
    CHECK(out.state == State::kRunning && Near(out.action[0], keep ? 3.2f : 0.2f));
  }
}

void ExpectProblem(Cause cause, int32_t signal, void (*damage)(Rig*), int64_t age = 0) {
  Rig rig;
  rig.Step();
  rig.Step();
  damage(&rig);
  const StepOutput& out = rig.Step(0, age);
  CHECK(out.state == State::kHold && out.cause.cause == cause && out.cause.signal == signal);
  CHECK(!out.ran && out.send && Near(out.targets[0], 0.2f));  // the last targets are held
}

void TestProblems() {
  ExpectProblem(Cause::kNotFiniteSensor, 0, [](Rig* rig) { rig->payload[1] = kNan; });
  ExpectProblem(Cause::kNotFiniteSensor, 0, [](Rig* rig) { rig->payload[0] = INFINITY; });
  // Policy element 0 is payload element 1: only that one has an upper bound.
  ExpectProblem(Cause::kOutOfRange, 0, [](Rig* rig) { rig->payload[1] = 3.1f; });
  ExpectProblem(Cause::kOutOfRange, 0, [](Rig* rig) { rig->payload[0] = -3.1f; });
  ExpectProblem(Cause::kStaleSensor, 0, [](Rig*) {}, 100'000'001);
  ExpectProblem(Cause::kStaleSensor, 0, [](Rig*) {}, -51'000'000);
  ExpectProblem(Cause::kStaleCommand, 1, [](Rig* rig) { rig->payload[3] = 0.51f; });
  ExpectProblem(Cause::kStaleCommand, 1, [](Rig* rig) { rig->payload[3] = kNan; });
  Rig rig;
  rig.Step();
  rig.Step();
  rig.payload[0] = 3.1f;
  CHECK(rig.Step(0, 100'000'000).state == State::kRunning);
}

void TestNoSensors() {
  Rig rig;
  const StepOutput& out = rig.runner.Step({rig.now, {}, 0, false});
  CHECK(out.state == State::kInit && !out.send && out.refusal.cause == Cause::kNoSensors);
}

void TestStartEnvelope() {
  Rig rig;
  rig.payload[0] = 1.5f;
  const StepOutput& out = rig.Step();
  CHECK(out.state == State::kInit && out.refusal.cause == Cause::kOutsideEnvelope);
  rig.payload[0] = 1.0f;
  CHECK(rig.Step().state == State::kArmed);
}

void TestBadActions() {
  int runs = 0;
  Rig nan(FakeDocument(), FakeOpen([&](const auto& in, const auto& out) {
            const bool good = CountingBody(in, out);
            if (++runs > 3) Floats(out[0])[1] = kNan;
            return good;
          }));
  for (int i = 0; i < 3; ++i) nan.Step();
  const float before = nan.runner.Step({nan.now, {nan.payload, 9, nan.now}, 0, false}).targets[0];
  CHECK(nan.Step().state == State::kHold);
  const StepOutput& out = nan.Step();
  CHECK(out.cause.cause == Cause::kNotFiniteAction && out.targets[0] == before);
  runs = 0;
  Rig failing(FakeDocument(), FakeOpen([&](const auto& in, const auto& result) {
                return ++runs <= 2 && CountingBody(in, result);
              }));
  failing.Step();
  failing.Step();
  CHECK(failing.Step().cause.cause == Cause::kModelFailed);
  CHECK(std::string(failing.runner.error()) == "the fake failed");
}

void TestClampsAndRate() {
  Json document = FakeDocument();
  document["targets"]["max_rate"] = Json::array({50.0, nullptr});  // 0.5 a step
  Rig rig(document);
  rig.Step();
  float last = 0.4f;  // the measured pose
  for (int i = 0; i < 12; ++i) {
    const StepOutput& out = rig.Step();
    CHECK(out.targets[0] <= last + 0.5001f && out.targets[0] <= 2.0f);
    last = out.targets[0];
  }
  CHECK(Near(last, 2.0f));
  CHECK(rig.Step().targets[1] > 5.0f);  // no upper limit, no rate
}

void TestBlend() {
  Json document = FakeDocument();
  document["safety"]["blend_in_s"] = 0.1;
  Rig rig(document, FakeOpen([](const auto&, const auto& out) {
            Floats(out[0])[0] = Floats(out[0])[1] = 1.4f;
            *Floats(out[1]) = 0.0f;
            return true;
          }));
  const StepOutput& out = rig.Step();
  CHECK(Near(out.targets[0], 0.4f) && Near(out.targets[1], -0.2f));  // armed: the measured pose
  rig.Step();
  CHECK(Near(out.targets[0], 0.4f));  // begins where the robot is
  for (int i = 0; i < 5; ++i) rig.Step();
  CHECK(Near(out.targets[0], 0.9f));  // half way
  for (int i = 0; i < 5; ++i) rig.Step();
  CHECK(Near(out.targets[0], 1.4f));
}

void TestSwitch() {
  Json document = FakeDocument();
  document["safety"]["blend_in_s"] = 0.1;
  std::vector<Deployment> two = One(FakeDeployment(document));
  document["name"] = "other";
  two.push_back(FakeDeployment(document));
  const auto open = [](const Deployment& deployment, size_t model) {
    const float value = deployment.name == "other" ? -1.0f : 1.0f;
    return FakeOpen([value](const auto&, const auto& out) {
      Floats(out[0])[0] = Floats(out[0])[1] = value;
      *Floats(out[1]) = 0.0f;
      return true;
    })(deployment, model);
  };
  Runner runner(std::move(two), open, true);
  float payload[4] = {};
  int64_t now = kTick;
  float last = 0.0f, largest = 0.0f;
  StepOutput out;
  for (int i = 0; i < 60; ++i, now += kTick) {
    out = runner.Step({now, {payload, 1, now}, i == 30 ? kControlSwitch : 0u, false});
    if (i > 30) largest = std::max(largest, std::fabs(out.targets[0] - last));
    if (i == 29) CHECK(Near(out.targets[0], 1.0f) && out.policy == 0);
    if (i == 30) CHECK(Near(out.targets[0], 1.0f) && out.policy == 1);  // no bump
    last = out.targets[0];
  }
  CHECK(Near(last, -1.0f) && largest < 0.35f && out.state == State::kRunning);
  Rig alone;
  alone.Step();
  CHECK(alone.Step(kControlSwitch).refusal.cause == Cause::kNothingToSwitchTo);
}

void TestPairIsChecked() {
  Json other = FakeDocument();
  other["rate_hz"] = 200.0;
  std::vector<Deployment> two = One(FakeDeployment());
  two.push_back(FakeDeployment(other));
  CHECK_ERROR(LP_INVALID_ARGUMENT, "must have the same rate_hz",
              Runner(std::move(two), FakeOpen(), true));
}

}  // namespace

int main() {
  TestTimesFarApart();
  TestOrderAndState();
  TestClipScaleAndDt();
  TestResetAndKeep();
  TestProblems();
  TestNoSensors();
  TestStartEnvelope();
  TestBadActions();
  TestClampsAndRate();
  TestBlend();
  TestSwitch();
  TestPairIsChecked();
  return leapp_policy::test::Result();
}
