// SPDX-License-Identifier: Apache-2.0
//
// The sections of deploy.json. ParseDeployment() reads them in this order, because each names what
// the ones before it have. All throw Error with a sentence that names the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onboard/deployment.h"
#include "onboard/json_reader.h"

namespace leapp_policy::onboard {

// Bounds that keep a small document from asking for much memory or time (docs/onboard-formats.md).
constexpr uint64_t kMostSensorFloats = 16000;       // a UDP datagram holds no more
constexpr uint64_t kMostSignalElements = 1u << 18;  // of all signals, which may overlap
constexpr uint64_t kMostElements = 1u << 24;        // of a tensor
constexpr uint64_t kMostTensorBytes = 1u << 29;     // of all tensors, those of state twice

// "signals" and "start_envelope": deploy_signals.cc.
void ReadSignals(JsonReader* root, Deployment* out);

// "state" and "models": deploy_models.cc.
void ReadTensors(JsonReader* root, DeployText* text);

// "targets" and "safety": deploy_targets.cc.
void ReadTargets(JsonReader* root, Deployment* out);
void ReadSafety(JsonReader* root, Deployment* out);

// Where an output is named by "model" and "output".
void FindOutput(JsonReader* reader, const std::vector<ModelSpec>& models, size_t* model,
                size_t* output);

// A path of deploy.json, which is relative to the folder or absolute.
std::string PathIn(const std::string& folder, const std::string& file);

// The place of the item that is called `wanted`; `name` gives an item's name.
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

}  // namespace leapp_policy::onboard
