// SPDX-License-Identifier: Apache-2.0
#include "onboard/pipeline.h"

#include <cstring>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

std::string Describe(const TensorSpec& spec) {
  std::string text = std::string(DTypeName(spec.dtype)) + " [";
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(spec.shape[i]);
  }
  return text + "]";
}

const TensorSpec* Named(const std::vector<TensorSpec>& specs, const std::string& name) {
  for (const TensorSpec& each : specs) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

void CheckPorts(const std::string& model, const std::string& side,
                const std::vector<TensorSpec>& said, const std::vector<TensorSpec>& real) {
  for (const TensorSpec& each : real) {
    const TensorSpec* found = Named(said, each.name);
    if (found == nullptr || found->dtype != each.dtype || found->shape != each.shape) {
      throw Error(LP_BAD_METADATA, "Model '" + model + "' has " + side + " '" + each.name + "' " +
                                       Describe(each) + ", deploy.json says " +
                                       (found == nullptr ? "nothing" : Describe(*found)) +
                                       "; pack the policy again.");
    }
  }
  for (const TensorSpec& each : said) {
    if (Named(real, each.name) == nullptr) {
      throw Error(LP_BAD_METADATA, "Model '" + model + "' has no " + side + " '" + each.name +
                                       "' that deploy.json names; pack the policy again.");
    }
  }
}

void Allocate(std::vector<uint64_t>* memory, size_t bytes) {
  memory->assign(bytes / sizeof(uint64_t) + 1, 0);
}

}  // namespace

Pipeline::Pipeline(const Deployment& deployment,
                   std::vector<std::unique_ptr<ModelSession>> sessions)
    : deployment_(deployment), sessions_(std::move(sessions)) {
  for (size_t m = 0; m < sessions_.size(); ++m) {
    const ModelSpec& model = deployment.models[m];
    std::vector<TensorSpec> inputs;
    for (const InputSpec& each : model.inputs) inputs.push_back(each.tensor);
    CheckPorts(model.name, "input", inputs, sessions_[m]->inputs());
    CheckPorts(model.name, "output", model.outputs, sessions_[m]->outputs());
  }
  MakeBuffers();
  BindAll();
  Reset(true);
}

void Pipeline::MakeBuffers() {
  const size_t count = deployment_.models.size();
  inputs_.resize(count);
  outputs_.resize(count);
  output_of_.resize(count);
  states_.resize(deployment_.states.size());
  for (size_t m = 0; m < count; ++m) {
    const ModelSpec& model = deployment_.models[m];
    inputs_[m].resize(model.inputs.size());
    outputs_[m].resize(model.outputs.size());
    for (size_t i = 0; i < model.inputs.size(); ++i) {
      Allocate(&inputs_[m][i].memory[0], model.inputs[i].tensor.bytes());
      if (model.inputs[i].kind == SourceKind::kDt) {
        *inputs_[m][i].As<float>(0) = static_cast<float>(1.0 / deployment_.rate_hz);
      }
    }
    for (size_t i = 0; i < model.outputs.size(); ++i) {
      Allocate(&outputs_[m][i].memory[0], model.outputs[i].bytes());
      output_of_[m].push_back(&outputs_[m][i]);
    }
  }
  for (size_t s = 0; s < states_.size(); ++s) {
    const StateSpec& state = deployment_.states[s];
    for (auto& memory : states_[s].memory) Allocate(&memory, state.tensor.bytes());
    keeps_state_ = keeps_state_ || state.keep;
    Buffer*& target = output_of_[state.model][state.output];
    if (target == &outputs_[state.model][state.output]) {
      target = &states_[s];
    } else {
      copies_.push_back({target, &states_[s], state.tensor.bytes()});
    }
  }
}

Pipeline::Buffer* Pipeline::InputBuffer(size_t model, size_t input) {
  const InputSpec& spec = deployment_.models[model].inputs[input];
  if (spec.kind == SourceKind::kState) return &states_[spec.state];
  if (spec.kind == SourceKind::kModel) return output_of_[spec.model][spec.output];
  return &inputs_[model][input];
}

void Pipeline::BindAll() {
  for (size_t m = 0; m < sessions_.size(); ++m) {
    const ModelSpec& model = deployment_.models[m];
    for (int parity = 0; parity < 2; ++parity) {
      std::vector<void*> inputs, outputs;
      for (const TensorSpec& port : sessions_[m]->inputs()) {
        size_t i = 0;
        while (model.inputs[i].tensor.name != port.name) ++i;
        // Within a step a state's new value is on the other side than its old one.
        const bool is_new = model.inputs[i].kind == SourceKind::kModel;
        inputs.push_back(InputBuffer(m, i)->As<void>(is_new ? 1 - parity : parity));
      }
      for (const TensorSpec& port : sessions_[m]->outputs()) {
        size_t i = 0;
        while (model.outputs[i].name != port.name) ++i;
        outputs.push_back(output_of_[m][i]->As<void>(1 - parity));
      }
      sessions_[m]->Bind(parity, inputs, outputs);
    }
  }
}

const float* Pipeline::targets() const noexcept {
  // Run() has swapped the sides: what was new is now the side that the next step reads.
  return output_of_[deployment_.targets.model][deployment_.targets.output]->As<float>(parity_);
}

bool Pipeline::Run() noexcept {
  for (auto& session : sessions_) {
    if (session->Run(parity_)) continue;
    error_ = session->error();
    return false;
  }
  parity_ = 1 - parity_;
  for (const Copy& each : copies_) {
    std::memcpy(each.to->As<void>(parity_), each.from->As<void>(parity_), each.bytes);
  }
  return true;
}

void Pipeline::Reset(bool all) noexcept {
  for (size_t s = 0; s < states_.size(); ++s) {
    const StateSpec& state = deployment_.states[s];
    if (state.keep && !all) continue;
    std::memcpy(states_[s].As<void>(parity_), state.initial.data(), state.initial.size());
  }
}

}  // namespace leapp_policy::onboard
