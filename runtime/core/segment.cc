// SPDX-License-Identifier: Apache-2.0
#include "core/segment.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/bundle.h"
#include "core/compatibility.h"
#include "core/error.h"
#include "core/wrp_header.h"

namespace leapp_policy {
namespace {

// A name that no other object in the process has, whichever of our libraries loads it: each has its
// own copy of this counter, so its address tells them apart.
std::string UniqueObjectName(const std::string& filename) {
  static std::atomic<uint64_t> counter{0};
  char prefix[64];
  std::snprintf(prefix, sizeof(prefix), "leapp_policy_%p_%llu_", static_cast<void*>(&counter),
                static_cast<unsigned long long>(counter++));
  return prefix + filename;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

bool Contains(ByteSpan bytes, const std::string& text) {
  const uint8_t* end = bytes.data + bytes.size;
  return std::search(bytes.data, end, text.begin(), text.end()) != end;
}

ByteSpan Span(const WarpModuleBytes& module) {
  return {static_cast<const uint8_t*>(module.data), module.size};
}

// What Warp said since `before`. It keeps one text for the whole process and clears it never, so
// that an unchanged text is nobody's reason.
std::string WarpReason(const WarpFunctions& warp, const std::string& before) {
  const std::string now = Text(warp.get_error_string());
  if (now.empty() || now == before) return "Warp gave no reason; see its lines on stderr";
  return "Warp says: " + now;
}

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

CpuObjects::~CpuObjects() {
  for (const std::string& name : names_) warp_.unload_obj(name.c_str());
}

std::string CpuObjects::Load(const std::string& filename, ByteSpan object) {
  const std::string name = UniqueObjectName(filename);
  names_.reserve(names_.size() + 1);
  if (warp_.load_obj_from_bytes(object.data, object.size, name.c_str(), false) != 0) return "";
  names_.push_back(name);
  return name;
}

Segment::Segment(const WarpLibrary& library, Metadata metadata)
    : library_(library),
      warp_(library.functions()),
      metadata_(std::move(metadata)),
      objects_(warp_),
      graph_(nullptr, GraphDeleter{&warp_}) {}

std::unique_ptr<Segment> Segment::Open(ByteSpan bundle_bytes, const std::string& runtime_metadata,
                                       const std::string& device_text) {
  const Device device = ParseDevice(device_text);
  if (device.family != DeviceFamily::kCpu) {
    throw Error(LP_WRONG_DEVICE, "This build of the runtime runs segments on 'cpu', got device '" +
                                     device_text + "'.");
  }
  Metadata metadata = ParseMetadata(runtime_metadata);
  CheckDigest(metadata, bundle_bytes);
  const Bundle bundle = ParseBundle(bundle_bytes);
  const WrpHeader header = ReadWrpHeader(bundle.wrp);
  CheckDevice(metadata, header, device);

  std::vector<WarpModuleBytes> modules;
  for (const BundleModule& module : bundle.modules) {
    modules.push_back({module.filename.c_str(), module.data.data, module.data.size});
  }
  const WarpLibrary& library = WarpLibrary::Get();
  CheckWarpVersion(metadata, header, library.version());
  CheckCpu(metadata, modules);

  std::unique_ptr<Segment> segment(new Segment(library, std::move(metadata)));
  const std::lock_guard<std::mutex> lock(library.load_mutex());
  segment->LoadGraph(bundle.wrp, modules, header.format);
  segment->BindParameters();
  segment->BindKernels(modules);
  segment->description_ = segment->Describe(header.format, modules.size(), bundle_bytes.size);
  return segment;
}

void Segment::LoadGraph(ByteSpan wrp, const std::vector<WarpModuleBytes>& modules,
                        uint32_t wrp_format) {
  const std::string before = Text(warp_.get_error_string());
  graph_.reset(warp_.apic_load_graph_from_bytes(nullptr, wrp.data, wrp.size, modules.data(),
                                                static_cast<uint32_t>(modules.size()),
                                                kWrpDeviceCpu));
  if (!graph_) {
    throw Error(LP_LOAD_FAILED, metadata_.Subject() + " (.wrp format " +
                                    std::to_string(wrp_format) + ") could not be loaded by Warp " +
                                    library_.version() + "; " + WarpReason(warp_, before) +
                                    "; export it again with this Warp.");
  }
}

void Segment::BindKernels(const std::vector<WarpModuleBytes>& modules) {
  std::map<std::string, const WarpModuleBytes*> by_filename;
  for (const WarpModuleBytes& module : modules) by_filename[module.filename] = &module;

  std::map<std::string, std::string> loaded;  // filename -> name in the JIT
  const int num_kernels = warp_.apic_get_num_kernels(graph_.get());
  for (int i = 0; i < num_kernels; ++i) {
    const std::string key = Text(warp_.apic_get_kernel_key(graph_.get(), i));
    const std::string hash = Text(warp_.apic_get_kernel_module_hash(graph_.get(), i));
    const std::string forward = Text(warp_.apic_get_kernel_forward_name(graph_.get(), i));
    const std::string backward = Text(warp_.apic_get_kernel_backward_name(graph_.get(), i));
    const std::string filename =
        Text(warp_.apic_get_kernel_module_binary_filename(graph_.get(), i));
    const std::string subject = metadata_.Subject() + " kernel '" + key + "'";

    const auto module = by_filename.find(filename);
    if (module == by_filename.end()) {
      throw Error(LP_BAD_BUNDLE, subject + " needs the module '" + filename +
                                     "' that the bundle does not hold; export it again.");
    }
    std::string& object = loaded[filename];
    if (object.empty()) object = objects_.Load(filename, Span(*module->second));
    void* function = nullptr;
    if (!object.empty()) {
      function = reinterpret_cast<void*>(warp_.lookup(object.c_str(), forward.c_str()));
    }
    if (function == nullptr) {
      throw Error(LP_LOAD_FAILED, subject + " could not be loaded from the module '" + filename +
                                      "': " +
                                      (object.empty() ? "Warp refused the object"
                                                      : "it has no function '" + forward + "'") +
                                      ", see its lines on stderr; export it again.");
    }
    // A forward-only module has no adjoint, and Warp prints an error for a look-up that fails: ask
    // only for a name that is in the object.
    void* adjoint = nullptr;
    if (!backward.empty() && Contains(Span(*module->second), backward)) {
      adjoint = reinterpret_cast<void*>(warp_.lookup(object.c_str(), backward.c_str()));
    }
    warp_.apic_register_loaded_cpu_kernel(graph_.get(), key.c_str(), hash.c_str(), function,
                                          adjoint);
  }
}

void Segment::BindParameters() {
  input_ports_ = ResolvePorts(metadata_.inputs, "input");
  output_ports_ = ResolvePorts(metadata_.outputs, "output");
}

std::vector<void*> Segment::ResolvePorts(const std::vector<TensorSpec>& specs,
                                         const char* kind) const {
  std::string names;
  std::set<std::string> known;
  const int num_params = warp_.apic_get_num_params(graph_.get());
  for (int i = 0; i < num_params; ++i) {
    const std::string name = Text(warp_.apic_get_param_name(graph_.get(), i));
    if (!known.insert(name).second) continue;
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  std::vector<void*> ports;
  for (const TensorSpec& spec : specs) {
    if (spec.masked || spec.num_bytes == 0) {
      ports.push_back(nullptr);
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
    ports.push_back(port);
  }
  return ports;
}

std::string Segment::Describe(uint32_t wrp_format, size_t num_modules, size_t bundle_size) const {
  using Json = nlohmann::json;
  Json inputs = Json::array();
  for (const TensorSpec& spec : metadata_.inputs) inputs.push_back(TensorJson(spec));
  Json outputs = Json::array();
  for (const TensorSpec& spec : metadata_.outputs) outputs.push_back(TensorJson(spec));
  Json description = {
      {"abi_version", LP_ABI_VERSION},
      {"segment", metadata_.segment},
      {"device", DeviceFamilyName(DeviceFamily::kCpu)},
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
  return description.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Segment::Run(const lp_const_buffer* inputs, size_t num_inputs, const lp_buffer* outputs,
                  size_t num_outputs) {
  CheckCount(metadata_, "inputs", metadata_.inputs.size(), num_inputs, inputs);
  CheckCount(metadata_, "outputs", metadata_.outputs.size(), num_outputs, outputs);
  for (size_t i = 0; i < num_inputs; ++i) {
    CheckBuffer(metadata_, "input", i, metadata_.inputs[i], inputs[i].data, inputs[i].size);
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    CheckBuffer(metadata_, "output", i, metadata_.outputs[i], outputs[i].data, outputs[i].size);
  }
  // While this thread records, Warp would record the launches of the replay instead of doing them.
  if (warp_.apic_get_recording_state() != nullptr) {
    throw Error(LP_RUN_FAILED, metadata_.Subject() +
                                   " cannot run while a Warp CPU capture is open on this thread; "
                                   "end the capture first.");
  }

  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < num_inputs; ++i) {
    if (input_ports_[i] != nullptr) {
      std::memcpy(input_ports_[i], inputs[i].data, static_cast<size_t>(inputs[i].size));
    }
  }
  if (!warp_.apic_cpu_replay_graph(graph_.get())) {
    throw Error(LP_RUN_FAILED, metadata_.Subject() + " failed to replay; Warp's last error was '" +
                                   Text(warp_.get_error_string()) + "', see its lines on stderr.");
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    const size_t size = static_cast<size_t>(outputs[i].size);
    if (output_ports_[i] != nullptr) {
      std::memcpy(outputs[i].data, output_ports_[i], size);
    } else if (size != 0) {
      std::memset(outputs[i].data, 0, size);
    }
  }
}

}  // namespace leapp_policy
