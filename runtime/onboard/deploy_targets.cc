// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "onboard/deploy_sections.h"

namespace leapp_policy::onboard {
namespace {

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

}  // namespace

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

}  // namespace leapp_policy::onboard
