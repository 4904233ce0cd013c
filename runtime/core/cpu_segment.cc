// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_segment.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/compatibility.h"
#include "core/error.h"
#include "core/warp_loading.h"

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

}  // namespace

CpuObjects::~CpuObjects() {
  for (const std::string& name : names_) warp_.unload_obj(name.c_str());
}

std::string CpuObjects::Load(const std::string& filename, ByteSpan object) {
  const std::string name = UniqueObjectName(filename);
  names_.reserve(names_.size() + 1);
  if (!LoadObject(warp_, object, name)) return "";
  names_.push_back(name);
  return name;
}

std::unique_ptr<CpuSegment> CpuSegment::Load(const WarpLibrary& library, Metadata metadata,
                                             const Bundle& bundle, const WrpHeader& header) {
  std::vector<WarpModuleBytes> modules;
  for (const BundleModule& module : bundle.modules) {
    modules.push_back({module.filename.c_str(), module.data.data, module.data.size});
  }
  CheckCpu(metadata, modules);
  std::unique_ptr<CpuSegment> segment(new CpuSegment(library, std::move(metadata)));
  const WarpFunctions& warp = library.functions();
  const std::string before = WarpErrorText(warp);
  WarpGraph* graph = LoadRecording(warp, nullptr, bundle.wrp, modules, kWrpDeviceCpu);
  if (graph == nullptr) {
    throw Error(LP_LOAD_FAILED, LoadRefusal(segment->metadata_, header, warp, before) +
                                    "; export it again with this Warp.");
  }
  segment->TakeGraph(graph);
  segment->BindParameters();
  segment->BindKernels(modules);
  return segment;
}

// The graph calls into the objects: it goes first.
CpuSegment::~CpuSegment() { DestroyGraph(); }

void CpuSegment::BindKernels(const std::vector<WarpModuleBytes>& modules) {
  std::map<std::string, const WarpModuleBytes*> by_filename;
  for (const WarpModuleBytes& module : modules) by_filename[module.filename] = &module;

  std::map<std::string, std::string> loaded;  // filename -> name in the JIT
  const int num_kernels = warp_.apic_get_num_kernels(graph());
  for (int i = 0; i < num_kernels; ++i) {
    const std::string key = Text(warp_.apic_get_kernel_key(graph(), i));
    const std::string hash = Text(warp_.apic_get_kernel_module_hash(graph(), i));
    const std::string forward = Text(warp_.apic_get_kernel_forward_name(graph(), i));
    const std::string backward = Text(warp_.apic_get_kernel_backward_name(graph(), i));
    const std::string filename = Text(warp_.apic_get_kernel_module_binary_filename(graph(), i));
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
    warp_.apic_register_loaded_cpu_kernel(graph(), key.c_str(), hash.c_str(), function, adjoint);
  }
}

void CpuSegment::RunChecked(const lp_const_buffer* inputs, const lp_buffer* outputs, void* stream) {
  if (stream != nullptr) {
    throw Error(LP_INVALID_ARGUMENT, "The argument 'stream' must be NULL on the CPU.");
  }
  // While this thread records, Warp would record the launches of the replay instead of doing them.
  if (warp_.apic_get_recording_state() != nullptr) {
    throw Error(LP_RUN_FAILED, metadata_.Subject() +
                                   " cannot run while a Warp CPU capture is open on this thread; "
                                   "end the capture first.");
  }

  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].data != nullptr) {
      std::memcpy(inputs_[i].data, inputs[i].data, inputs_[i].size);
    }
  }
  if (!warp_.apic_cpu_replay_graph(graph())) {
    throw Error(LP_RUN_FAILED, metadata_.Subject() + " failed to replay; Warp's last error was '" +
                                   Text(warp_.get_error_string()) + "', see its lines on stderr.");
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t size = static_cast<size_t>(outputs[i].size);
    if (outputs_[i].data != nullptr) {
      std::memcpy(outputs[i].data, outputs_[i].data, size);
    } else if (size != 0) {
      std::memset(outputs[i].data, 0, size);
    }
  }
}

}  // namespace leapp_policy
