// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver.h"

#include <dlfcn.h>

#include "core/error.h"

namespace leapp_policy::cuda {
namespace {

constexpr const char* kDriverName = "libcuda.so.1";

[[noreturn]] void FailDriver(const std::string& reason) {
  throw Error(LP_WRONG_DEVICE, "A CUDA segment needs an NVIDIA driver, and '" +
                                   std::string(kDriverName) + "' " + reason +
                                   "; install or update the driver, or export the policy with "
                                   "device=cpu.");
}

template <typename Function>
void ResolveOptional(void* handle, const char* name, Function** slot) {
  *slot = reinterpret_cast<Function*>(dlsym(handle, name));
}

template <typename Function>
void Resolve(void* handle, const char* name, Function** slot) {
  ResolveOptional(handle, name, slot);
  if (*slot == nullptr) {
    FailDriver("has no function '" + std::string(name) + "', which CUDA 12 drivers have");
  }
}

}  // namespace

Driver::Driver() {
  void* handle = dlopen(kDriverName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) FailDriver("could not be opened (" + std::string(dlerror()) + ")");

  Functions& f = functions_;
  Resolve(handle, "cuGetErrorString", &f.GetErrorString);
  Resolve(handle, "cuDevicePrimaryCtxRetain", &f.DevicePrimaryCtxRetain);
  Resolve(handle, "cuCtxPushCurrent_v2", &f.CtxPushCurrent);
  Resolve(handle, "cuCtxPopCurrent_v2", &f.CtxPopCurrent);
  Resolve(handle, "cuCtxSynchronize", &f.CtxSynchronize);
  Resolve(handle, "cuMemAlloc_v2", &f.MemAlloc);
  Resolve(handle, "cuMemFree_v2", &f.MemFree);
  Resolve(handle, "cuMemAllocHost_v2", &f.MemAllocHost);
  Resolve(handle, "cuMemFreeHost", &f.MemFreeHost);
  Resolve(handle, "cuMemcpyHtoD_v2", &f.MemcpyHtoD);
  Resolve(handle, "cuMemcpyDtoH_v2", &f.MemcpyDtoH);
  Resolve(handle, "cuMemcpyDtoDAsync_v2", &f.MemcpyDtoDAsync);
  Resolve(handle, "cuMemsetD8Async", &f.MemsetD8Async);
  Resolve(handle, "cuMemsetD16Async", &f.MemsetD16Async);
  Resolve(handle, "cuMemsetD32Async", &f.MemsetD32Async);
  Resolve(handle, "cuStreamGetCaptureInfo_v2", &f.StreamGetCaptureInfo);
  Resolve(handle, "cuStreamUpdateCaptureDependencies", &f.StreamUpdateCaptureDependencies);
  Resolve(handle, "cuStreamSynchronize", &f.StreamSynchronize);
  Resolve(handle, "cuStreamWaitEvent", &f.StreamWaitEvent);
  Resolve(handle, "cuEventCreate", &f.EventCreate);
  Resolve(handle, "cuEventRecord", &f.EventRecord);
  Resolve(handle, "cuEventDestroy_v2", &f.EventDestroy);
  Resolve(handle, "cuGraphAddChildGraphNode", &f.GraphAddChildGraphNode);
  Resolve(handle, "cuGraphGetNodes", &f.GraphGetNodes);
  Resolve(handle, "cuGraphGetRootNodes", &f.GraphGetRootNodes);
  Resolve(handle, "cuGraphNodeGetDependentNodes", &f.GraphNodeGetDependentNodes);
  Resolve(handle, "cuGraphNodeGetType", &f.GraphNodeGetType);
  Resolve(handle, "cuGraphKernelNodeGetParams_v2", &f.GraphKernelNodeGetParams);
  Resolve(handle, "cuGraphKernelNodeGetAttribute", &f.GraphKernelNodeGetAttribute);
  Resolve(handle, "cuGraphMemcpyNodeGetParams", &f.GraphMemcpyNodeGetParams);
  Resolve(handle, "cuGraphMemsetNodeGetParams", &f.GraphMemsetNodeGetParams);
  ResolveOptional(handle, "cuFuncGetParamInfo", &f.FuncGetParamInfo);
  Resolve(handle, "cuKernelGetFunction", &f.KernelGetFunction);
  Resolve(handle, "cuLaunchKernel", &f.LaunchKernel);

  Result (*init)(unsigned) = nullptr;
  Result (*device_get_count)(int*) = nullptr;
  Resolve(handle, "cuInit", &init);
  Resolve(handle, "cuDeviceGetCount", &device_get_count);
  const Result started = init(0);
  if (started != kSuccess) FailDriver("could not be started (" + Describe(started) + ")");
  const Result counted = device_get_count(&device_count_);
  if (counted != kSuccess) FailDriver("counts no GPU (" + Describe(counted) + ")");
}

const Driver& Driver::Get() {
  static const Driver* const driver = new Driver();
  return *driver;
}

std::string Driver::Describe(Result result) const {
  const char* text = nullptr;
  if (functions_.GetErrorString(result, &text) != kSuccess || text == nullptr) {
    text = "unknown error";
  }
  return "CUDA error " + std::to_string(result) + ": " + text;
}

CurrentContext::CurrentContext(const Driver& driver, Context context) : driver_(driver) {
  const Result result = driver.functions().CtxPushCurrent(context);
  if (result != kSuccess) {
    throw Error(LP_RUN_FAILED, "The CUDA context of the segment's GPU cannot be used (" +
                                   driver.Describe(result) +
                                   "); was the GPU reset, or the process forked?");
  }
}

CurrentContext::~CurrentContext() {
  Context popped = nullptr;
  driver_.functions().CtxPopCurrent(&popped);
}

}  // namespace leapp_policy::cuda
