// SPDX-License-Identifier: Apache-2.0
//
// The small part of the CUDA driver's C interface that the runtime calls, opened at run time: a
// machine without a GPU can build and load this library. Every entry keeps its versioned name, so
// a struct below has the layout of exactly that version for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace leapp_policy::cuda {

// Opaque handles, as the driver has them.
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphNode = struct GraphNodeHandle*;
using Function = struct FunctionHandle*;
using DevicePtr = uint64_t;

enum Result : int { kSuccess = 0, kInvalidValue = 1 };
enum NodeType : int { kKernelNode = 0, kMemcpyNode = 1, kMemsetNode = 2, kEmptyNode = 5 };
enum CaptureStatus : int { kNotCapturing = 0, kCapturing = 1 };
enum MemoryType : int { kHostMemory = 1, kDeviceMemory = 2, kUnifiedMemory = 4 };
enum LaunchAttribute : int { kClusterDimension = 4 };

constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kSetCaptureDependencies = 1;  // replace, do not add

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNodeParams {
  Function func;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** params;
  void** extra;
  void* kern;
  Context context;
};

// CUDA_MEMCPY3D
struct MemcpySide {
  size_t x_in_bytes, y, z, lod;
  MemoryType type;
  const void* host;
  DevicePtr device;
  void* array;
  void* reserved;
  size_t pitch, height;
};
struct MemcpyNodeParams {
  MemcpySide source, target;
  size_t width_in_bytes, height, depth;
};

// CUDA_MEMSET_NODE_PARAMS
struct MemsetNodeParams {
  DevicePtr target;
  size_t pitch;
  unsigned value;
  unsigned element_size;
  size_t width, height;
};

union LaunchAttributeValue {
  char padding[64];
  struct {
    unsigned x, y, z;
  } cluster;
};

// Entry points by the driver's names, without the "cu" prefix and the version suffix.
struct Functions {
  Result (*GetErrorString)(Result, const char**);
  Result (*DevicePrimaryCtxRetain)(Context*, int device);
  Result (*CtxPushCurrent)(Context);
  Result (*CtxPopCurrent)(Context*);
  Result (*CtxSynchronize)();
  Result (*MemAlloc)(DevicePtr*, size_t);
  Result (*MemFree)(DevicePtr);
  Result (*MemAllocHost)(void**, size_t);
  Result (*MemFreeHost)(void*);
  Result (*MemcpyHtoD)(DevicePtr, const void*, size_t);
  Result (*MemcpyDtoH)(void*, DevicePtr, size_t);
  Result (*MemcpyDtoDAsync)(DevicePtr target, DevicePtr source, size_t, Stream);
  Result (*MemsetD8Async)(DevicePtr, unsigned char, size_t count, Stream);
  Result (*MemsetD16Async)(DevicePtr, unsigned short, size_t count, Stream);
  Result (*MemsetD32Async)(DevicePtr, unsigned, size_t count, Stream);
  Result (*StreamGetCaptureInfo)(Stream, CaptureStatus*, uint64_t* id, Graph*,
                                 const GraphNode** dependencies, size_t* count);
  Result (*StreamUpdateCaptureDependencies)(Stream, GraphNode*, size_t count, unsigned flags);
  Result (*StreamSynchronize)(Stream);
  Result (*StreamWaitEvent)(Stream, Event, unsigned flags);
  Result (*EventCreate)(Event*, unsigned flags);
  Result (*EventRecord)(Event, Stream);
  Result (*EventDestroy)(Event);
  Result (*GraphAddChildGraphNode)(GraphNode*, Graph, const GraphNode*, size_t count, Graph child);
  Result (*GraphGetNodes)(Graph, GraphNode*, size_t* count);
  Result (*GraphGetRootNodes)(Graph, GraphNode*, size_t* count);
  Result (*GraphNodeGetDependentNodes)(GraphNode, GraphNode*, size_t* count);
  Result (*GraphNodeGetType)(GraphNode, NodeType*);
  Result (*GraphKernelNodeGetParams)(GraphNode, KernelNodeParams*);
  Result (*GraphKernelNodeGetAttribute)(GraphNode, LaunchAttribute, LaunchAttributeValue*);
  Result (*GraphMemcpyNodeGetParams)(GraphNode, MemcpyNodeParams*);
  Result (*GraphMemsetNodeGetParams)(GraphNode, MemsetNodeParams*);
  // Null before CUDA 12.4: kernels then run through Warp's own graph.
  Result (*FuncGetParamInfo)(Function, size_t index, size_t* offset, size_t* size);
  Result (*KernelGetFunction)(Function*, void* kern);
  Result (*LaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned shared_bytes, Stream, void** params, void** extra);
};

// The driver, opened once per process and never closed.
class Driver {
 public:
  // Opens libcuda.so.1 and initialises the driver on the first call. Thread-safe.
  //
  // Throws Error(LP_WRONG_DEVICE) where there is no usable driver; a later call tries again.
  static const Driver& Get();

  const Functions& functions() const { return functions_; }
  int device_count() const { return device_count_; }

  // "CUDA_ERROR…: the driver's own words" of a result.
  std::string Describe(Result result) const;

 private:
  Driver();

  Functions functions_{};
  int device_count_ = 0;
};

// Makes a context current on this thread for a scope.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Context context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace leapp_policy::cuda
