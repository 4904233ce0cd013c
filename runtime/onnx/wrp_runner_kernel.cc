// SPDX-License-Identifier: Apache-2.0
#include "onnx/wrp_runner_kernel.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/cuda_driver.h"
#include "core/error.h"
#include "core/fork_watch.h"

namespace leapp_policy {
namespace {

constexpr const char* kMetadataAttribute = "runtime_metadata";
constexpr size_t kMaxRank = 64;  // as the metadata parser allows

struct DTypePair {
  DType dtype;
  ort::ElementType element;
};

constexpr DTypePair kDTypes[] = {
    {DType::kBool, ort::kBool},         {DType::kInt8, ort::kInt8},
    {DType::kUInt8, ort::kUint8},       {DType::kInt16, ort::kInt16},
    {DType::kUInt16, ort::kUint16},     {DType::kInt32, ort::kInt32},
    {DType::kUInt32, ort::kUint32},     {DType::kInt64, ort::kInt64},
    {DType::kUInt64, ort::kUint64},     {DType::kFloat16, ort::kFloat16},
    {DType::kBFloat16, ort::kBfloat16}, {DType::kFloat32, ort::kFloat},
    {DType::kFloat64, ort::kDouble},
};

std::string ElementName(ort::ElementType element) {
  for (const DTypePair& pair : kDTypes) {
    if (pair.element == element) return DTypeName(pair.dtype);
  }
  return "ONNX element type " + std::to_string(static_cast<int>(element));
}

bool Matches(DType dtype, ort::ElementType element) {
  return kDTypes[static_cast<size_t>(dtype)].element == element;
}

std::string ShapeText(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return text + "]";
}

// Turns a failed call of ONNX Runtime into our exception.
void Check(const ort::Api& api, ort::Status* status) {
  if (status == nullptr) return;
  const std::string message = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw Error(LP_INTERNAL, "ONNX Runtime refused a call of WrpRunner: " + message);
}

// A tensor's dtype and shape, as ONNX Runtime hands them out. Gives its handle back.
class TensorType {
 public:
  TensorType(const ort::Api& api, const ort::Value* value) : api_(api) {
    Check(api_, api_.GetTensorTypeAndShape(value, &info_));
  }
  ~TensorType() { api_.ReleaseTensorInfo(info_); }
  TensorType(const TensorType&) = delete;
  TensorType& operator=(const TensorType&) = delete;

  ort::ElementType element() const {
    ort::ElementType element = ort::kUndefined;
    Check(api_, api_.GetTensorElementType(info_, &element));
    return element;
  }

  size_t rank() const {
    size_t rank = 0;
    Check(api_, api_.GetDimensionsCount(info_, &rank));
    return rank;
  }

  // The first min(rank, kMaxRank) dimensions.
  std::array<int64_t, kMaxRank> dims() const {
    std::array<int64_t, kMaxRank> dims;
    Check(api_, api_.GetDimensions(info_, dims.data(), std::min(rank(), kMaxRank)));
    return dims;
  }

