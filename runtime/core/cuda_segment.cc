// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_segment.h"

#include <algorithm>

#include "core/error.h"
#include "core/warp_loading.h"

namespace leapp_policy {
namespace {

// Up to this many commands, enqueueing them one by one costs the host less than it saves in copies.
constexpr size_t kMaxDirectCommands = 32;
// What kernels may assume of an allocation, and what the widest vector load needs.
constexpr uint64_t kAlignment = 16;

template <typename Buffer>
cuda::DevicePtr Address(const Buffer& buffer) {
  return reinterpret_cast<cuda::DevicePtr>(buffer.data);
}

template <typename Buffer>
bool IsAligned(const Buffer& buffer) {
  return Address(buffer) % kAlignment == 0;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

std::unique_ptr<CudaSegment> CudaSegment::Load(const WarpLibrary& library, Metadata metadata,
                                               const Bundle& bundle, const WrpHeader& header,
                                               Device device) {
  const cuda::Driver& driver = cuda::Driver::Get();
  if (device.index >= driver.device_count()) {
    throw Error(LP_WRONG_DEVICE,
                metadata.Subject() + " is opened on device 'cuda:" + std::to_string(device.index) +
                    "', this machine has " + std::to_string(driver.device_count()) +
                    " GPU(s); name one that it has.");
  }
  const WarpCudaFunctions& warp_cuda = library.EnableCuda();
  const int arch = warp_cuda.device_get_arch(device.index);
  cuda::Context context = nullptr;
  const cuda::Result result = driver.functions().DevicePrimaryCtxRetain(&context, device.index);
  if (result != cuda::kSuccess) {
    throw Error(LP_WRONG_DEVICE, metadata.Subject() +
                                     " cannot use device 'cuda:" + std::to_string(device.index) +
                                     "' (" + driver.Describe(result) + ").");
  }
  std::unique_ptr<CudaSegment> segment(
      new CudaSegment(library, std::move(metadata), device, driver, context));
  const cuda::CurrentContext current(driver, context);
  void* warp_context = warp_cuda.device_get_primary_context(device.index);
  const auto load_source = [&](const std::string& path) -> WarpGraph* {
    if (warp_cuda.apic_load_graph_ex == nullptr) return nullptr;  // a release before 1.19
    const std::string headers = library.FindHeaders();
    return warp_cuda.apic_load_graph_ex(warp_context, path.c_str(), kWrpDeviceCuda,
                                        headers.c_str());
  };
  CudaRecording recording(library.functions(), segment->metadata_, bundle, header, warp_context,
                          arch, load_source);
  segment->TakeGraph(recording.Load());
  segment->is_compiled_here_ = recording.is_compiled_here();
  segment->BindParameters();
  segment->FindBoundaries();

  const std::string before = WarpErrorText(library.functions());
  if (warp_cuda.apic_get_cuda_graph_exec(segment->graph()) == nullptr) {
    throw Error(LP_LOAD_FAILED, segment->metadata_.Subject() + " could not be made a CUDA graph; " +
                                    WarpReason(library.functions(), before) + "; export it again.");
  }
  segment->ReadCommands(&recording);
  segment->Check(driver.functions().EventCreate(&segment->done_, cuda::kEventDisableTiming),
                 "event");
  return segment;
}

CudaSegment::~CudaSegment() {
  // Work that is still under way uses the graph's memory and code.
  cuda::Context popped = nullptr;
  const cuda::Functions& f = driver_.functions();
  if (f.CtxPushCurrent(context_) != cuda::kSuccess) return;
  f.CtxSynchronize();
  if (done_ != nullptr) f.EventDestroy(done_);
  DestroyGraph();
  f.CtxPopCurrent(&popped);
}

void CudaSegment::FindBoundaries() {
  const auto boundary = [&](const Port& port) -> Boundary& {
    const auto base = reinterpret_cast<cuda::DevicePtr>(port.data);
    for (Boundary& each : boundaries_) {
      if (each.region.base == base) return each;
    }
    boundaries_.push_back({{base, port.size}});
    return boundaries_.back();
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].data != nullptr) boundary(inputs_[i]).input = static_cast<int>(i);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].data == nullptr) continue;
    Boundary& each = boundary(outputs_[i]);
    each.output = static_cast<int>(i);
    each.is_written = true;
  }
  if (metadata_.record && metadata_.record->direct) {
    for (const size_t index : metadata_.record->direct->written_inputs) {
      if (inputs_[index].data != nullptr) boundary(inputs_[index]).is_written = true;
    }
  }
  buffers_.resize(boundaries_.size());
}

