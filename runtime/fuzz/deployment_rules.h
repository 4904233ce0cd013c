// SPDX-License-Identifier: Apache-2.0
//
// What the runner relies on and does not look at again: rules of a Deployment that abort.
#pragma once

#include <cmath>
#include <set>

#include "fuzz/fuzz.h"
#include "onboard/deploy_sections.h"

namespace leapp_policy::fuzz {

inline void ExpectOrder(const std::vector<uint32_t>& order, size_t dim, size_t limit,
                        const std::string& name) {
  Expect(order.size() == dim, "an order has an entry for each element", name);
  Expect(std::set<uint32_t>(order.begin(), order.end()).size() == dim, "an order repeats nothing",
         name);
  for (const uint32_t each : order) Expect(each < limit, "an order lies inside", name);
}

// An open side is infinite, and no other value is.
inline void ExpectSides(const std::vector<float>& low, const std::vector<float>& high, size_t dim,
                        const std::string& name) {
  Expect(low.size() == dim && high.size() == dim, "bounds have a value for each element", name);
  for (size_t i = 0; i < dim; ++i) {
    Expect(low[i] <= high[i], "low is at or below high", name);
    Expect(low[i] < INFINITY && high[i] > -INFINITY, "a bound is a number or open", name);
  }
}

inline void ExpectBounds(const onboard::Bounds& bounds, size_t dim, const std::string& name) {
  if (bounds.empty() && bounds.high.empty()) return;
  ExpectSides(bounds.low, bounds.high, dim, name);
}

inline void ExpectSignals(const onboard::Deployment& deployment) {
  std::set<std::string> names;
  size_t elements = 0;
  for (const onboard::SignalSpec& each : deployment.signals) {
    Expect(names.insert(each.name).second, "names of signals are unique", each.name);
    Expect(each.name.find('\0') == std::string::npos, "a name has no NUL");
    ExpectOrder(each.index, each.index.size(), deployment.sensor_floats, each.name);
    Expect(each.stale_after_ns >= 0, "an age is not negative", each.name);
    Expect(!each.age_index || *each.age_index < deployment.sensor_floats,
           "a signal's own age lies inside the payload", each.name);
    ExpectBounds(each.range, each.index.size(), each.name);
    ExpectBounds(each.start, each.index.size(), each.name);
    elements += each.index.size();
  }
  Expect(elements <= onboard::kMostSignalElements, "signals are bounded together");
}

inline void ExpectSame(const onboard::TensorSpec& taken, const onboard::TensorSpec& given) {
  Expect(taken.dtype == given.dtype && taken.bytes() == given.bytes(),
         "a tensor has the bytes of its source", taken.name);
}

inline const onboard::TensorSpec& OutputAt(const onboard::Deployment& deployment, size_t model,
                                           size_t output) {
  Expect(model < deployment.models.size(), "a model is one of the list");
  Expect(output < deployment.models[model].outputs.size(), "an output is one of its model");
  return deployment.models[model].outputs[output];
}

inline void ExpectParts(const onboard::Deployment& deployment, const onboard::InputSpec& input) {
  size_t elements = 0;
  for (const onboard::Part& part : input.parts) {
    Expect(part.signal < deployment.signals.size(), "a part's signal is one of the list");
    const size_t dim = deployment.signals[part.signal].index.size();
    ExpectBounds(part.clip, dim, "clip");
    Expect(part.scale.empty() || part.scale.size() == dim, "a scale has a value for each element");
    for (const float each : part.scale) Expect(std::isfinite(each), "a scale is finite");
    elements += dim;
  }
  Expect(input.tensor.dtype == DType::kFloat32 && input.tensor.elements() == elements,
         "the parts fill their input", input.tensor.name);
}

inline void ExpectInput(const onboard::Deployment& deployment, size_t model,
                        const onboard::InputSpec& input) {
  switch (input.kind) {
    case onboard::SourceKind::kSignal:
      return ExpectParts(deployment, input);
    case onboard::SourceKind::kState:
      Expect(input.state < deployment.states.size(), "a state is one of the list");
      return ExpectSame(input.tensor, deployment.states[input.state].tensor);
    case onboard::SourceKind::kModel:
      Expect(input.model < model, "an input takes from an earlier model", input.tensor.name);
      return ExpectSame(input.tensor, OutputAt(deployment, input.model, input.output));
    case onboard::SourceKind::kDt:
      Expect(input.tensor.dtype == DType::kFloat32 && input.tensor.elements() == 1,
             "the period is one number", input.tensor.name);
  }
}

// Returns the bytes that the runner will take for tensors.
inline uint64_t ExpectModels(const onboard::Deployment& deployment) {
  uint64_t bytes = 0;
  std::set<std::string> names;
  for (size_t m = 0; m < deployment.models.size(); ++m) {
    const onboard::ModelSpec& model = deployment.models[m];
    Expect(names.insert(model.name).second, "names of models are unique", model.name);
    std::set<std::string> inputs, outputs;
    for (const onboard::InputSpec& each : model.inputs) {
      Expect(inputs.insert(each.tensor.name).second, "names of inputs are unique");
      ExpectInput(deployment, m, each);
      bytes += each.tensor.bytes();
    }
    for (const onboard::TensorSpec& each : model.outputs) {
      Expect(outputs.insert(each.name).second, "names of outputs are unique", each.name);
      bytes += each.bytes();
    }
  }
  names.clear();
  for (const onboard::StateSpec& each : deployment.states) {
    Expect(names.insert(each.tensor.name).second, "names of states are unique", each.tensor.name);
    ExpectSame(each.tensor, OutputAt(deployment, each.model, each.output));
    bytes += 2 * each.tensor.bytes();
  }
  Expect(bytes <= onboard::kMostTensorBytes, "tensors are bounded together");
  return bytes;
}

inline void ExpectTargets(const onboard::Deployment& deployment) {
  const onboard::TargetSpec& targets = deployment.targets;
  const onboard::TensorSpec& tensor = OutputAt(deployment, targets.model, targets.output);
  Expect(tensor.dtype == DType::kFloat32, "targets are float32");
  Expect(targets.dim() > 0 && targets.dim() <= onboard::kMostSensorFloats, "targets fit a packet");
  ExpectOrder(targets.order, targets.dim(), tensor.elements(), "targets");
  ExpectSides(targets.lower, targets.upper, targets.dim(), "limits");
  Expect(targets.max_rate.size() == targets.dim(), "each target has a rate");
  for (const float each : targets.max_rate) Expect(each > 0.0f, "a rate is positive");
  if (targets.measured.empty()) {
    Expect(deployment.safety.blend_in_ns == 0, "what is not measured is not blended from");
  } else {
    ExpectOrder(targets.measured, targets.dim(), deployment.sensor_floats, "measured");
  }
}

// All of it; returns the bytes that the runner will take for tensors.
inline uint64_t ExpectDeployment(const onboard::DeployText& text) {
  const onboard::Deployment& deployment = text.deployment;
  const onboard::SafetySpec& safety = deployment.safety;
  Expect(deployment.rate_hz > 0.0, "the rate is positive");
  Expect(deployment.period_ns >= 50'000 && deployment.period_ns <= 1'000'000'000'000,
         "the period is positive and bounded", std::to_string(deployment.period_ns));
  Expect(deployment.sensor_floats > 0 && deployment.sensor_floats <= onboard::kMostSensorFloats,
         "the payload fits a packet");
  Expect(!deployment.models.empty() && !deployment.signals.empty(), "there is something to run");
  Expect(text.initials.size() == deployment.states.size(), "each state has a first value");
  Expect(text.needed.size() > deployment.models.size(), "models and libraries need digests");
  Expect(safety.blend_in_ns >= 0 && safety.hold_ns >= 0 && safety.damped_ns.value_or(0) >= 0 &&
             safety.recover_ns.value_or(0) >= 0,
         "no time is negative");
  ExpectSignals(deployment);
  ExpectTargets(deployment);
  return ExpectModels(deployment);
}

}  // namespace leapp_policy::fuzz
