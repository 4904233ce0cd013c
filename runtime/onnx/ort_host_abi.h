// SPDX-License-Identifier: Apache-2.0
//
// What a program that opens models itself calls of ONNX Runtime's C ABI, in addition to what the
// operator needs (ort_abi.h). test/ort_header_check.cc holds every number against the official
// header.
#pragma once

#include "onnx/ort_abi.h"

namespace leapp_policy::ort {

// Opaque handles, as in ort_abi.h.
struct Env;
struct Session;
struct RunOptions;
struct IoBinding;
struct Allocator;
struct TypeInfo;
struct CudaProviderOptions;

enum LoggingLevel : int { kLogFatal = 4 };
enum GraphOptimization : int { kOptimizeAll = 99 };
enum ExecutionMode : int { kSequential = 0 };
enum AllocatorType : int { kDeviceAllocator = 0, kArenaAllocator = 1 };

enum HostSlot : size_t {
  kSlotCreateEnv = 3,
  kSlotCreateSession = 7,
  kSlotCreateSessionOptions = 10,
  kSlotSetSessionExecutionMode = 13,
  kSlotSetSessionLogSeverityLevel = 22,
  kSlotSetSessionGraphOptimizationLevel = 23,
  kSlotSetIntraOpNumThreads = 24,
  kSlotSetInterOpNumThreads = 25,
  kSlotSessionGetInputCount = 30,
  kSlotSessionGetOutputCount = 31,
  kSlotSessionGetInputTypeInfo = 33,
  kSlotSessionGetOutputTypeInfo = 34,
  kSlotSessionGetInputName = 36,
  kSlotSessionGetOutputName = 37,
  kSlotCreateRunOptions = 39,
  kSlotCreateTensorWithDataAsOrtValue = 49,
  kSlotCastTypeInfoToTensorInfo = 55,
  kSlotCreateMemoryInfo = 68,
  kSlotCreateCpuMemoryInfo = 69,
  kSlotAllocatorFree = 76,
  kSlotGetAllocatorWithDefaultOptions = 78,
  kSlotReleaseEnv = 92,
  kSlotReleaseMemoryInfo = 94,
  kSlotReleaseSession = 95,
  kSlotReleaseValue = 96,
  kSlotReleaseRunOptions = 97,
  kSlotReleaseTypeInfo = 98,
  kSlotReleaseSessionOptions = 100,
  kSlotAddSessionConfigEntry = 130,
  kSlotRunWithBinding = 133,
  kSlotCreateIoBinding = 134,
  kSlotReleaseIoBinding = 135,
  kSlotBindInput = 136,
  kSlotBindOutput = 137,
  kSlotAddRunConfigEntry = 165,
  kSlotAppendExecutionProviderCuda = 204,
  kSlotCreateCudaProviderOptions = 205,
  kSlotUpdateCudaProviderOptions = 206,
  kSlotReleaseCudaProviderOptions = 208,
  kSlotRegisterCustomOpsLibrary = 228,
};

// The same table as Api, seen by a program that owns sessions. Never constructed here.
class HostApi : public Api {
 public:
  Status* CreateEnv(LoggingLevel level, const char* id, Env** out) const {
    return At<Status*(LoggingLevel, const char*, Env**)>(kSlotCreateEnv)(level, id, out);
  }
  void ReleaseEnv(Env* env) const { At<void(Env*)>(kSlotReleaseEnv)(env); }

  Status* CreateSessionOptions(SessionOptions** out) const {
    return At<Status*(SessionOptions**)>(kSlotCreateSessionOptions)(out);
  }
  void ReleaseSessionOptions(SessionOptions* options) const {
    At<void(SessionOptions*)>(kSlotReleaseSessionOptions)(options);
  }
  Status* SetSessionExecutionMode(SessionOptions* options, ExecutionMode mode) const {
    return At<Status*(SessionOptions*, ExecutionMode)>(kSlotSetSessionExecutionMode)(options, mode);
  }
  Status* SetSessionLogSeverityLevel(SessionOptions* options, int level) const {
    return At<Status*(SessionOptions*, int)>(kSlotSetSessionLogSeverityLevel)(options, level);
  }
  Status* SetSessionGraphOptimizationLevel(SessionOptions* options, GraphOptimization level) const {
    return At<Status*(SessionOptions*, GraphOptimization)>(kSlotSetSessionGraphOptimizationLevel)(
        options, level);
  }
  Status* SetIntraOpNumThreads(SessionOptions* options, int threads) const {
    return At<Status*(SessionOptions*, int)>(kSlotSetIntraOpNumThreads)(options, threads);
  }
  Status* SetInterOpNumThreads(SessionOptions* options, int threads) const {
    return At<Status*(SessionOptions*, int)>(kSlotSetInterOpNumThreads)(options, threads);
  }
  Status* AddSessionConfigEntry(SessionOptions* options, const char* key, const char* value) const {
    return At<Status*(SessionOptions*, const char*, const char*)>(kSlotAddSessionConfigEntry)(
        options, key, value);
  }
  Status* RegisterCustomOpsLibrary(SessionOptions* options, const char* path) const {
    return At<Status*(SessionOptions*, const char*)>(kSlotRegisterCustomOpsLibrary)(options, path);
  }

