// SPDX-License-Identifier: Apache-2.0
// Without these a wrong deploy.json could drive a robot by a limit that nobody wrote.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/sha256.h"
#include "onboard/deployment.h"
#include "test/check.h"
#include "test/onboard_fakes.h"

namespace {

using leapp_policy::onboard::Deployment;
using leapp_policy::onboard::LoadDeployment;
using leapp_policy::onboard::ParseDeployment;
using leapp_policy::test::FakeDocument;
using leapp_policy::test::Json;

void Refuse(const std::string& pointer, const Json& value, const std::string& text) {
  Json document = FakeDocument();
  document[Json::json_pointer(pointer)] = value;
  CHECK_ERROR(LP_BAD_METADATA, text, ParseDeployment(document.dump(), "f"));
}

void Lacks(const char* parent, const char* key) {
  Json document = FakeDocument();
  document[Json::json_pointer(parent)].erase(key);
  CHECK_ERROR(LP_BAD_METADATA, "is missing", ParseDeployment(document.dump(), "f"));
}

void TestGood() {
  const Deployment d = ParseDeployment(FakeDocument().dump(), "f").deployment;
  CHECK(d.period_ns == 10'000'000 && d.device == "cpu" && d.models[0].file == "f/net.onnx");
  CHECK(d.signals[0].index == (std::vector<uint32_t>{1, 0}) && d.signals[1].age_index == 3u);
  CHECK(d.signals[0].range.low[1] == -3.0f && d.signals[0].range.high[0] == 3.0f);
  CHECK(d.signals[0].range.high[1] == std::numeric_limits<float>::infinity());
  CHECK(d.targets.upper[0] == 2.0f && d.targets.measured == (std::vector<uint32_t>{0, 1}));
  CHECK(d.safety.hold_ns == 200'000'000 && !d.safety.recover_ns);
  CHECK(ParseDeployment(FakeDocument().dump(), "f").initials[0].offset == 4);
  Json for_ever = FakeDocument();
  for_ever["safety"]["damped_s"] = nullptr;
  CHECK(!ParseDeployment(for_ever.dump(), "f").deployment.safety.damped_ns);
}

void TestRefusals() {
  CHECK_ERROR(LP_BAD_METADATA, "is no JSON", ParseDeployment("{", "f"));
  CHECK_ERROR(LP_BAD_METADATA, "must be an object", ParseDeployment("[]", "f"));
  Refuse("/version", 2, "'version' of deploy.json must be 1, got 2");
  Refuse("/typo", 1, "'typo' of deploy.json is no known key");
  Refuse(std::string("/ty\0po", 6), 1, "'ty?po' of deploy.json is no known key; a typo may hide");
  Refuse("/name", std::string("a\0b", 3), "without control characters, got \"a\\u0000b\"; pack");
  Refuse("/name", "", "must be a text, got \"\"");
  Refuse("/safety/blend_in", 1, "'safety.blend_in' of deploy.json is no known key");
  Refuse("/rate_hz", 0, "'rate_hz'");
  Refuse("/rate_hz", "50", "must be a number");
  Refuse("/sensor_floats", -1, "must be an integer");
  Refuse("/signals/0/permutation", {0, 4}, "below 4");
  Refuse("/signals/0/permutation", {1, 1}, "each element once");
  Refuse("/signals/0/permutation", {1}, "a list of 2 integers");
  Refuse("/signals/1/dim", 3, "reaches past the 2 elements");
  Refuse("/signals/1/name", "joints", "is there twice");
  Refuse("/signals/1/role", "commander", "must be sensor or command");
  Refuse("/signals/0/range", {1, -1}, "low at or below high");
  Refuse("/signals/0/stale_after_s", -1, "must be seconds");
  Refuse("/start_envelope/joint", {0, 1}, "'start_envelope.joint' of deploy.json is no known key");
  Refuse("/models/0/inputs/0/shape", {1, 3}, "has 3 elements, its source gives 2");
  Refuse("/models/0/inputs/0/shape", {1, "x"}, "must be a list of sizes");
  Refuse("/models/0/inputs/0/dtype", "int32", "must be float32 where a signal feeds it");
  Refuse("/models/0/inputs/0/dtype", "int33", "must be one of");
  Refuse("/models/0/inputs/0/source/name", "joint", "is none of 'joints', 'command'");
  Refuse("/models/0/inputs/0/source/kind", "sensor", "must be one of signal, state, model, dt");
  Refuse("/models/0/inputs/2/dtype", "int64", "its source 'n' gives 1 float32");
  Refuse("/state/0/next/output", "m", "is none of 'action', 'n_next'");
  Refuse("/state/0/next/output", "action", "its source 'action' gives 2");
  Refuse("/state/0/reset", "never", "must be initial or keep");
  Refuse("/targets/output", "x", "is none of");
  Refuse("/targets/dim", 3, "from 0 to 2");
  Refuse("/targets/lower", {0, 0, 0}, "must have 2 values, got 3");
  Refuse("/targets/lower", 9, "must not exceed upper");
  Refuse("/targets/max_rate", 0, "must be positive");
  Refuse("/safety/blend_in_s", -1, "must be seconds");
  Refuse("/safety/on_range", "stop", "must be one of off, hold, fault");
  Refuse("/safety/deadline_miss", "ignore", "must be one of continue, hold, fault");
  Refuse("/digests", Json::array(), "must be an object");
  Json no_pose = FakeDocument();
  no_pose["targets"]["measured"] = nullptr;
  ParseDeployment(no_pose.dump(), "f");
  no_pose["safety"]["blend_in_s"] = 0.1;
  CHECK_ERROR(LP_BAD_METADATA, "there is no pose to begin at",
              ParseDeployment(no_pose.dump(), "f"));
  Lacks("", "targets");
  Lacks("/signals/0", "stale_after_s");
  Lacks("/signals/0", "offset");
  Lacks("/models/0", "file");
  Lacks("/state/0", "next");
  Lacks("/libraries", "onnxruntime");
}

// Each of these would ask for memory, time or stack far beyond its own size, or send infinity.
void TestBounds() {
  Refuse("/targets/lower", 1e39, "must hold numbers of float32, got 1e+39");
  Refuse("/targets/upper", {-1e300, 0}, "must hold numbers of float32");
  Refuse("/models/0/inputs/1/source/parts/0/scale", -1e39, "must hold numbers of float32");
  Refuse("/rate_hz", 1e-300, "must be from 0.001 to 20000");
  Refuse("/models/0/outputs/1/shape", Json::object(), "must be a list of sizes, got {}");
  Json deep = 1;
  for (int i = 0; i < 40; ++i) deep = Json::array({deep});
  Refuse("/version", deep, "nests lists and objects more than 32 levels deep");
  const std::string deeper = "{\"version\": " + std::string(1 << 20, '[');
  CHECK_ERROR(LP_BAD_METADATA, "levels deep", ParseDeployment(deeper, "f"));
  CHECK_ERROR(LP_BAD_METADATA, "must have at most 4194304 bytes",
              ParseDeployment(std::string((1 << 22) + 1, ' '), "f"));

  Json outputs = FakeDocument()["models"][0]["outputs"];
  for (int i = 0; i < 10; ++i) {
    outputs.push_back({{"name", std::to_string(i)}, {"shape", {1 << 24}}});
  }
  Refuse("/models/0/outputs", outputs, "need 640 MiB for their inputs, outputs and state");
  Json signals = FakeDocument()["signals"];
  Json parts = Json::array();
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i);
    signals.push_back({{"name", name}, {"dim", 16000}, {"offset", 0}, {"stale_after_s", 1}});
    parts.push_back({{"name", "joints"}, {"scale", 2}});
  }
  Refuse("/models/0/inputs/0/source", {{"kind", "signal"}, {"parts", parts}},
         "have more than the 2 elements of the input that they fill");
  Json wide = FakeDocument();
  wide["sensor_floats"] = 16000;
  wide["signals"] = signals;
  CHECK_ERROR(LP_BAD_METADATA, "have more than 262144 elements together",
              ParseDeployment(wide.dump(), "f"));
}

