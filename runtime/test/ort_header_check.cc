// SPDX-License-Identifier: Apache-2.0
// Holds onnx/ort_abi.h against ONNX Runtime's official header; compiling it is the test. A slot or
// a field that is off would make the operator call another function of ONNX Runtime.
#include <onnxruntime_c_api.h>

#include "onnx/ort_host_abi.h"

namespace ort = leapp_policy::ort;

#define SLOT(ours, theirs)                                                          \
  static_assert(offsetof(OrtApi, theirs) == size_t{ort::ours} * sizeof(void (*)()), \
                #ours " is not the slot of OrtApi::" #theirs)

SLOT(kSlotCreateStatus, CreateStatus);
SLOT(kSlotGetErrorMessage, GetErrorMessage);
SLOT(kSlotCreateCustomOpDomain, CreateCustomOpDomain);
SLOT(kSlotCustomOpDomainAdd, CustomOpDomain_Add);
SLOT(kSlotAddCustomOpDomain, AddCustomOpDomain);
SLOT(kSlotGetTensorMutableData, GetTensorMutableData);
SLOT(kSlotGetTensorElementType, GetTensorElementType);
SLOT(kSlotGetDimensionsCount, GetDimensionsCount);
SLOT(kSlotGetDimensions, GetDimensions);
SLOT(kSlotGetTensorTypeAndShape, GetTensorTypeAndShape);
SLOT(kSlotMemoryInfoGetId, MemoryInfoGetId);
SLOT(kSlotKernelInfoGetAttributeString, KernelInfoGetAttribute_string);
SLOT(kSlotKernelContextGetInputCount, KernelContext_GetInputCount);
SLOT(kSlotKernelContextGetOutputCount, KernelContext_GetOutputCount);
SLOT(kSlotKernelContextGetInput, KernelContext_GetInput);
SLOT(kSlotKernelContextGetOutput, KernelContext_GetOutput);
SLOT(kSlotReleaseStatus, ReleaseStatus);
SLOT(kSlotReleaseTensorTypeAndShapeInfo, ReleaseTensorTypeAndShapeInfo);
SLOT(kSlotReleaseCustomOpDomain, ReleaseCustomOpDomain);
SLOT(kSlotKernelContextGetGpuComputeStream, KernelContext_GetGPUComputeStream);
SLOT(kSlotGetTensorMemoryInfo, GetTensorMemoryInfo);
SLOT(kSlotMemoryInfoGetDeviceType, MemoryInfoGetDeviceType);
SLOT(kSlotKernelInfoGetInputCount, KernelInfo_GetInputCount);
SLOT(kSlotKernelInfoGetOutputCount, KernelInfo_GetOutputCount);
SLOT(kSlotKernelInfoGetConstantInputTensor, KernelInfoGetConstantInput_tensor);

SLOT(kSlotCreateEnv, CreateEnv);
SLOT(kSlotCreateSession, CreateSession);
SLOT(kSlotCreateSessionOptions, CreateSessionOptions);
SLOT(kSlotSetSessionExecutionMode, SetSessionExecutionMode);
SLOT(kSlotSetSessionLogSeverityLevel, SetSessionLogSeverityLevel);
SLOT(kSlotSetSessionGraphOptimizationLevel, SetSessionGraphOptimizationLevel);
SLOT(kSlotSetIntraOpNumThreads, SetIntraOpNumThreads);
SLOT(kSlotSetInterOpNumThreads, SetInterOpNumThreads);
SLOT(kSlotSessionGetInputCount, SessionGetInputCount);
SLOT(kSlotSessionGetOutputCount, SessionGetOutputCount);
SLOT(kSlotSessionGetInputTypeInfo, SessionGetInputTypeInfo);
SLOT(kSlotSessionGetOutputTypeInfo, SessionGetOutputTypeInfo);
SLOT(kSlotSessionGetInputName, SessionGetInputName);
SLOT(kSlotSessionGetOutputName, SessionGetOutputName);
SLOT(kSlotCreateTensorWithDataAsOrtValue, CreateTensorWithDataAsOrtValue);
SLOT(kSlotCastTypeInfoToTensorInfo, CastTypeInfoToTensorInfo);
SLOT(kSlotCreateRunOptions, CreateRunOptions);
SLOT(kSlotAddRunConfigEntry, AddRunConfigEntry);
SLOT(kSlotReleaseRunOptions, ReleaseRunOptions);
SLOT(kSlotCreateMemoryInfo, CreateMemoryInfo);
SLOT(kSlotCreateCpuMemoryInfo, CreateCpuMemoryInfo);
SLOT(kSlotAllocatorFree, AllocatorFree);
SLOT(kSlotGetAllocatorWithDefaultOptions, GetAllocatorWithDefaultOptions);
SLOT(kSlotReleaseEnv, ReleaseEnv);
SLOT(kSlotReleaseMemoryInfo, ReleaseMemoryInfo);
SLOT(kSlotReleaseSession, ReleaseSession);
SLOT(kSlotReleaseValue, ReleaseValue);
SLOT(kSlotReleaseTypeInfo, ReleaseTypeInfo);
SLOT(kSlotReleaseSessionOptions, ReleaseSessionOptions);
SLOT(kSlotAddSessionConfigEntry, AddSessionConfigEntry);
SLOT(kSlotRunWithBinding, RunWithBinding);
SLOT(kSlotCreateIoBinding, CreateIoBinding);
SLOT(kSlotReleaseIoBinding, ReleaseIoBinding);
SLOT(kSlotBindInput, BindInput);
SLOT(kSlotBindOutput, BindOutput);
SLOT(kSlotAppendExecutionProviderCuda, SessionOptionsAppendExecutionProvider_CUDA_V2);
SLOT(kSlotCreateCudaProviderOptions, CreateCUDAProviderOptions);
SLOT(kSlotUpdateCudaProviderOptions, UpdateCUDAProviderOptions);
SLOT(kSlotReleaseCudaProviderOptions, ReleaseCUDAProviderOptions);
SLOT(kSlotRegisterCustomOpsLibrary, RegisterCustomOpsLibrary_V2);

#define FIELD(name)                                                           \
  static_assert(offsetof(ort::CustomOp, name) == offsetof(OrtCustomOp, name), \
                "CustomOp::" #name " is not where OrtCustomOp has it")

FIELD(version);
FIELD(CreateKernel);
FIELD(GetName);
FIELD(GetExecutionProviderType);
FIELD(GetInputType);
FIELD(GetInputTypeCount);
FIELD(GetOutputType);
FIELD(GetOutputTypeCount);
FIELD(KernelCompute);
FIELD(KernelDestroy);
FIELD(GetInputCharacteristic);
FIELD(GetOutputCharacteristic);
FIELD(GetInputMemoryType);
FIELD(GetVariadicInputMinArity);
FIELD(GetVariadicInputHomogeneity);
FIELD(GetVariadicOutputMinArity);
FIELD(GetVariadicOutputHomogeneity);
FIELD(CreateKernelV2);
FIELD(KernelComputeV2);
FIELD(InferOutputShapeFn);
FIELD(GetStartVersion);
FIELD(GetEndVersion);
static_assert(sizeof(ort::CustomOp) <= sizeof(OrtCustomOp), "CustomOp has fields of its own");

static_assert(offsetof(ort::ApiBase, GetApi) == offsetof(OrtApiBase, GetApi), "ApiBase::GetApi");
static_assert(offsetof(ort::ApiBase, GetVersionString) == offsetof(OrtApiBase, GetVersionString),
              "ApiBase::GetVersionString");

#define VALUE(ours, theirs) static_assert(int{ort::ours} == int{theirs}, #ours " is not " #theirs)

VALUE(kUndefined, ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);
VALUE(kFloat, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
VALUE(kUint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
VALUE(kInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8);
VALUE(kUint16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16);
VALUE(kInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16);
VALUE(kInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
VALUE(kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
VALUE(kBool, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);
VALUE(kFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
VALUE(kDouble, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE);
VALUE(kUint32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32);
VALUE(kUint64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
VALUE(kBfloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);
VALUE(kRequired, INPUT_OUTPUT_REQUIRED);
VALUE(kOptional, INPUT_OUTPUT_OPTIONAL);
VALUE(kVariadic, INPUT_OUTPUT_VARIADIC);
VALUE(kMemDefault, OrtMemTypeDefault);
VALUE(kLogFatal, ORT_LOGGING_LEVEL_FATAL);
VALUE(kOptimizeAll, ORT_ENABLE_ALL);
VALUE(kSequential, ORT_SEQUENTIAL);
VALUE(kArenaAllocator, OrtArenaAllocator);
VALUE(kFail, ORT_FAIL);
VALUE(kInvalidArgument, ORT_INVALID_ARGUMENT);

static_assert(ort::kApiVersion <= ORT_API_VERSION, "the header is older than the stated floor");

int main() { return 0; }
