// SPDX-License-Identifier: Apache-2.0
//
// The small part of ONNX Runtime's stable C ABI that the operator calls, declared here so that
// building needs no ONNX Runtime header. The ABI only ever appends: a slot of the function table
// and a field of the operator struct keep their place for good. test/ort_header_check.cc holds
// every number below against the official header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leapp_policy::ort {

// The oldest API that the operator runs on: onnxruntime 1.17.
constexpr uint32_t kApiVersion = 17;

// Opaque handles. All belong to ONNX Runtime; "Release" slots give back what a call handed out.
struct Status;
struct SessionOptions;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct Value;
struct TensorInfo;
struct MemoryInfo;

enum ErrorCode : int { kFail = 1, kInvalidArgument = 2 };

enum ElementType : int {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};

enum Characteristic : int { kRequired = 0, kOptional = 1, kVariadic = 2 };
enum MemType : int { kMemDefault = 0 };
enum DeviceType : int { kDeviceCpu = 0, kDeviceGpu = 1 };

// Places in the function table OrtApi.
enum Slot : size_t {
  kSlotCreateStatus = 0,
  kSlotGetErrorMessage = 2,
  kSlotCreateCustomOpDomain = 26,
  kSlotCustomOpDomainAdd = 27,
  kSlotAddCustomOpDomain = 28,
  kSlotGetTensorMutableData = 51,
  kSlotGetTensorElementType = 60,
  kSlotGetDimensionsCount = 61,
  kSlotGetDimensions = 62,
  kSlotGetTensorTypeAndShape = 65,
  kSlotMemoryInfoGetId = 72,
  kSlotKernelInfoGetAttributeString = 87,
  kSlotKernelContextGetInputCount = 88,
  kSlotKernelContextGetOutputCount = 89,
  kSlotKernelContextGetInput = 90,
  kSlotKernelContextGetOutput = 91,
  kSlotReleaseStatus = 93,
  kSlotReleaseTensorTypeAndShapeInfo = 99,
  kSlotReleaseCustomOpDomain = 101,
  kSlotKernelContextGetGpuComputeStream = 193,
  kSlotGetTensorMemoryInfo = 194,
  kSlotMemoryInfoGetDeviceType = 225,
  kSlotKernelInfoGetInputCount = 230,
  kSlotKernelInfoGetOutputCount = 231,
  kSlotKernelInfoGetConstantInputTensor = 249,
};

// ONNX Runtime's function table (its struct OrtApi), seen as slots. Never constructed here.
class Api {
 public:
  Status* CreateStatus(ErrorCode code, const char* message) const {
    return At<Status*(ErrorCode, const char*)>(kSlotCreateStatus)(code, message);
  }
  const char* GetErrorMessage(const Status* status) const {
    return At<const char*(const Status*)>(kSlotGetErrorMessage)(status);
  }
  void ReleaseStatus(Status* status) const { At<void(Status*)>(kSlotReleaseStatus)(status); }

  Status* CreateCustomOpDomain(const char* name, CustomOpDomain** out) const {
    return At<Status*(const char*, CustomOpDomain**)>(kSlotCreateCustomOpDomain)(name, out);
  }
  Status* CustomOpDomainAdd(CustomOpDomain* domain, const struct CustomOp* op) const {
    return At<Status*(CustomOpDomain*, const CustomOp*)>(kSlotCustomOpDomainAdd)(domain, op);
  }
  Status* AddCustomOpDomain(SessionOptions* options, CustomOpDomain* domain) const {
    return At<Status*(SessionOptions*, CustomOpDomain*)>(kSlotAddCustomOpDomain)(options, domain);
  }
  void ReleaseCustomOpDomain(CustomOpDomain* domain) const {
    At<void(CustomOpDomain*)>(kSlotReleaseCustomOpDomain)(domain);
  }

  Status* GetTensorMutableData(Value* value, void** out) const {
    return At<Status*(Value*, void**)>(kSlotGetTensorMutableData)(value, out);
  }
  Status* GetTensorTypeAndShape(const Value* value, TensorInfo** out) const {
    return At<Status*(const Value*, TensorInfo**)>(kSlotGetTensorTypeAndShape)(value, out);
  }
  Status* GetTensorElementType(const TensorInfo* info, ElementType* out) const {
    return At<Status*(const TensorInfo*, ElementType*)>(kSlotGetTensorElementType)(info, out);
  }
  Status* GetDimensionsCount(const TensorInfo* info, size_t* out) const {
    return At<Status*(const TensorInfo*, size_t*)>(kSlotGetDimensionsCount)(info, out);
  }
  Status* GetDimensions(const TensorInfo* info, int64_t* out, size_t count) const {
    return At<Status*(const TensorInfo*, int64_t*, size_t)>(kSlotGetDimensions)(info, out, count);
  }
  void ReleaseTensorInfo(TensorInfo* info) const {
    At<void(TensorInfo*)>(kSlotReleaseTensorTypeAndShapeInfo)(info);
  }