  Status* CreateCudaProviderOptions(CudaProviderOptions** out) const {
    return At<Status*(CudaProviderOptions**)>(kSlotCreateCudaProviderOptions)(out);
  }
  Status* UpdateCudaProviderOptions(CudaProviderOptions* options, const char* const* keys,
                                    const char* const* values, size_t count) const {
    return At<Status*(CudaProviderOptions*, const char* const*, const char* const*, size_t)>(
        kSlotUpdateCudaProviderOptions)(options, keys, values, count);
  }
  void ReleaseCudaProviderOptions(CudaProviderOptions* options) const {
    At<void(CudaProviderOptions*)>(kSlotReleaseCudaProviderOptions)(options);
  }
  Status* AppendExecutionProviderCuda(SessionOptions* options,
                                      const CudaProviderOptions* cuda) const {
    return At<Status*(SessionOptions*, const CudaProviderOptions*)>(
        kSlotAppendExecutionProviderCuda)(options, cuda);
  }

  Status* CreateSession(const Env* env, const char* path, const SessionOptions* options,
                        Session** out) const {
    return At<Status*(const Env*, const char*, const SessionOptions*, Session**)>(
        kSlotCreateSession)(env, path, options, out);
  }
  void ReleaseSession(Session* session) const { At<void(Session*)>(kSlotReleaseSession)(session); }

  // One port of a session: `is_input` picks the side.
  Status* SessionGetCount(const Session* session, bool is_input, size_t* out) const {
    return At<Status*(const Session*, size_t*)>(
        is_input ? kSlotSessionGetInputCount : kSlotSessionGetOutputCount)(session, out);
  }
  Status* SessionGetName(const Session* session, bool is_input, size_t index, Allocator* allocator,
                         char** out) const {
    return At<Status*(const Session*, size_t, Allocator*, char**)>(
        is_input ? kSlotSessionGetInputName : kSlotSessionGetOutputName)(session, index, allocator,
                                                                         out);
  }
  Status* SessionGetTypeInfo(const Session* session, bool is_input, size_t index,
                             TypeInfo** out) const {
    return At<Status*(const Session*, size_t, TypeInfo**)>(
        is_input ? kSlotSessionGetInputTypeInfo : kSlotSessionGetOutputTypeInfo)(session, index,
                                                                                 out);
  }
  Status* CastTypeInfoToTensorInfo(const TypeInfo* info, const TensorInfo** out) const {
    return At<Status*(const TypeInfo*, const TensorInfo**)>(kSlotCastTypeInfoToTensorInfo)(info,
                                                                                           out);
  }
  void ReleaseTypeInfo(TypeInfo* info) const { At<void(TypeInfo*)>(kSlotReleaseTypeInfo)(info); }
  Status* GetAllocatorWithDefaultOptions(Allocator** out) const {
    return At<Status*(Allocator**)>(kSlotGetAllocatorWithDefaultOptions)(out);
  }
  Status* AllocatorFree(Allocator* allocator, void* memory) const {
    return At<Status*(Allocator*, void*)>(kSlotAllocatorFree)(allocator, memory);
  }

  Status* CreateCpuMemoryInfo(AllocatorType allocator, MemType type, MemoryInfo** out) const {
    return At<Status*(AllocatorType, MemType, MemoryInfo**)>(kSlotCreateCpuMemoryInfo)(allocator,
                                                                                       type, out);
  }
  Status* CreateMemoryInfo(const char* name, AllocatorType allocator, int index, MemType type,
                           MemoryInfo** out) const {
    return At<Status*(const char*, AllocatorType, int, MemType, MemoryInfo**)>(
        kSlotCreateMemoryInfo)(name, allocator, index, type, out);
  }
  void ReleaseMemoryInfo(MemoryInfo* info) const {
    At<void(MemoryInfo*)>(kSlotReleaseMemoryInfo)(info);
  }
  Status* CreateTensorWithData(const MemoryInfo* info, void* data, size_t bytes,
                               const int64_t* shape, size_t rank, ElementType type,
                               Value** out) const {
    return At<Status*(const MemoryInfo*, void*, size_t, const int64_t*, size_t, ElementType,
                      Value**)>(kSlotCreateTensorWithDataAsOrtValue)(info, data, bytes, shape, rank,
                                                                     type, out);
  }
  void ReleaseValue(Value* value) const { At<void(Value*)>(kSlotReleaseValue)(value); }

  Status* CreateIoBinding(Session* session, IoBinding** out) const {
    return At<Status*(Session*, IoBinding**)>(kSlotCreateIoBinding)(session, out);
  }
  void ReleaseIoBinding(IoBinding* binding) const {
    At<void(IoBinding*)>(kSlotReleaseIoBinding)(binding);
  }
  Status* BindInput(IoBinding* binding, const char* name, const Value* value) const {
    return At<Status*(IoBinding*, const char*, const Value*)>(kSlotBindInput)(binding, name, value);
  }
  Status* BindOutput(IoBinding* binding, const char* name, const Value* value) const {
    return At<Status*(IoBinding*, const char*, const Value*)>(kSlotBindOutput)(binding, name,
                                                                               value);
  }
  Status* RunWithBinding(Session* session, const RunOptions* options,
                         const IoBinding* binding) const {
    return At<Status*(Session*, const RunOptions*, const IoBinding*)>(kSlotRunWithBinding)(
        session, options, binding);
  }
  Status* CreateRunOptions(RunOptions** out) const {
    return At<Status*(RunOptions**)>(kSlotCreateRunOptions)(out);
  }
  void ReleaseRunOptions(RunOptions* options) const {
    At<void(RunOptions*)>(kSlotReleaseRunOptions)(options);
  }
  Status* AddRunConfigEntry(RunOptions* options, const char* key, const char* value) const {
    return At<Status*(RunOptions*, const char*, const char*)>(kSlotAddRunConfigEntry)(options, key,
                                                                                      value);
  }
};

}  // namespace leapp_policy::ort
