// SPDX-License-Identifier: Apache-2.0
#include "onboard/deploy_sections.h"

namespace leapp_policy::onboard {
namespace {

TensorSpec ReadTensor(JsonReader* reader) {
  TensorSpec spec;
  spec.name = reader->Text("name");
  const std::string dtype = reader->TextOr("dtype", "float32");
  const std::optional<DType> known = ParseDType(dtype);
  if (!known) reader->Refuse("dtype", "must be one of " + DTypeNames() + ", got '" + dtype + "'");
  spec.dtype = *known;
  const Json& shape = reader->Need("shape");
  if (!shape.is_array()) reader->Refuse("shape", "must be a list of sizes, got " + Shown(shape));
  uint64_t elements = 1;
  for (const Json& each : shape) {
    if (!each.is_number_unsigned() || each.get<uint64_t>() > kMostElements) {
      reader->Refuse("shape", "must be a list of sizes, got " + Shown(shape));
    }
    spec.shape.push_back(each.get<int64_t>());
    elements *= each.get<uint64_t>();
    if (elements > kMostElements) reader->Refuse("shape", "has too many elements");
  }
  return spec;
}

// Refuses a second entry of one name.
template <typename Items, typename Name>
void ExpectNew(const JsonReader& reader, const std::string& wanted, const Items& items,
               Name&& name) {
  for (const auto& each : items) {
    if (name(each) == wanted) reader.Refuse("name", "'" + wanted + "' is there twice");
  }
}

const std::string& NameOfInput(const InputSpec& input) { return input.tensor.name; }
const std::string& NameOfOutput(const TensorSpec& output) { return output.name; }
const std::string& NameOfState(const StateSpec& state) { return state.tensor.name; }
const std::string& NameOfModel(const ModelSpec& model) { return model.name; }

// `most`: elements of the input that the parts fill one after the other.
std::vector<Part> ReadParts(JsonReader* source, const std::vector<SignalSpec>& signals,
                            size_t most) {
  std::vector<Part> parts;
  size_t elements = 0;
  const auto index = [&](const std::string& name, const JsonReader& reader) {
    return IndexOf(signals, name, [](const SignalSpec& each) { return each.name; }, reader, "name");
  };
  if (source->Find("parts") == nullptr) {
    Part part;
    part.signal = index(source->Text("name"), *source);
    return {part};
  }
  source->Each("parts", true, [&](JsonReader* reader) {
    Part part;
    part.signal = index(reader->Text("name"), *reader);
    const size_t dim = signals[part.signal].index.size();
    elements += dim;
    if (elements > most) {
      source->Refuse("parts", "have more than the " + std::to_string(most) +
                                  " elements of the input that they fill");
    }
    part.clip = reader->ReadBounds("clip", dim);
    if (reader->Find("scale") != nullptr) part.scale = reader->Numbers("scale", dim, 1.0f);
    parts.push_back(std::move(part));
  });
  return parts;
}

void CheckSize(const JsonReader& reader, const InputSpec& input, size_t elements) {
  if (input.tensor.dtype != DType::kFloat32) {
    reader.Refuse("dtype", std::string("must be float32 where a signal feeds it, got ") +
                               DTypeName(input.tensor.dtype));
  }
  if (input.tensor.elements() != elements) {
    reader.Refuse("shape", "has " + std::to_string(input.tensor.elements()) +
                               " elements, its source gives " + std::to_string(elements));
  }
}

void CheckSame(const JsonReader& reader, const TensorSpec& taken, const TensorSpec& given) {
  if (taken.dtype != given.dtype || taken.elements() != given.elements()) {
    reader.Refuse("shape", "is " + std::to_string(taken.elements()) + " " + DTypeName(taken.dtype) +
                               ", its source '" + given.name + "' gives " +
                               std::to_string(given.elements()) + " " + DTypeName(given.dtype));
  }
}

InputSpec ReadInput(JsonReader* reader, const Deployment& so_far) {
  InputSpec input;
  input.tensor = ReadTensor(reader);
  JsonReader source = reader->Object("source");
  const std::string kind = source.Text("kind");
  if (kind == "signal") {
    input.parts = ReadParts(&source, so_far.signals, input.tensor.elements());
    size_t elements = 0;
    for (const Part& each : input.parts) elements += so_far.signals[each.signal].index.size();
    CheckSize(*reader, input, elements);
  } else if (kind == "state") {
    input.kind = SourceKind::kState;
    input.state = IndexOf(so_far.states, source.Text("name"), &NameOfState, source, "name");
    CheckSame(*reader, input.tensor, so_far.states[input.state].tensor);
  } else if (kind == "model") {
    input.kind = SourceKind::kModel;
    FindOutput(&source, so_far.models, &input.model, &input.output);
    CheckSame(*reader, input.tensor, so_far.models[input.model].outputs[input.output]);
  } else if (kind == "dt") {
    input.kind = SourceKind::kDt;
    CheckSize(*reader, input, 1);
  } else {
    source.Refuse("kind", "must be one of signal, state, model, dt, got '" + kind + "'");
  }
  source.Done();
  return input;
}

// Before the models, which name the states; where their next values come from is read after them.
void ReadStates(JsonReader* root, DeployText* text) {
  root->Each("state", false, [&](JsonReader* reader) {
    StateSpec state;
    state.tensor = ReadTensor(reader);
    ExpectNew(*reader, state.tensor.name, text->deployment.states, &NameOfState);
    const std::string reset = reader->TextOr("reset", "initial");
    if (reset != "initial" && reset != "keep") {
      reader->Refuse("reset", "must be initial or keep, got '" + reset + "'");
    }
    state.keep = reset == "keep";
    JsonReader initial = reader->Object("initial");
    text->initials.push_back(
        {initial.Text("file"), initial.CountOr("offset", uint64_t{1} << 40, 0)});
    initial.Done();
    text->needed.push_back(text->initials.back().file);
    reader->Need("next");
    text->deployment.states.push_back(std::move(state));
  });
}

void ReadModels(JsonReader* root, DeployText* text) {
  Deployment& out = text->deployment;
  root->Each("models", true, [&](JsonReader* reader) {
    ModelSpec model;
    model.name = reader->Text("name");
    const std::string file = reader->Text("file");
    text->needed.push_back(file);
    model.file = PathIn(out.folder, file);
    reader->Each("inputs", false, [&](JsonReader* each) {
      InputSpec input = ReadInput(each, out);
      ExpectNew(*each, input.tensor.name, model.inputs, &NameOfInput);
      model.inputs.push_back(std::move(input));
    });
    reader->Each("outputs", true, [&](JsonReader* each) {
      TensorSpec output = ReadTensor(each);
      ExpectNew(*each, output.name, model.outputs, &NameOfOutput);
      model.outputs.push_back(std::move(output));
    });
    ExpectNew(*reader, model.name, out.models, &NameOfModel);
    out.models.push_back(std::move(model));
  });
}

void ReadNext(JsonReader* root, Deployment* out) {
  size_t index = 0;
  root->Each("state", false, [&](JsonReader* reader) {
    StateSpec& state = out->states[index++];
    for (const char* key : {"name", "dtype", "shape", "reset", "initial"}) reader->Find(key);
    JsonReader next = reader->Object("next");
    FindOutput(&next, out->models, &state.model, &state.output);
    next.Done();
    CheckSame(*reader, state.tensor, out->models[state.model].outputs[state.output]);
  });
}

// Held against the sum: each tensor by itself may be small.
void CheckMemory(const JsonReader& root, const Deployment& out) {
  uint64_t bytes = 0;
  for (const StateSpec& each : out.states) bytes += 2 * each.tensor.bytes();
  for (const ModelSpec& model : out.models) {
    for (const InputSpec& each : model.inputs) bytes += each.tensor.bytes();
    for (const TensorSpec& each : model.outputs) bytes += each.bytes();
  }
  if (bytes > kMostTensorBytes) {
    root.Refuse("models", "need " + std::to_string(bytes >> 20) +
                              " MiB for their inputs, outputs and state, at most " +
                              std::to_string(kMostTensorBytes >> 20) + " are given");
  }
}

}  // namespace

void ReadTensors(JsonReader* root, DeployText* text) {
  ReadStates(root, text);
  ReadModels(root, text);
  ReadNext(root, &text->deployment);
  CheckMemory(*root, text->deployment);
}

size_t TensorSpec::elements() const {
  size_t count = 1;
  for (const int64_t each : shape) count *= static_cast<size_t>(each);
  return count;
}

void FindOutput(JsonReader* reader, const std::vector<ModelSpec>& models, size_t* model,
                size_t* output) {
  *model = IndexOf(models, reader->Text("model"), &NameOfModel, *reader, "model");
  *output =
      IndexOf(models[*model].outputs, reader->Text("output"), &NameOfOutput, *reader, "output");
}

}  // namespace leapp_policy::onboard
