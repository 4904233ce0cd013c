// SPDX-License-Identifier: Apache-2.0
#include "core/segment.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/compatibility.h"
#include "core/cpu_segment.h"
#include "core/cuda_segment.h"
#include "core/error.h"
#include "core/fork_watch.h"

namespace leapp_policy {
namespace {

std::string Text(const char* text) { return text == nullptr ? "" : text; }

nlohmann::json TensorJson(const TensorSpec& spec) {
  nlohmann::json json = {{"dtype", DTypeName(spec.dtype)},
                         {"shape", spec.shape},
                         {"num_bytes", spec.num_bytes},
                         {"mask", !spec.masked}};
  if (spec.name.empty()) {
    json["name"] = nullptr;
  } else {
    json["name"] = spec.name;
  }
  return json;
}

void CheckBuffer(const Metadata& metadata, const char* kind, size_t index, const TensorSpec& spec,
                 const void* data, uint64_t size) {
  if (size == spec.num_bytes && (data != nullptr || size == 0)) return;
  const std::string got =
      size == spec.num_bytes ? "a null pointer" : std::to_string(size) + " bytes";
  throw Error(LP_INVALID_ARGUMENT, metadata.Subject() + " " + kind + " " + std::to_string(index) +
                                       " ('" + spec.name + "') must have " +
                                       std::to_string(spec.num_bytes) + " bytes, got " + got +
                                       "; see lp_segment_describe() for its dtype and shape.");
}

void CheckCount(const Metadata& metadata, const char* kind, size_t expected, size_t got,
                const void* buffers) {
  if (got == expected && (buffers != nullptr || got == 0)) return;
  throw Error(LP_INVALID_ARGUMENT,
              metadata.Subject() + " takes " + std::to_string(expected) + " " + kind + ", got " +
                  (got == expected ? "a null pointer" : std::to_string(got)) + ".");
}

}  // namespace

Segment::Segment(const WarpLibrary& library, Metadata metadata, Device device)
    : library_(library),
      warp_(library.functions()),
      metadata_(std::move(metadata)),
      device_(device),
      graph_(nullptr, GraphDeleter{&warp_}) {}

std::unique_ptr<Segment> Segment::Open(ByteSpan bundle_bytes, const std::string& runtime_metadata,
                                       const std::string& device_text) {
  const Device device = ParseDevice(device_text);
  Metadata metadata = ParseMetadata(runtime_metadata);
  CheckDigest(metadata, bundle_bytes);
  const Bundle bundle = ParseBundle(bundle_bytes);
  const WrpHeader header = ReadWrpHeader(bundle.wrp);
  CheckDevice(metadata, header, device);

  const WarpLibrary& library = WarpLibrary::Get();
  CheckWarpVersion(metadata, header, library.version());

  std::unique_ptr<Segment> segment;
  const std::lock_guard<std::mutex> lock(library.load_mutex());
  if (device.family == DeviceFamily::kCpu) {
    segment = CpuSegment::Load(library, std::move(metadata), bundle, header);
  } else {
    segment = CudaSegment::Load(library, std::move(metadata), bundle, header, device);
  }
  segment->Describe(header.format, bundle.modules.size(), bundle_bytes.size);
  return segment;
}

void Segment::BindParameters() {
  inputs_ = ResolvePorts(metadata_.inputs, "input");
  outputs_ = ResolvePorts(metadata_.outputs, "output");
}

std::vector<Segment::Port> Segment::ResolvePorts(const std::vector<TensorSpec>& specs,
                                                 const char* kind) const {
  std::string names;
  std::set<std::string> known;
  const int num_params = warp_.apic_get_num_params(graph_.get());
  for (int i = 0; i < num_params; ++i) {
    const std::string name = Text(warp_.apic_get_param_name(graph_.get(), i));
    if (!known.insert(name).second) continue;
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  std::vector<Port> ports;
  for (const TensorSpec& spec : specs) {
    if (spec.masked || spec.num_bytes == 0) {
      ports.push_back({});
      continue;
    }
    const std::string subject = metadata_.Subject() + " " + kind + " '" + spec.name + "'";
    if (known.count(spec.name) == 0) {
      throw Error(LP_BAD_BUNDLE, subject + " is no parameter of the recording, which has " +
                                     (names.empty() ? "none" : names) + "; export it again.");
    }
    const size_t size = warp_.apic_get_param_size(graph_.get(), spec.name.c_str());
    void* port = warp_.apic_get_param_ptr(graph_.get(), spec.name.c_str());
    if (size != spec.num_bytes || port == nullptr) {
      throw Error(LP_BAD_BUNDLE, subject + " must have " + std::to_string(spec.num_bytes) +
                                     " bytes, the recording has " + std::to_string(size) +
                                     "; export it again.");
    }
    ports.push_back({port, size});
  }
  return ports;
}

void Segment::Describe(uint32_t wrp_format, size_t num_modules, size_t bundle_size) {
  using Json = nlohmann::json;
  Json inputs = Json::array();
  for (const TensorSpec& spec : metadata_.inputs) inputs.push_back(TensorJson(spec));
  Json outputs = Json::array();
  for (const TensorSpec& spec : metadata_.outputs) outputs.push_back(TensorJson(spec));
  Json description = {
      {"abi_version", LP_ABI_VERSION},
      {"segment", metadata_.segment},
      {"device", DeviceFamilyName(device_.family)},
      {"mode", Mode()},
      {"compiled_here", IsCompiledHere()},
      {"inputs", inputs},
      {"outputs", outputs},
      {"kernels", warp_.apic_get_num_kernels(graph_.get())},
      {"modules", num_modules},
      {"bundle_size", bundle_size},
      {"wrp_format", wrp_format},
      {"warp", {{"version", library_.version()}, {"folder", library_.folder()}}},
      {"recorded", nullptr},
  };
  if (metadata_.record) {
    Json recorded = {{"warp_version", metadata_.record->warp_version},
                     {"wrp_format", metadata_.record->wrp_format}};
    if (metadata_.record->cpu) {
      recorded["cpu"] = {{"triple", metadata_.record->cpu->triple},
                         {"march", metadata_.record->cpu->march},
                         {"features", metadata_.record->cpu->features}};
    }
    description["recorded"] = recorded;
  }
  description_ = description.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Segment::Run(const lp_const_buffer* inputs, size_t num_inputs, const lp_buffer* outputs,
                  size_t num_outputs, void* stream) {
  ExpectNotForked(LP_RUN_FAILED, metadata_.Subject());
  CheckCount(metadata_, "inputs", metadata_.inputs.size(), num_inputs, inputs);
  CheckCount(metadata_, "outputs", metadata_.outputs.size(), num_outputs, outputs);
  for (size_t i = 0; i < num_inputs; ++i) {
    CheckBuffer(metadata_, "input", i, metadata_.inputs[i], inputs[i].data, inputs[i].size);
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    CheckBuffer(metadata_, "output", i, metadata_.outputs[i], outputs[i].data, outputs[i].size);
  }
  RunChecked(inputs, outputs, stream);
}

}  // namespace leapp_policy
