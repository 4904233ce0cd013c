// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "onboard/deployment.h"
#include "onboard/json_reader.h"

namespace leapp_policy::onboard {
namespace {

constexpr uint64_t kMostElements = 1u << 24;
constexpr uint64_t kMostSensorFloats = 16000;  // a UDP datagram holds no more
constexpr double kLargestRate = 20000.0;

template <typename Items, typename Name>
size_t IndexOf(const Items& items, const std::string& wanted, Name&& name, const JsonReader& reader,
               const std::string& key) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (name(items[i]) == wanted) return i;
  }
  std::string known;
  for (const auto& each : items) known += (known.empty() ? "'" : ", '") + name(each) + "'";
  reader.Refuse(key, "names '" + wanted + "', which is none of " +
                         (known.empty() ? std::string("the entries: there are none") : known));
}

std::string PathIn(const std::string& folder, const std::string& file) {
  return file.empty() || file[0] == '/' ? file : folder + "/" + file;
}

TensorSpec ReadTensor(JsonReader* reader) {
  TensorSpec spec;
  spec.name = reader->Text("name");
  const std::string dtype = reader->TextOr("dtype", "float32");
  const std::optional<DType> known = ParseDType(dtype);
  if (!known) reader->Refuse("dtype", "must be one of " + DTypeNames() + ", got '" + dtype + "'");
  spec.dtype = *known;
  const Json& shape = reader->Need("shape");
  uint64_t elements = 1;
  for (const Json& each : shape) {
    if (!shape.is_array() || !each.is_number_unsigned() || each.get<uint64_t>() > kMostElements) {
      reader->Refuse("shape", "must be a list of sizes, got " + shape.dump());
    }
    spec.shape.push_back(each.get<int64_t>());
    elements *= each.get<uint64_t>();
    if (elements > kMostElements) reader->Refuse("shape", "has too many elements");
  }
  return spec;
}

