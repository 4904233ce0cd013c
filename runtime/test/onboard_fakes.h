// SPDX-License-Identifier: Apache-2.0
//
// A small policy without ONNX Runtime for the tests of the onboard runner.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "onboard/runner.h"

namespace leapp_policy::test {

using Json = nlohmann::json;

// Four floats of payload: two joints (robot order b, a), a command, its age. One model with a
// counter as state: action = 0.5 * joints + counter, counter + 1.
inline Json FakeDocument() {
  return Json::parse(R"({
    "version": 1, "name": "fake", "rate_hz": 100.0, "sensor_floats": 4,
    "models": [{"name": "net", "file": "net.onnx",
      "inputs": [
        {"name": "q", "shape": [1, 2], "source": {"kind": "signal", "name": "joints"}},
        {"name": "c", "shape": [1, 1], "source": {"kind": "signal", "parts": [
          {"name": "command", "clip": [-1, null], "scale": 2.0}]}},
        {"name": "n", "shape": [1], "source": {"kind": "state", "name": "n"}},
        {"name": "dt", "shape": [1], "source": {"kind": "dt"}}],
      "outputs": [{"name": "action", "shape": [1, 2]}, {"name": "n_next", "shape": [1]}]}],
    "state": [{"name": "n", "shape": [1], "next": {"model": "net", "output": "n_next"},
               "initial": {"file": "initial.bin", "offset": 4}}],
    "signals": [
      {"name": "joints", "dim": 2, "offset": 0, "permutation": [1, 0], "unit": "rad",
       "stale_after_s": 0.1, "range": [-3, [3, null]]},
      {"name": "command", "role": "command", "dim": 1, "offset": 2, "age_offset": 3,
       "stale_after_s": 0.5}],
    "targets": {"model": "net", "output": "action", "dim": 2, "permutation": [1, 0],
                "lower": -2, "upper": [2, null], "max_rate": null, "measured": {"offset": 0}},
    "start_envelope": {"joints": [-1, 1]},
    "safety": {"blend_in_s": 0, "hold_s": 0.2, "damped_s": 0.3},
    "libraries": {"onnxruntime": "lib.so"},
    "digests": {"net.onnx": "00"}})");
}

inline onboard::Deployment FakeDeployment(const Json& document = FakeDocument()) {
  onboard::Deployment found = onboard::ParseDeployment(document.dump(), "folder").deployment;
  for (onboard::StateSpec& each : found.states) each.initial.assign(each.tensor.bytes(), 0);
  found.digest = std::string(64, 'd');
  return found;
}

// What a fake model does with its buffers, by the order of deploy.json; false: it fails.
using FakeBody = std::function<bool(const std::vector<void*>&, const std::vector<void*>&)>;

class FakeSession : public onboard::ModelSession {
 public:
  FakeSession(const onboard::ModelSpec& model, FakeBody body) : body_(std::move(body)) {
    for (const onboard::InputSpec& each : model.inputs) inputs_.push_back(each.tensor);
    outputs_ = model.outputs;
  }
  const std::vector<onboard::TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<onboard::TensorSpec>& outputs() const override { return outputs_; }
  void Bind(int parity, const std::vector<void*>& inputs,
            const std::vector<void*>& outputs) override {
    sets_[parity] = {inputs, outputs};
  }
  bool Run(int parity) noexcept override {
    return body_(sets_[parity].first, sets_[parity].second);
  }
  const char* error() const noexcept override { return "the fake failed"; }

 private:
  std::vector<onboard::TensorSpec> inputs_, outputs_;
  FakeBody body_;
  std::pair<std::vector<void*>, std::vector<void*>> sets_[2];
};

inline float* Floats(void* memory) { return static_cast<float*>(memory); }

inline bool CountingBody(const std::vector<void*>& in, const std::vector<void*>& out) {
  const float n = *Floats(in[2]);
  for (int i = 0; i < 2; ++i) Floats(out[0])[i] = 0.5f * Floats(in[0])[i] + n;
  *Floats(out[1]) = n + 1.0f;
  return true;
}

inline onboard::OpenSession FakeOpen(FakeBody body = &CountingBody) {
  return [body](const onboard::Deployment& deployment, size_t model) {
    return std::make_unique<FakeSession>(deployment.models[model], body);
  };
}

inline std::vector<onboard::Deployment> One(onboard::Deployment deployment) {
  std::vector<onboard::Deployment> list;
  list.push_back(std::move(deployment));
  return list;
}

}  // namespace leapp_policy::test