void CudaSegment::ReadCommands(CudaRecording* recording) {
  if (!metadata_.record || !metadata_.record->direct) return;
  // Two ports of one side over one allocation have no single buffer that could stand for it.
  size_t num_ports = 0;
  size_t num_shared = 0;
  for (const Port& port : inputs_) num_ports += port.data != nullptr ? 1 : 0;
  for (const Port& port : outputs_) num_ports += port.data != nullptr ? 1 : 0;
  for (const Boundary& each : boundaries_) {
    num_shared += each.input >= 0 && each.output >= 0 ? 1 : 0;
  }
  if (boundaries_.size() + num_shared != num_ports) return;

  const WarpCudaFunctions& warp_cuda = library_.EnableCuda();
  const auto read = [&](WarpGraph* loaded) {
    auto* cuda_graph = static_cast<cuda::Graph>(warp_cuda.apic_get_cuda_graph(loaded));
    return cuda_graph == nullptr ? std::nullopt
                                 : cuda::CommandList::Read(driver_, cuda_graph, RegionsOf(loaded));
  };
  std::optional<cuda::CommandList> commands = read(graph());
  if (!commands) return;
  const auto destroy = [this](WarpGraph* loaded) { warp_.apic_destroy_graph(loaded); };
  const std::unique_ptr<WarpGraph, decltype(destroy)> twin(recording->Load(), destroy);
  const std::optional<cuda::CommandList> witness = read(twin.get());
  if (witness && commands->IsTwinOf(*witness)) commands_ = std::move(commands);
}

std::vector<cuda::Region> CudaSegment::RegionsOf(WarpGraph* graph) const {
  std::vector<cuda::Region> regions;
  for (const Boundary& each : boundaries_) {
    const TensorSpec& spec =
        each.input >= 0 ? metadata_.inputs[each.input] : metadata_.outputs[each.output];
    void* data = warp_.apic_get_param_ptr(graph, spec.name.c_str());
    regions.push_back({reinterpret_cast<cuda::DevicePtr>(data), each.region.size});
  }
  return regions;
}

bool CudaSegment::IsCapturing(cuda::Stream stream) const {
  cuda::CaptureStatus status = cuda::kNotCapturing;
  Check(
      driver_.functions().StreamGetCaptureInfo(stream, &status, nullptr, nullptr, nullptr, nullptr),
      "stream");
  return status == cuda::kCapturing;
}

bool CudaSegment::PrefersDirect(const lp_const_buffer* inputs, const lp_buffer* outputs,
                                bool is_capturing) const {
  if (!commands_ || (!is_capturing && commands_->size() > kMaxDirectCommands)) return false;
  for (const Boundary& each : boundaries_) {
    if (each.input >= 0 && !each.is_written && !IsAligned(inputs[each.input])) return false;
    if (each.output >= 0 && !IsAligned(outputs[each.output])) return false;
  }
  return true;
}

void CudaSegment::RunChecked(const lp_const_buffer* inputs, const lp_buffer* outputs,
                             void* stream_handle) {
  const cuda::Functions& f = driver_.functions();
  auto* stream = static_cast<cuda::Stream>(stream_handle);
  const std::lock_guard<std::mutex> lock(mutex_);
  const cuda::CurrentContext current(driver_, context_);
  const bool is_capturing = IsCapturing(stream);
  // The graph's own memory is one for all streams. A captured run is ordered by whoever launches
  // the graph that it becomes part of.
  if (!is_capturing && has_run_ && stream != last_stream_) {
    Check(f.StreamWaitEvent(stream, done_, 0), "wait for the run before");
  }
  if (PrefersDirect(inputs, outputs, is_capturing)) {
    RunDirect(inputs, outputs, stream);
  } else {
    RunGraph(inputs, outputs, stream, is_capturing);
  }
  ZeroMasked(outputs, stream);
  if (!is_capturing) {
    Check(f.EventRecord(done_, stream), "event");
    has_run_ = true;
    last_stream_ = stream;
  }
}

