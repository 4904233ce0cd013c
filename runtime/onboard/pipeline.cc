// SPDX-License-Identifier: Apache-2.0
#include "onboard/pipeline.h"

#include <cstring>
#include <map>
#include <utility>

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

}  // namespace

Pipeline::Pipeline(const Deployment& deployment,
                   std::vector<std::unique_ptr<ModelSession>> sessions,
                   const MakeMemory& make_memory)
    : deployment_(deployment), sessions_(std::move(sessions)) {
  for (size_t m = 0; m < sessions_.size(); ++m) {
    const ModelSpec& model = deployment.models[m];
    std::vector<TensorSpec> inputs;
    for (const InputSpec& each : model.inputs) inputs.push_back(each.tensor);
    CheckPorts(model.name, "input", inputs, sessions_[m]->inputs());
    CheckPorts(model.name, "output", model.outputs, sessions_[m]->outputs());
  }
  PlaceInputs();
  PlaceOutputs();
  PlaceStates();
  memory_ = make_memory(deployment.device, reserved_);
  for (size_t m = 0; m < sessions_.size(); ++m) {
    const std::vector<InputSpec>& inputs = deployment.models[m].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind != SourceKind::kDt) continue;
      *Host(inputs_[m][i], 0) = static_cast<float>(1.0 / deployment.rate_hz);
    }
  }
  BindAll();
  Reset(true);
}

size_t Pipeline::Reserve(size_t bytes) {
  const size_t at = reserved_;
  reserved_ += (bytes / kAlignment + 1) * kAlignment;
  return at;
}

void Pipeline::PlaceInputs() {
  for (const ModelSpec& model : deployment_.models) {
    std::vector<Place>& places = inputs_.emplace_back(model.inputs.size());
    for (size_t i = 0; i < model.inputs.size(); ++i) {
      const InputSpec& input = model.inputs[i];
      if (input.kind != SourceKind::kSignal && input.kind != SourceKind::kDt) continue;
      const size_t at = Reserve(input.tensor.bytes());
      places[i] = {{at, at}};
    }
  }
  sent_ = reserved_;
}

void Pipeline::PlaceOutputs() {
  for (const ModelSpec& model : deployment_.models) {
    std::vector<Place>& places = outputs_.emplace_back();
    for (const TensorSpec& each : model.outputs) {
      const size_t at = Reserve(each.bytes());
      places.push_back({{at, at}});
    }
  }
}

// The output that a state comes from writes it where the next step reads it.
void Pipeline::PlaceStates() {
  std::map<std::pair<size_t, size_t>, Place> taken;
  for (const StateSpec& state : deployment_.states) {
    const size_t bytes = state.tensor.bytes();
    const Place place{{Reserve(bytes), Reserve(bytes)}};
    states_.push_back(place);
    keeps_state_ = keeps_state_ || state.keep;
    const auto [first, is_new] = taken.emplace(std::pair(state.model, state.output), place);
    if (is_new) {
      outputs_[state.model][state.output] = place;
    } else {
      copies_.push_back({first->second, place, bytes});
    }
  }
}

const Pipeline::Place& Pipeline::InputPlace(size_t model, size_t input) const {
  const InputSpec& spec = deployment_.models[model].inputs[input];
  if (spec.kind == SourceKind::kState) return states_[spec.state];
  if (spec.kind == SourceKind::kModel) return outputs_[spec.model][spec.output];
  return inputs_[model][input];
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
        const size_t at = InputPlace(m, i).side[is_new ? 1 - parity : parity];
        inputs.push_back(memory_->model() + at);
      }
      for (const TensorSpec& port : sessions_[m]->outputs()) {
        size_t i = 0;
        while (model.outputs[i].name != port.name) ++i;
        outputs.push_back(memory_->model() + outputs_[m][i].side[1 - parity]);
      }
      sessions_[m]->Bind(parity, inputs, outputs);
    }
  }
}

std::vector<std::string> Pipeline::notes() const {
  std::vector<std::string> found;
  for (const auto& session : sessions_) {
    std::string note = session->note();
    if (!note.empty()) found.push_back(std::move(note));
  }
  return found;
}

const float* Pipeline::targets() const noexcept {
  // Run() has swapped the sides: what was new is now the side that the next step reads.
  return Host(outputs_[deployment_.targets.model][deployment_.targets.output], parity_);
}

bool Pipeline::Fail(const char* reason) noexcept {
  error_ = reason;
  return false;
}

bool Pipeline::Run() noexcept {
  if (is_stuck_) return false;
  if (!memory_->ToModel(0, sent_)) return Fail(memory_->error());
  for (auto& session : sessions_) {
    if (!session->Run(parity_)) return Fail(session->error());
  }
  const int next = 1 - parity_;
  for (const Copy& each : copies_) {
    if (!memory_->Copy(each.to.side[next], each.from.side[next], each.bytes)) {
      return Fail(memory_->error());
    }
  }
  const TargetSpec& targets = deployment_.targets;
  const size_t bytes = deployment_.models[targets.model].outputs[targets.output].bytes();
  if (!memory_->ToHost(outputs_[targets.model][targets.output].side[next], bytes)) {
    return Fail(memory_->error());
  }
  parity_ = next;
  return true;
}

void Pipeline::Reset(bool all) noexcept {
  for (size_t s = 0; s < states_.size(); ++s) {
    const StateSpec& state = deployment_.states[s];
    if (state.keep && !all) continue;
    const size_t at = states_[s].side[parity_];
    std::memcpy(memory_->host() + at, state.initial.data(), state.initial.size());
    if (memory_->ToModel(at, state.initial.size())) continue;
    is_stuck_ = !Fail(memory_->error());
  }
}

}  // namespace leapp_policy::onboard