// The second of two entries of one name would be left out without a word.
void TestNamesAreUnique() {
  for (const char* list : {"/models", "/models/0/inputs", "/models/0/outputs", "/state"}) {
    Json entries = FakeDocument()[Json::json_pointer(list)];
    entries.push_back(entries[0]);
    Refuse(list, entries, "is there twice");
  }
}

std::string Hex(const std::string& text) {
  return leapp_policy::Sha256Hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void TestDigests() {
  std::string folder = std::filesystem::temp_directory_path() / "leapp_onboard_XXXXXX";
  CHECK(::mkdtemp(&folder[0]) != nullptr);
  Json document = FakeDocument();
  const std::string initial("\0\0\0\0\0\0\x40\x40", 8);  // 0, 3
  Write(folder + "/net.onnx", "net");
  Write(folder + "/lib.so", "lib");
  Write(folder + "/initial.bin", initial);
  document["digests"] = {
      {"net.onnx", Hex("net")}, {"lib.so", Hex("lib")}, {"initial.bin", Hex(initial)}};
  const auto seal = [&](const Json& json) {
    Write(folder + "/deploy.json", json.dump());
    Write(folder + "/deploy.json.sha256", Hex(json.dump()) + "  deploy.json\n");
  };
  CHECK_ERROR(LP_INVALID_ARGUMENT, "cannot be read", LoadDeployment(folder));
  seal(document);
  const Deployment good = LoadDeployment(folder);
  CHECK(good.states[0].initial == (std::vector<uint8_t>{0, 0, 0x40, 0x40}));
  CHECK(good.digest == Hex(document.dump()));

  Write(folder + "/net.onnx", "other");
  CHECK_ERROR(LP_BAD_BUNDLE, "'net.onnx' does not belong to this deployment",
              LoadDeployment(folder));
  Write(folder + "/net.onnx", "net");
  Write(folder + "/deploy.json", document.dump() + " ");
  CHECK_ERROR(LP_BAD_BUNDLE, "'deploy.json' does not belong", LoadDeployment(folder));
  Json unlisted = document;
  unlisted["digests"].erase("lib.so");
  seal(unlisted);
  CHECK_ERROR(LP_BAD_METADATA, "lacks 'lib.so'", LoadDeployment(folder));
  Json beyond = document;
  beyond["state"][0]["initial"]["offset"] = 5;
  seal(beyond);
  CHECK_ERROR(LP_BAD_METADATA, "needs 4 bytes at 5", LoadDeployment(folder));
  std::remove((folder + "/initial.bin").c_str());
  CHECK_ERROR(LP_INVALID_ARGUMENT, "initial.bin' cannot be read", LoadDeployment(folder));
  for (const char* each : {"deploy.json", "deploy.json.sha256", "net.onnx", "lib.so"}) {
    std::remove((folder + "/" + each).c_str());
  }
  std::remove(folder.c_str());
}

}  // namespace

int main() {
  TestGood();
  TestRefusals();
  TestBounds();
  TestNamesAreUnique();
  TestDigests();
  return leapp_policy::test::Result();
}
