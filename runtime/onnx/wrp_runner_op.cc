// SPDX-License-Identifier: Apache-2.0
//
// Registers com.nvidia.warp::WrpRunner, version 1, with ONNX Runtime, for the CPU and CUDA
// providers:
//   inputs   data…, bundle (uint8 [n], constant)
//   outputs  in the order of the metadata
//   runtime_metadata  string attribute, see core/metadata.h
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"
#include "onnx/ort_abi.h"
#include "onnx/wrp_runner_kernel.h"

namespace leapp_policy {
namespace {

constexpr const char* kDomain = "com.nvidia.warp";
constexpr const char* kOpName = "WrpRunner";

// What ONNX Runtime keeps for one node. It passes no function table to a kernel's computation.
struct Node {
  Node(const ort::Api& table, const ort::KernelInfo* info, DeviceFamily family)
      : api(table), kernel(table, info, family) {}

  const ort::Api& api;
  WrpRunnerKernel kernel;
};

// Runs `body`; whatever it throws becomes a status. The ABI edge of this library.
template <typename Body>
ort::Status* Guard(const ort::Api& api, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (const Error& e) {
    const bool is_argument = e.status() == LP_INVALID_ARGUMENT;
    return api.CreateStatus(is_argument ? ort::kInvalidArgument : ort::kFail, e.what());
  } catch (const std::exception& e) {
    return api.CreateStatus(ort::kFail, e.what());
  } catch (...) {
    return api.CreateStatus(ort::kFail, "WrpRunner failed with an unknown exception.");
  }
}

template <DeviceFamily family>
ort::Status* CreateKernel(const ort::CustomOp*, const ort::Api* api, const ort::KernelInfo* info,
                          void** kernel) {
  *kernel = nullptr;
  return Guard(*api, [&] { *kernel = new Node(*api, info, family); });
}

template <DeviceFamily family>
const char* Provider(const ort::CustomOp*) {
  return family == DeviceFamily::kCpu ? "CPUExecutionProvider" : "CUDAExecutionProvider";
}

ort::Status* Compute(void* kernel, ort::KernelContext* context) {
  Node* node = static_cast<Node*>(kernel);
  return Guard(node->api, [&] { node->kernel.Compute(context); });
}

void DestroyKernel(void* kernel) { delete static_cast<Node*>(kernel); }

template <DeviceFamily family>
ort::CustomOp MakeOp() {
  ort::CustomOp op{};
  op.version = ort::kApiVersion;
  op.GetName = [](const ort::CustomOp*) { return kOpName; };
  op.GetExecutionProviderType = &Provider<family>;
  op.GetInputTypeCount = [](const ort::CustomOp*) -> size_t { return 1; };
  op.GetOutputTypeCount = op.GetInputTypeCount;
  op.GetInputType = [](const ort::CustomOp*, size_t) { return ort::kUndefined; };
  op.GetOutputType = op.GetInputType;
  op.GetInputCharacteristic = [](const ort::CustomOp*, size_t) { return ort::kVariadic; };
  op.GetOutputCharacteristic = op.GetInputCharacteristic;
  op.GetInputMemoryType = [](const ort::CustomOp*, size_t) { return ort::kMemDefault; };
  op.GetVariadicInputMinArity = [](const ort::CustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = op.GetVariadicInputMinArity;
  op.GetVariadicInputHomogeneity = [](const ort::CustomOp*) { return 0; };
  op.GetVariadicOutputHomogeneity = op.GetVariadicInputHomogeneity;
  op.GetStartVersion = [](const ort::CustomOp*) { return 1; };
  op.GetEndVersion = op.GetStartVersion;
  op.CreateKernelV2 = &CreateKernel<family>;
  op.KernelComputeV2 = &Compute;
  op.KernelDestroy = &DestroyKernel;
  return op;
}

// The domain of one ONNX Runtime in the process, made once: sessions keep pointers to it, and it
// may not be released before the last of them, so it is left to the end of the process.
ort::Status* GetDomain(const ort::Api& api, ort::CustomOpDomain** out) {
  static const ort::CustomOp cpu_op = MakeOp<DeviceFamily::kCpu>();
  static const ort::CustomOp cuda_op = MakeOp<DeviceFamily::kCuda>();
  static std::mutex mutex;
  static auto* const domains = new std::map<const ort::Api*, ort::CustomOpDomain*>();

  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = domains->find(&api);
  if (known != domains->end()) {
    *out = known->second;
    return nullptr;
  }
  ort::CustomOpDomain* domain = nullptr;
  if (ort::Status* status = api.CreateCustomOpDomain(kDomain, &domain)) return status;
  for (const ort::CustomOp* op : {&cpu_op, &cuda_op}) {
    if (ort::Status* status = api.CustomOpDomainAdd(domain, op)) {
      api.ReleaseCustomOpDomain(domain);
      return status;
    }
  }
  (*domains)[&api] = domain;
  *out = domain;
  return nullptr;
}

ort::Status* Register(const ort::Api& api, ort::SessionOptions* options) {
  ort::CustomOpDomain* domain = nullptr;
  if (ort::Status* status = GetDomain(api, &domain)) return status;
  return api.AddCustomOpDomain(options, domain);
}

// An ONNX Runtime older than the floor gives no table of our version, but every release has had
// CreateStatus() in the first slot of its oldest table.
ort::Status* RefuseOldRuntime(const ort::ApiBase& base) {
  const ort::Api* oldest = base.GetApi(1);
  if (oldest == nullptr) return nullptr;
  const std::string sentence = "leapp-policy needs onnxruntime 1." +
                               std::to_string(ort::kApiVersion) + " or newer, got " +
                               base.GetVersionString() + "; upgrade onnxruntime.";
  return oldest->CreateStatus(ort::kFail, sentence.c_str());
}

}  // namespace
}  // namespace leapp_policy

// The entry point that ONNX Runtime looks up by name when the library is registered.
extern "C" __attribute__((visibility("default"))) leapp_policy::ort::Status* RegisterCustomOps(
    leapp_policy::ort::SessionOptions* options, const leapp_policy::ort::ApiBase* base) {
  const leapp_policy::ort::Api* api = base->GetApi(leapp_policy::ort::kApiVersion);
  if (api == nullptr) return leapp_policy::RefuseOldRuntime(*base);
  return leapp_policy::Register(*api, options);
}
