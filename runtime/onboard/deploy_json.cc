// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/error.h"
#include "onboard/deploy_sections.h"

namespace leapp_policy::onboard {
namespace {

constexpr double kSmallestRate = 0.001;
constexpr double kLargestRate = 20000.0;
constexpr size_t kMostDocumentBytes = 1u << 22;
constexpr int kMostLevels = 32;  // lists and objects inside of each other

void ReadHead(JsonReader* root, Deployment* out) {
  const uint64_t version = root->Count("version", 1'000'000);
  if (version != 1) {
    root->Refuse("version", "must be 1, got " + std::to_string(version));
  }
  out->name = root->Text("name");
  out->rate_hz = root->Number("rate_hz");
  if (out->rate_hz < kSmallestRate || out->rate_hz > kLargestRate) {
    root->Refuse("rate_hz", "must be from 0.001 to 20000");
  }
  out->period_ns = static_cast<int64_t>(std::llround(1e9 / out->rate_hz));
  out->device = root->TextOr("device", "cpu");
  out->sensor_floats = root->Count("sensor_floats", kMostSensorFloats);
  if (out->sensor_floats == 0) root->Refuse("sensor_floats", "must be at least 1, got 0");
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

// While the text is read: copying or printing a value takes a frame of the stack for each level.
bool CheckLevels(int depth, Json::parse_event_t, const Json&) {
  if (depth > kMostLevels) {
    throw Error(LP_BAD_METADATA, "'deploy.json' nests lists and objects more than " +
                                     std::to_string(kMostLevels) +
                                     " levels deep; pack the policy again.");
  }
  return true;
}

Json ReadText(const std::string& text) {
  if (text.size() > kMostDocumentBytes) {
    throw Error(LP_BAD_METADATA, "'deploy.json' must have at most " +
                                     std::to_string(kMostDocumentBytes) + " bytes, got " +
                                     std::to_string(text.size()) + "; pack the policy again.");
  }
  Json document = Json::parse(text, &CheckLevels, false);
  if (document.is_discarded()) {
    throw Error(LP_BAD_METADATA, "'deploy.json' is no JSON; pack the policy again.");
  }
  return document;
}

}  // namespace

std::string PathIn(const std::string& folder, const std::string& file) {
  return file.empty() || file[0] == '/' ? file : folder + "/" + file;
}

DeployText ParseDeployment(const std::string& text, const std::string& folder) {
  const Json document = ReadText(text);
  DeployText found;
  found.deployment.folder = folder;
  JsonReader root(document, "");
  ReadHead(&root, &found.deployment);
  ReadSignals(&root, &found.deployment);
  ReadTensors(&root, &found);
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
