// SPDX-License-Identifier: Apache-2.0
// Without these a wrong manifest could size a copy wrongly or skip a check.
#include "core/metadata.h"

#include <nlohmann/json.hpp>

#include "test/check.h"

namespace {

using leapp_policy::Metadata;
using leapp_policy::ParseMetadata;
using Json = nlohmann::json;

Json Good() {
  return Json::parse(R"({
    "inputs": [{"logical_index": 0, "param_name": "in_0", "dtype": "float32", "shape": [2, 7],
                "num_bytes": 56, "warp_dtype": "vec", "warp_shape": [2], "component_shape": [7]}],
    "outputs": [{"logical_index": 0, "param_name": "out_0", "dtype": "int64", "shape": [],
                 "num_bytes": 8, "mask": true},
                {"logical_index": 1, "param_name": null, "dtype": "bool", "shape": [3],
                 "num_bytes": 3, "mask": false}],
    "leapp_policy": {"schema": 1, "segment": "arm/0", "device": "cpu", "warp_version": "1.19.0",
                     "wrp_format": 18, "future_key": {"x": 1},
                     "cpu": {"triple": "x86_64-unknown-linux-gnu", "march": "x86-64-v3",
                             "features": ["avx2"]},
                     "bundle": {"sha256": "", "size": 4}}})");
}

Json WithDigest() {
  Json json = Good();
  json["leapp_policy"]["bundle"]["sha256"] = std::string(64, 'a');
  return json;
}

// Sets one value by JSON pointer and expects a refusal that names the key.
void Refuse(const char* pointer, const Json& value, const std::string& text) {
  Json json = WithDigest();
  json[Json::json_pointer(pointer)] = value;
  CHECK_ERROR(LP_BAD_METADATA, text, ParseMetadata(json.dump()));
}

void Lacks(const char* parent, const char* key, const std::string& text) {
  Json json = WithDigest();
  json[Json::json_pointer(parent)].erase(key);
  CHECK_ERROR(LP_BAD_METADATA, text, ParseMetadata(json.dump()));
}

void TestGood() {
  const Metadata m = ParseMetadata(WithDigest().dump());
  CHECK(m.Subject() == "Segment 'arm/0'");
  CHECK(m.inputs.size() == 1 && m.inputs[0].num_bytes == 56 && m.inputs[0].name == "in_0");
  CHECK(m.outputs.size() == 2 && m.outputs[0].num_bytes == 8 && !m.outputs[0].masked);
  CHECK(m.outputs[1].masked && m.outputs[1].name.empty());
  CHECK(m.record && m.record->wrp_format == 18 && m.record->cpu->features.size() == 1);
  CHECK(m.record->bundle->size == 4);
}

// A message prints the value that it refuses, and the printer calls itself for each level.
void TestDepth() {
  const std::string deep = std::string(500000, '[') + std::string(500000, ']');
  CHECK_ERROR(LP_BAD_METADATA, "more than 32 levels deep", ParseMetadata(deep));
  CHECK_ERROR(LP_BAD_METADATA, "more than 32 levels deep",
              ParseMetadata(R"({"outputs": [], "inputs": )" + deep + "}"));
  const std::string allowed = std::string(31, '[') + std::string(31, ']');
  CHECK_ERROR(LP_BAD_METADATA, "'inputs[0]' must be an object",
              ParseMetadata(R"({"outputs": [], "inputs": )" + allowed + "}"));
}

void TestTypes() {
  CHECK_ERROR(LP_BAD_METADATA, "not valid JSON", ParseMetadata("{"));
  CHECK_ERROR(LP_BAD_METADATA, "must be an object", ParseMetadata("[]"));
  Lacks("", "inputs", "lacks the key 'inputs'");
  Lacks("/leapp_policy", "cpu", "lacks the key 'leapp_policy.cpu'");
  Lacks("/outputs/0", "mask", "lacks the key 'outputs[0].mask'");
  Refuse("/inputs", 3, "'inputs' must be a list");
  Refuse("/inputs/0/shape", Json::array({2, -7}), "'inputs[0].shape' must be an integer");
  Refuse("/inputs/0/shape", Json::array({2.5, 7}), "'inputs[0].shape' must be an integer");
  Refuse("/inputs/0/num_bytes", 57, "'inputs[0].num_bytes' must be 56");
  Refuse("/inputs/0/num_bytes", 0, "'inputs[0].num_bytes' must be 56");
  Refuse("/inputs/0/dtype", "complex64", "must be one of bool, int8");
  Refuse("/inputs/0/param_name", nullptr, "'inputs[0].param_name' must be a string");
  Refuse("/inputs/0/logical_index", 1, "'inputs[0].logical_index' must be 0");
  Refuse("/outputs/0/mask", 1, "'outputs[0].mask' must be true or false");
  Refuse("/leapp_policy", "x", "'leapp_policy' must be an object");
  Refuse("/leapp_policy/schema", 2, "has schema 2");
  Refuse("/leapp_policy/device", "tpu", "'leapp_policy.device' must be 'cpu'");
  Refuse("/leapp_policy/bundle/sha256", "AB", "64 lower-case hexadecimal digits");
}

// A shape whose product leaves 64 bits must not become a small number of bytes.
void TestOverflow() {
  const int64_t big = int64_t{1} << 32;
  Refuse("/inputs/0/shape", Json::array({big, big}), "less than 2^63 bytes");
  Refuse("/inputs/0/shape", Json::array({big, big, 0}), "less than 2^63 bytes");
}

// Source that is named wrongly must not become a file, nor be left out in silence.
void TestGpuSource() {
  Json json = WithDigest();
  json["leapp_policy"]["device"] = "cuda";
  json["leapp_policy"]["cuda"] = {{"modules", Json::array()}};
  CHECK(!ParseMetadata(json.dump()).record->gpu_source);
  Json& source = json["leapp_policy"]["cuda"]["source"];
  source = {{"recording", "segment.source.wrp"}, {"files", {"m.sm90.cu"}}};
  const leapp_policy::GpuSource parsed = *ParseMetadata(json.dump()).record->gpu_source;
  CHECK(parsed.recording == "segment.source.wrp");
  CHECK(parsed.files == std::vector<std::string>{"m.sm90.cu"});
  source["files"] = {1};
  CHECK_ERROR(LP_BAD_METADATA, "'leapp_policy.cuda.source.files' must be a list of strings",
              ParseMetadata(json.dump()));
  source.erase("files");
  CHECK_ERROR(LP_BAD_METADATA, "lacks the key 'leapp_policy.cuda.source.files'",
              ParseMetadata(json.dump()));
}

// LEAPP 0.7.2 writes no object of ours and states 0 bytes for a scalar.
void TestForeign() {
  Json json = Good();
  json.erase("leapp_policy");
  json["outputs"][0]["num_bytes"] = 0;
  const Metadata m = ParseMetadata(json.dump());
  CHECK(!m.record && m.outputs[0].num_bytes == 8);
  json["inputs"][0]["num_bytes"] = 4;
  CHECK_ERROR(LP_BAD_METADATA, "must be 56", ParseMetadata(json.dump()));
}

}  // namespace

int main() {
  TestGood();
  TestDepth();
  TestTypes();
  TestOverflow();
  TestForeign();
  TestGpuSource();
  return leapp_policy::test::Result();
}
