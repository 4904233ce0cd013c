// SPDX-License-Identifier: Apache-2.0
#include "onboard/deploy_sections.h"

namespace leapp_policy::onboard {

void ReadSignals(JsonReader* root, Deployment* out) {
  uint64_t elements = 0;
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
    elements += dim;
    if (elements > kMostSignalElements) {
      root->Refuse("signals",
                   "have more than " + std::to_string(kMostSignalElements) + " elements together");
    }
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

}  // namespace leapp_policy::onboard
