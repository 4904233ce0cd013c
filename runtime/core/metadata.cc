// SPDX-License-Identifier: Apache-2.0
#include "core/metadata.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace leapp_policy {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;
constexpr size_t kMaxRank = 64;
constexpr size_t kMaxTensors = 4096;
constexpr int kMaxDepth = 32;  // lists and objects inside of each other
constexpr const char* kOwnKey = "leapp_policy";

// A place in the document, so that a message can name it.
struct Node {
  const Json& json;
  std::string path;
};

[[noreturn]] void Fail(const std::string& path, const std::string& expected, const Json& got) {
  std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "…";
  throw Error(LP_BAD_METADATA, "The runtime metadata key '" + path + "' must be " + expected +
                                   ", got " + text + "; export the artifact again.");
}

Node Get(const Node& parent, const char* key) {
  const std::string path = parent.path.empty() ? key : parent.path + "." + key;
  const auto it = parent.json.find(key);
  if (it == parent.json.end()) {
    throw Error(LP_BAD_METADATA,
                "The runtime metadata lacks the key '" + path + "'; export the artifact again.");
  }
  return {*it, path};
}

bool Has(const Node& parent, const char* key) { return parent.json.find(key) != parent.json.end(); }

void ExpectObject(const Node& node) {
  if (!node.json.is_object()) Fail(node.path, "an object", node.json);
}

std::string GetString(const Node& parent, const char* key) {
  const Node node = Get(parent, key);
  if (!node.json.is_string()) Fail(node.path, "a string", node.json);
  const std::string text = node.json.get<std::string>();
  if (text.find('\0') != std::string::npos) Fail(node.path, "a string without NUL", node.json);
  return text;
}

uint64_t ToUnsigned(const Json& json, const std::string& path, uint64_t max) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > max) {
    Fail(path, "an integer from 0 to " + std::to_string(max), json);
  }
  return json.get<uint64_t>();
}

uint64_t GetUnsigned(const Node& parent, const char* key, uint64_t max) {
  const Node node = Get(parent, key);
  return ToUnsigned(node.json, node.path, max);
}

const Json& ExpectArray(const Node& node, size_t max) {
  if (!node.json.is_array() || node.json.size() > max) {
    Fail(node.path, "a list of at most " + std::to_string(max) + " entries", node.json);
  }
  return node.json;
}

// Bytes of a dense array, or a failure when the product does not fit.
uint64_t DenseBytes(const TensorSpec& spec, const Node& node) {
  uint64_t bytes = DTypeSize(spec.dtype);
  for (const int64_t dim : spec.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > INT64_MAX) {
      Fail(node.path + ".shape", "a shape of less than 2^63 bytes", node.json["shape"]);
    }
  }
  return bytes;
}

TensorSpec ParseTensor(const Node& node, size_t index, bool is_output, bool is_own) {
  ExpectObject(node);
  TensorSpec spec;
  if (GetUnsigned(node, "logical_index", kMaxTensors) != index) {
    Fail(node.path + ".logical_index", std::to_string(index) + ", its position in the list",
         node.json["logical_index"]);
  }
  if (is_output) {
    const Node mask = Get(node, "mask");
    if (!mask.json.is_boolean()) Fail(mask.path, "true or false", mask.json);
    spec.masked = !mask.json.get<bool>();
  }
  const Node name = Get(node, "param_name");
  if (!spec.masked || !name.json.is_null()) {
    spec.name = GetString(node, "param_name");
    if (spec.name.empty()) Fail(name.path, "a name", name.json);
  }
  const std::string dtype = GetString(node, "dtype");
  const std::optional<DType> parsed = ParseDType(dtype);
  if (!parsed) Fail(node.path + ".dtype", "one of " + DTypeNames(), dtype);
  spec.dtype = *parsed;

  const Node shape = Get(node, "shape");
  for (const Json& dim : ExpectArray(shape, kMaxRank)) {
    spec.shape.push_back(static_cast<int64_t>(ToUnsigned(dim, shape.path, INT64_MAX)));
  }
  spec.num_bytes = DenseBytes(spec, node);
  const uint64_t stated = GetUnsigned(node, "num_bytes", INT64_MAX);
  // LEAPP 0.7.2 writes 0 for a scalar and for dtypes outside its table: there it states nothing.
  const bool unstated = !is_own && stated == 0;
  if (stated != spec.num_bytes && !unstated) {
    Fail(node.path + ".num_bytes", std::to_string(spec.num_bytes) + " as its shape and dtype give",
         node.json["num_bytes"]);
  }
  return spec;
}

std::vector<TensorSpec> ParseTensors(const Node& root, const char* key, bool is_output,
                                     bool is_own) {
  const Node list = Get(root, key);
  std::vector<TensorSpec> specs;
  for (const Json& entry : ExpectArray(list, kMaxTensors)) {
    const size_t index = specs.size();
    const Node node{entry, list.path + "[" + std::to_string(index) + "]"};
    specs.push_back(ParseTensor(node, index, is_output, is_own));
  }
  return specs;
}

CpuTarget ParseCpu(const Node& node) {
  ExpectObject(node);
  CpuTarget cpu;
  cpu.triple = GetString(node, "triple");
  cpu.march = GetString(node, "march");
  const Node features = Get(node, "features");
  for (const Json& feature : ExpectArray(features, kMaxTensors)) {
    if (!feature.is_string()) Fail(features.path, "a list of strings", feature);
    cpu.features.push_back(feature.get<std::string>());
  }
  return cpu;
}