  Status* GetTensorMemoryInfo(const Value* value, const MemoryInfo** out) const {
    return At<Status*(const Value*, const MemoryInfo**)>(kSlotGetTensorMemoryInfo)(value, out);
  }
  Status* MemoryInfoGetId(const MemoryInfo* info, int* out) const {
    return At<Status*(const MemoryInfo*, int*)>(kSlotMemoryInfoGetId)(info, out);
  }
  void MemoryInfoGetDeviceType(const MemoryInfo* info, DeviceType* out) const {
    At<void(const MemoryInfo*, DeviceType*)>(kSlotMemoryInfoGetDeviceType)(info, out);
  }

  Status* KernelInfoGetAttributeString(const KernelInfo* info, const char* name, char* out,
                                       size_t* size) const {
    return At<Status*(const KernelInfo*, const char*, char*, size_t*)>(
        kSlotKernelInfoGetAttributeString)(info, name, out, size);
  }
  Status* KernelInfoGetInputCount(const KernelInfo* info, size_t* out) const {
    return At<Status*(const KernelInfo*, size_t*)>(kSlotKernelInfoGetInputCount)(info, out);
  }
  Status* KernelInfoGetOutputCount(const KernelInfo* info, size_t* out) const {
    return At<Status*(const KernelInfo*, size_t*)>(kSlotKernelInfoGetOutputCount)(info, out);
  }
  Status* KernelInfoGetConstantInputTensor(const KernelInfo* info, size_t index, int* is_constant,
                                           const Value** out) const {
    return At<Status*(const KernelInfo*, size_t, int*, const Value**)>(
        kSlotKernelInfoGetConstantInputTensor)(info, index, is_constant, out);
  }

  Status* KernelContextGetInputCount(const KernelContext* context, size_t* out) const {
    return At<Status*(const KernelContext*, size_t*)>(kSlotKernelContextGetInputCount)(context,
                                                                                       out);
  }
  Status* KernelContextGetOutputCount(const KernelContext* context, size_t* out) const {
    return At<Status*(const KernelContext*, size_t*)>(kSlotKernelContextGetOutputCount)(context,
                                                                                        out);
  }
  Status* KernelContextGetInput(const KernelContext* context, size_t index,
                                const Value** out) const {
    return At<Status*(const KernelContext*, size_t, const Value**)>(kSlotKernelContextGetInput)(
        context, index, out);
  }
  Status* KernelContextGetGpuComputeStream(const KernelContext* context, void** out) const {
    return At<Status*(const KernelContext*, void**)>(kSlotKernelContextGetGpuComputeStream)(context,
                                                                                            out);
  }
  Status* KernelContextGetOutput(KernelContext* context, size_t index, const int64_t* dims,
                                 size_t rank, Value** out) const {
    return At<Status*(KernelContext*, size_t, const int64_t*, size_t, Value**)>(
        kSlotKernelContextGetOutput)(context, index, dims, rank, out);
  }

 protected:
  template <typename Signature>
  Signature* At(size_t slot) const {
    using Entry = void (*)();
    return reinterpret_cast<Signature*>(reinterpret_cast<const Entry*>(this)[slot]);
  }
};

struct ApiBase {
  const Api* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// An operator's table of callbacks (struct OrtCustomOp) as API 17 has it. ONNX Runtime reads no
// field beyond the version that it states.
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const Api*, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  ElementType (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  ElementType (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, KernelContext*);
  void (*KernelDestroy)(void*);
  Characteristic (*GetInputCharacteristic)(const CustomOp*, size_t);
  Characteristic (*GetOutputCharacteristic)(const CustomOp*, size_t);
  MemType (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const Api*, const KernelInfo*, void**);
  Status* (*KernelComputeV2)(void*, KernelContext*);
  Status* (*InferOutputShapeFn)(const CustomOp*, void*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
};

}  // namespace leapp_policy::ort