std::vector<Part> ReadParts(JsonReader* source, const std::vector<SignalSpec>& signals) {
  std::vector<Part> parts;
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

// Where an output is named by "model" and "output".
void FindOutput(JsonReader* reader, const std::vector<ModelSpec>& models, size_t* model,
                size_t* output) {
  *model = IndexOf(
      models, reader->Text("model"), [](const ModelSpec& each) { return each.name; }, *reader,
      "model");
  *output = IndexOf(
      models[*model].outputs, reader->Text("output"),
      [](const TensorSpec& each) { return each.name; }, *reader, "output");
}

InputSpec ReadInput(JsonReader* reader, const Deployment& so_far) {
  InputSpec input;
  input.tensor = ReadTensor(reader);
  JsonReader source = reader->Object("source");
  const std::string kind = source.Text("kind");
  if (kind == "signal") {
    input.parts = ReadParts(&source, so_far.signals);
    size_t elements = 0;
    for (const Part& each : input.parts) elements += so_far.signals[each.signal].index.size();
    CheckSize(*reader, input, elements);
  } else if (kind == "state") {
    input.kind = SourceKind::kState;
    input.state = IndexOf(
        so_far.states, source.Text("name"), [](const StateSpec& each) { return each.tensor.name; },
        source, "name");
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

void ReadSignals(JsonReader* root, Deployment* out) {
  root->Each("signals", true, [&](JsonReader* reader) {
    SignalSpec signal;
    signal.name = reader->Text("name");
    signal.unit = reader->TextOr("unit", "");
    const std::string role = reader->TextOr("role", "sensor");
    if (role != "sensor" && role != "command") {
      reader->Refuse("role", "must be sensor or command, got '" + role + "'");
    }
    signal.is_command = role == "command";
    const size_t dim = reader->Count("dim", out->sensor_floats);
    const uint64_t offset = reader->Count("offset", out->sensor_floats);
    signal.index = reader->Order("permutation", dim, out->sensor_floats - offset);
    for (uint32_t& each : signal.index) each += static_cast<uint32_t>(offset);
    reader->Need("stale_after_s");
    signal.stale_after_ns = reader->Nanoseconds("stale_after_s", 0.0);
    if (reader->Find("age_offset") != nullptr) {
      signal.age_index = static_cast<uint32_t>(reader->Count("age_offset", out->sensor_floats - 1));
    }
    signal.range = reader->ReadBounds("range", dim);
    for (const SignalSpec& each : out->signals) {
      if (each.name == signal.name) reader->Refuse("name", "'" + signal.name + "' is there twice");
    }
    out->signals.push_back(std::move(signal));
  });
  if (root->Find("start_envelope") == nullptr) return;
  JsonReader start = root->Object("start_envelope");
  for (SignalSpec& each : out->signals) each.start = start.ReadBounds(each.name, each.index.size());
  start.Done();
}

void ReadModels(JsonReader* root, DeployText* text) {
  Deployment& out = text->deployment;
  root->Each("models", true, [&](JsonReader* reader) {
    ModelSpec model;
    model.name = reader->Text("name");
    const std::string file = reader->Text("file");
    text->needed.push_back(file);
    model.file = PathIn(out.folder, file);
    reader->Each("inputs", false,
                 [&](JsonReader* each) { model.inputs.push_back(ReadInput(each, out)); });
    reader->Each("outputs", true,
                 [&](JsonReader* each) { model.outputs.push_back(ReadTensor(each)); });
    for (const ModelSpec& each : out.models) {
      if (each.name == model.name) reader->Refuse("name", "'" + model.name + "' is there twice");
    }
    out.models.push_back(std::move(model));
  });
}

// Before the models, which name the states; where their next values come from is read after them.
void ReadStates(JsonReader* root, DeployText* text) {
  root->Each("state", false, [&](JsonReader* reader) {
    StateSpec state;
    state.tensor = ReadTensor(reader);
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

void ReadTargets(JsonReader* root, Deployment* out) {
  constexpr float kOpen = std::numeric_limits<float>::infinity();
  JsonReader reader = root->Object("targets");
  TargetSpec& targets = out->targets;
  FindOutput(&reader, out->models, &targets.model, &targets.output);
  const TensorSpec& tensor = out->models[targets.model].outputs[targets.output];
  if (tensor.dtype != DType::kFloat32) reader.Refuse("output", "must be float32");
  const size_t dim = reader.Count("dim", std::min<uint64_t>(tensor.elements(), kMostSensorFloats));
  if (dim == 0) reader.Refuse("dim", "must be at least 1, got 0");
  targets.unit = reader.TextOr("unit", "");
  targets.order = reader.Order("permutation", dim, tensor.elements());
  targets.lower = reader.Numbers("lower", dim, -kOpen);
  targets.upper = reader.Numbers("upper", dim, kOpen);
  targets.max_rate = reader.Numbers("max_rate", dim, kOpen);
  for (size_t i = 0; i < dim; ++i) {
    if (!(targets.lower[i] <= targets.upper[i])) reader.Refuse("lower", "must not exceed upper");
    if (!(targets.max_rate[i] > 0.0f)) reader.Refuse("max_rate", "must be positive");
  }
  if (reader.Find("measured") != nullptr) {
    JsonReader measured = reader.Object("measured");
    const uint64_t offset = measured.Count("offset", out->sensor_floats);
    targets.measured = measured.Order("permutation", dim, out->sensor_floats - offset);
    for (uint32_t& each : targets.measured) each += static_cast<uint32_t>(offset);
    measured.Done();
  }
  reader.Done();
}

template <typename Choice>
Choice ReadChoice(JsonReader* reader, const std::string& key, Choice fallback,
                  const std::vector<std::pair<std::string, Choice>>& choices) {
  const std::string text = reader->TextOr(key, "");
  if (reader->Find(key) == nullptr) return fallback;
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  reader->Refuse(key, "must be one of " + names + ", got '" + text + "'");
}

void ReadSafety(JsonReader* root, Deployment* out) {
  SafetySpec& safety = out->safety;
  const Json empty = Json::object();
  const Json* found = root->Find("safety");
  JsonReader reader(found == nullptr ? empty : *found, "safety");
  safety.blend_in_ns = reader.Nanoseconds("blend_in_s", 0.5);
  safety.hold_ns = reader.Nanoseconds("hold_s", 0.5);
  // null is a choice here, not the default.
  const bool for_ever =
      found != nullptr && found->contains("damped_s") && (*found)["damped_s"].is_null();
  safety.damped_ns = reader.Nanoseconds("damped_s", 2.0);
  if (for_ever) safety.damped_ns.reset();
  if (reader.Find("recover_s") != nullptr) safety.recover_ns = reader.Nanoseconds("recover_s", 0.0);
  safety.on_range = ReadChoice<RangePolicy>(
      &reader, "on_range", RangePolicy::kHold,
      {{"off", RangePolicy::kOff}, {"hold", RangePolicy::kHold}, {"fault", RangePolicy::kFault}});
  safety.on_miss = ReadChoice<MissPolicy>(&reader, "deadline_miss", MissPolicy::kContinue,
                                          {{"continue", MissPolicy::kContinue},
                                           {"hold", MissPolicy::kHold},
                                           {"fault", MissPolicy::kFault}});
  safety.max_misses = static_cast<uint32_t>(reader.CountOr("max_misses", 1'000'000, 3));
  reader.Done();
  if (out->targets.measured.empty() && safety.blend_in_ns != 0) {
    reader.Refuse("blend_in_s",
                  "must be 0 without 'targets.measured': there is no pose to begin at");
  }
}

void ReadLibraries(JsonReader* root, DeployText* text) {
  JsonReader reader = root->Object("libraries");
  const std::string ort = reader.Text("onnxruntime");
  const std::string op = reader.TextOr("operator", "");
  const std::string warp = reader.TextOr("warp_dir", "");
  reader.Done();
  Deployment& out = text->deployment;
  out.libraries = {PathIn(out.folder, ort), PathIn(out.folder, op), PathIn(out.folder, warp)};
  text->needed.push_back(ort);
  if (!op.empty()) text->needed.push_back(op);
  if (!warp.empty()) {
    text->needed.push_back(warp + "/warp.so");
    text->needed.push_back(warp + "/warp-clang.so");
  }
}

void ReadHead(JsonReader* root, Deployment* out) {
  const uint64_t version = root->Count("version", 1'000'000);
  if (version != 1) {
    root->Refuse("version", "must be 1, got " + std::to_string(version));
  }
  out->name = root->Text("name");
  out->rate_hz = root->Number("rate_hz");
  if (!(out->rate_hz > 0.0) || out->rate_hz > kLargestRate) {
    root->Refuse("rate_hz", "must be above 0 and at most 20000");
  }
  out->period_ns = static_cast<int64_t>(std::llround(1e9 / out->rate_hz));
  out->device = root->TextOr("device", "cpu");
  out->sensor_floats = root->Count("sensor_floats", kMostSensorFloats);
  if (out->sensor_floats == 0) root->Refuse("sensor_floats", "must be at least 1, got 0");
}

}  // namespace

size_t TensorSpec::elements() const {
  size_t count = 1;
  for (const int64_t each : shape) count *= static_cast<size_t>(each);
  return count;
}

DeployText ParseDeployment(const std::string& text, const std::string& folder) {
  const Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    throw Error(LP_BAD_METADATA, "'deploy.json' is no JSON; pack the policy again.");
  }
  DeployText found;
  found.deployment.folder = folder;
  JsonReader root(document, "");
  ReadHead(&root, &found.deployment);
  ReadSignals(&root, &found.deployment);
  ReadStates(&root, &found);
  ReadModels(&root, &found);
  ReadNext(&root, &found.deployment);
  ReadTargets(&root, &found.deployment);
  ReadSafety(&root, &found.deployment);
  ReadLibraries(&root, &found);
  const Json& digests = root.Need("digests");
  if (!digests.is_object()) root.Refuse("digests", "must be an object of file and SHA-256");
  JsonReader reader(digests, "digests");
  for (const auto& [file, value] : digests.items()) {
    found.digests.emplace_back(file, reader.Text(file));
  }
  root.Done();
  return found;
}

}  // namespace leapp_policy::onboard