void CudaSegment::RunDirect(const lp_const_buffer* inputs, const lp_buffer* outputs,
                            cuda::Stream stream) {
  const cuda::Functions& f = driver_.functions();
  for (size_t i = 0; i < boundaries_.size(); ++i) {
    const Boundary& each = boundaries_[i];
    buffers_[i] = each.region.base;
    if (each.output >= 0) {
      buffers_[i] = Address(outputs[each.output]);
    } else if (!each.is_written) {
      buffers_[i] = Address(inputs[each.input]);
    }
    // What is written in place starts from its input; the input itself stays as it is.
    if (each.is_written && each.input >= 0) {
      Check(f.MemcpyDtoDAsync(buffers_[i], Address(inputs[each.input]),
                              static_cast<size_t>(each.region.size), stream),
            "input copy");
    }
  }
  commands_->Enqueue(driver_, buffers_, stream);
}

void CudaSegment::RunGraph(const lp_const_buffer* inputs, const lp_buffer* outputs,
                           cuda::Stream stream, bool is_capturing) {
  const cuda::Functions& f = driver_.functions();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].data == nullptr) continue;
    Check(f.MemcpyDtoDAsync(reinterpret_cast<cuda::DevicePtr>(inputs_[i].data), Address(inputs[i]),
                            inputs_[i].size, stream),
          "input copy");
  }
  if (is_capturing) {
    JoinCapture(stream);
  } else if (!library_.EnableCuda().apic_launch(graph(), stream)) {
    throw Error(LP_RUN_FAILED, metadata_.Subject() + " failed to launch; Warp's last error was '" +
                                   Text(warp_.get_error_string()) + "'.");
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].data == nullptr) continue;
    Check(
        f.MemcpyDtoDAsync(Address(outputs[i]), reinterpret_cast<cuda::DevicePtr>(outputs_[i].data),
                          outputs_[i].size, stream),
        "output copy");
  }
}

void CudaSegment::JoinCapture(cuda::Stream stream) {
  const cuda::Functions& f = driver_.functions();
  cuda::CaptureStatus status = cuda::kNotCapturing;
  uint64_t id = 0;
  cuda::Graph captured = nullptr;
  const cuda::GraphNode* dependencies = nullptr;
  size_t count = 0;
  Check(f.StreamGetCaptureInfo(stream, &status, &id, &captured, &dependencies, &count), "capture");
  cuda::GraphNode node = nullptr;
  auto* own = static_cast<cuda::Graph>(library_.EnableCuda().apic_get_cuda_graph(graph()));
  const cuda::Result result = f.GraphAddChildGraphNode(&node, captured, dependencies, count, own);
  if (result != cuda::kSuccess) {
    throw Error(LP_RUN_FAILED,
                metadata_.Subject() + " cannot become part of a captured CUDA graph (" +
                    driver_.Describe(result) +
                    "): it allocates scratch memory (a scan, a sort, a sum) or has conditionals; "
                    "run without enable_cuda_graph, or split the step around it.");
  }
  Check(f.StreamUpdateCaptureDependencies(stream, &node, 1, cuda::kSetCaptureDependencies),
        "capture");
}

void CudaSegment::ZeroMasked(const lp_buffer* outputs, cuda::Stream stream) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].data != nullptr || outputs[i].size == 0) continue;
    Check(driver_.functions().MemsetD8Async(Address(outputs[i]), 0,
                                            static_cast<size_t>(outputs[i].size), stream),
          "fill");
  }
}

void CudaSegment::Check(cuda::Result result, const char* what) const {
  if (result == cuda::kSuccess) return;
  throw Error(LP_RUN_FAILED, metadata_.Subject() + " failed at its " + what + " (" +
                                 driver_.Describe(result) +
                                 "); an earlier CUDA error of the process may be the cause.");
}

}  // namespace leapp_policy