std::vector<GpuModule> ParseGpu(const Node& node) {
  ExpectObject(node);
  std::vector<GpuModule> modules;
  const Node list = Get(node, "modules");
  for (const Json& entry : ExpectArray(list, kMaxTensors)) {
    const Node item{entry, list.path + "[" + std::to_string(modules.size()) + "]"};
    ExpectObject(item);
    GpuModule module;
    module.filename = GetString(item, "filename");
    const Node binaries = Get(item, "binaries");
    for (const Json& each : ExpectArray(binaries, kMaxTensors)) {
      const Node one{each, binaries.path};
      ExpectObject(one);
      const std::string kind = GetString(one, "kind");
      if (kind != "cubin" && kind != "ptx") Fail(one.path + ".kind", "'cubin' or 'ptx'", kind);
      module.binaries.push_back({GetString(one, "filename"), kind == "ptx",
                                 static_cast<int>(GetUnsigned(one, "arch", 1000))});
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

GpuSource ParseGpuSource(const Node& node) {
  ExpectObject(node);
  GpuSource source;
  source.recording = GetString(node, "recording");
  const Node files = Get(node, "files");
  for (const Json& file : ExpectArray(files, kMaxTensors)) {
    if (!file.is_string()) Fail(files.path, "a list of strings", file);
    source.files.push_back(file.get<std::string>());
  }
  return source;
}

DirectAccess ParseDirect(const Node& node) {
  ExpectObject(node);
  DirectAccess direct;
  const Node list = Get(node, "written_inputs");
  for (const Json& index : ExpectArray(list, kMaxTensors)) {
    direct.written_inputs.push_back(static_cast<size_t>(ToUnsigned(index, list.path, kMaxTensors)));
  }
  return direct;
}

BundleDigest ParseDigest(const Node& node) {
  ExpectObject(node);
  BundleDigest digest;
  digest.sha256 = GetString(node, "sha256");
  if (digest.sha256.size() != 64 ||
      digest.sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    Fail(node.path + ".sha256", "64 lower-case hexadecimal digits", digest.sha256);
  }
  digest.size = GetUnsigned(node, "size", INT64_MAX);
  return digest;
}

Record ParseRecord(const Node& node) {
  Record record;
  if (GetUnsigned(node, "schema", INT64_MAX) != kSchema) {
    throw Error(LP_BAD_METADATA, "The runtime metadata has schema " + node.json["schema"].dump() +
                                     ", this runtime reads schema " + std::to_string(kSchema) +
                                     "; update leapp-policy or export the artifact again.");
  }
  const std::string device = GetString(node, "device");
  try {
    record.device = ParseDevice(device);
  } catch (const Error&) {
    Fail(node.path + ".device", "'cpu', 'cuda' or 'cuda:<index>'", device);
  }
  record.warp_version = GetString(node, "warp_version");
  record.wrp_format = static_cast<uint32_t>(GetUnsigned(node, "wrp_format", UINT32_MAX));
  // Machine code without a record of its target cannot be checked before it runs.
  if (record.device.family == DeviceFamily::kCpu || Has(node, "cpu")) {
    record.cpu = ParseCpu(Get(node, "cpu"));
  }
  if (Has(node, "cuda")) {
    const Node cuda = Get(node, "cuda");
    record.gpu_modules = ParseGpu(cuda);
    if (Has(cuda, "source")) record.gpu_source = ParseGpuSource(Get(cuda, "source"));
  }
  if (Has(node, "direct")) record.direct = ParseDirect(Get(node, "direct"));
  if (Has(node, "bundle")) record.bundle = ParseDigest(Get(node, "bundle"));
  return record;
}

// Refuses a document that is nested too deeply while it is read: printing one, for a message, would
// take a frame of the stack for each level.
bool CheckDepth(int depth, Json::parse_event_t, const Json&) {
  if (depth > kMaxDepth) {
    throw Error(LP_BAD_METADATA, "The runtime metadata nests lists and objects more than " +
                                     std::to_string(kMaxDepth) +
                                     " levels deep; export the artifact again.");
  }
  return true;
}

}  // namespace

Metadata ParseMetadata(const std::string& json) {
  Json document;
  try {
    document = Json::parse(json, &CheckDepth);
  } catch (const Json::exception& e) {
    throw Error(LP_BAD_METADATA, "The runtime metadata is not valid JSON (" +
                                     std::string(e.what()) + "); export the artifact again.");
  }
  const Node root{document, ""};
  if (!document.is_object()) Fail("<document>", "an object", document);

  Metadata metadata;
  metadata.segment = "<unnamed>";
  const bool is_own = Has(root, kOwnKey);
  if (is_own) {
    const Node own = Get(root, kOwnKey);
    ExpectObject(own);
    metadata.segment = GetString(own, "segment");
    metadata.record = ParseRecord(own);
  }
  metadata.inputs = ParseTensors(root, "inputs", false, is_own);
  metadata.outputs = ParseTensors(root, "outputs", true, is_own);
  if (metadata.record && metadata.record->direct) {
    for (const size_t index : metadata.record->direct->written_inputs) {
      if (index >= metadata.inputs.size()) {
        Fail("leapp_policy.direct.written_inputs",
             "positions below " + std::to_string(metadata.inputs.size()), index);
      }
    }
  }
  return metadata;
}

}  // namespace leapp_policy