 private:
  const ort::Api& api_;
  ort::TensorInfo* info_ = nullptr;
};

void* TensorData(const ort::Api& api, const ort::Value* value) {
  void* data = nullptr;
  // The C interface has one accessor for both directions; inputs are only read.
  Check(api, api.GetTensorMutableData(const_cast<ort::Value*>(value), &data));
  return data;
}

std::string ReadMetadata(const ort::Api& api, const ort::KernelInfo* info) {
  size_t size = 0;
  ort::Status* status = api.KernelInfoGetAttributeString(info, kMetadataAttribute, nullptr, &size);
  if (status != nullptr || size == 0) {
    if (status != nullptr) api.ReleaseStatus(status);
    throw Error(LP_BAD_METADATA,
                "A WrpRunner node lacks the string attribute 'runtime_metadata'; export the model "
                "again.");
  }
  std::string text(size, '\0');
  Check(api, api.KernelInfoGetAttributeString(info, kMetadataAttribute, text.data(), &size));
  text.resize(size - 1);  // the size counts the terminating NUL
  return text;
}

// The bundle of a node, in host memory, and the device that the node runs on.
struct HostBundle {
  ByteSpan bytes;
  std::vector<uint8_t> copy;  // empty where ONNX Runtime has it in host memory
  std::string device = "cpu";
};

// The CUDA provider keeps constants in GPU memory; its uploads may still be under way.
std::vector<uint8_t> ReadFromGpu(const void* data, size_t size, int device) {
  const cuda::Driver& driver = cuda::Driver::Get();
  const cuda::Functions& f = driver.functions();
  const auto check = [&](cuda::Result result) {
    if (result == cuda::kSuccess) return;
    throw Error(LP_INTERNAL, "The bundle of a WrpRunner node could not be read from the GPU (" +
                                 driver.Describe(result) + ").");
  };
  cuda::Context context = nullptr;
  check(f.DevicePrimaryCtxRetain(&context, device));
  const cuda::CurrentContext current(driver, context);
  check(f.CtxSynchronize());
  std::vector<uint8_t> host(size);
  check(f.MemcpyDtoH(host.data(), reinterpret_cast<cuda::DevicePtr>(data), size));
  return host;
}

HostBundle ReadBundle(const ort::Api& api, const ort::KernelInfo* info, size_t index,
                      DeviceFamily family) {
  int is_constant = 0;
  const ort::Value* value = nullptr;
  Check(api, api.KernelInfoGetConstantInputTensor(info, index, &is_constant, &value));
  if (is_constant == 0 || value == nullptr) {
    throw Error(LP_BAD_BUNDLE,
                "The last input of a WrpRunner node, its bundle, must be a constant initializer of "
                "the model, got a value computed at run time; export the model again.");
  }
  const TensorType type(api, value);
  const size_t rank = type.rank();
  const std::array<int64_t, kMaxRank> dims = type.dims();
  if (type.element() != ort::kUint8 || rank != 1) {
    throw Error(LP_BAD_BUNDLE,
                "The last input of a WrpRunner node, its bundle, must be uint8 [n], "
                "got " +
                    ElementName(type.element()) + " " +
                    ShapeText(dims.data(), std::min(rank, kMaxRank)) + "; export the model again.");
  }
  HostBundle bundle;
  const void* data = TensorData(api, value);
  const size_t size = static_cast<size_t>(dims[0]);
  bundle.bytes = {static_cast<const uint8_t*>(data), size};
  if (family == DeviceFamily::kCpu) return bundle;

  const ort::MemoryInfo* memory = nullptr;
  ort::DeviceType where = ort::kDeviceCpu;
  int device = 0;
  Check(api, api.GetTensorMemoryInfo(value, &memory));
  api.MemoryInfoGetDeviceType(memory, &where);
  Check(api, api.MemoryInfoGetId(memory, &device));
  bundle.device = "cuda:" + std::to_string(device);
  if (where == ort::kDeviceGpu) {
    bundle.copy = ReadFromGpu(data, size, device);
    bundle.bytes = {bundle.copy.data(), bundle.copy.size()};
  }
  return bundle;
}

}  // namespace

WrpRunnerKernel::WrpRunnerKernel(const ort::Api& api, const ort::KernelInfo* info,
                                 DeviceFamily family)
    : api_(api), family_(family) {
  OpenSegment(info);
  inputs_.resize(segment_->metadata().inputs.size());
  outputs_.resize(segment_->metadata().outputs.size());
}

void WrpRunnerKernel::OpenSegment(const ort::KernelInfo* info) {
  const std::string metadata = ReadMetadata(api_, info);
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  Check(api_, api_.KernelInfoGetInputCount(info, &num_inputs));
  Check(api_, api_.KernelInfoGetOutputCount(info, &num_outputs));
  if (num_inputs == 0) {
    throw Error(LP_BAD_BUNDLE, "A WrpRunner node has no input; its last one must be the bundle.");
  }
  const HostBundle bundle = ReadBundle(api_, info, num_inputs - 1, family_);
  segment_ = Segment::Open(bundle.bytes, metadata, bundle.device);

  const Metadata& expected = segment_->metadata();
  if (expected.inputs.size() != num_inputs - 1 || expected.outputs.size() != num_outputs) {
    throw Error(LP_BAD_METADATA, expected.Subject() + " has " +
                                     std::to_string(expected.inputs.size()) + " inputs and " +
                                     std::to_string(expected.outputs.size()) +
                                     " outputs in its metadata, its WrpRunner node has " +
                                     std::to_string(num_inputs - 1) + " (without the bundle) and " +
                                     std::to_string(num_outputs) + "; export the model again.");
  }
}

void WrpRunnerKernel::CheckTensor(const TensorSpec& spec, const ort::Value* value) const {
  const TensorType type(api_, value);
  const ort::ElementType element = type.element();
  const size_t rank = type.rank();
  const std::array<int64_t, kMaxRank> dims = type.dims();
  if (Matches(spec.dtype, element) && rank == spec.shape.size() &&
      std::equal(spec.shape.begin(), spec.shape.end(), dims.begin())) {
    return;
  }
  throw Error(LP_INVALID_ARGUMENT,
              segment_->metadata().Subject() + " input '" + spec.name + "' must be " +
                  DTypeName(spec.dtype) + " " + ShapeText(spec.shape.data(), spec.shape.size()) +
                  ", got " + ElementName(element) + " " +
                  ShapeText(dims.data(), std::min(rank, kMaxRank)) +
                  "; feed what the model was exported for, or export it for this shape.");
}

void WrpRunnerKernel::ReadInput(const ort::KernelContext* context, size_t index) {
  const TensorSpec& spec = segment_->metadata().inputs[index];
  const ort::Value* value = nullptr;
  Check(api_, api_.KernelContextGetInput(context, index, &value));
  if (value == nullptr) {
    throw Error(LP_INVALID_ARGUMENT, segment_->metadata().Subject() + " input '" + spec.name +
                                         "' is left out; the node needs all of its inputs.");
  }
  CheckTensor(spec, value);
  inputs_[index] = {TensorData(api_, value), spec.num_bytes};
}

void WrpRunnerKernel::MakeOutput(ort::KernelContext* context, size_t index) {
  const TensorSpec& spec = segment_->metadata().outputs[index];
  ort::Value* value = nullptr;
  Check(api_,
        api_.KernelContextGetOutput(context, index, spec.shape.data(), spec.shape.size(), &value));
  if (value == nullptr) {
    throw Error(LP_INVALID_ARGUMENT, segment_->metadata().Subject() + " output '" + spec.name +
                                         "' is left out; the node needs all of its outputs.");
  }
  outputs_[index] = {TensorData(api_, value), spec.num_bytes};
}

WrpRunnerKernel::~WrpRunnerKernel() {
  // In a forked child Warp cannot be asked to unload anything: it might never answer.
  if (IsForkedChild()) (void)segment_.release();
}

void WrpRunnerKernel::Compute(ort::KernelContext* context) {
  ExpectNotForked(LP_RUN_FAILED, segment_->metadata().Subject());  // before a lock is taken
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < inputs_.size(); ++i) ReadInput(context, i);
  for (size_t i = 0; i < outputs_.size(); ++i) MakeOutput(context, i);
  void* stream = nullptr;
  if (family_ == DeviceFamily::kCuda) {
    Check(api_, api_.KernelContextGetGpuComputeStream(context, &stream));
  }
  segment_->Run(inputs_.data(), inputs_.size(), outputs_.data(), outputs_.size(), stream);
}

}  // namespace leapp_policy
