// SPDX-License-Identifier: Apache-2.0
#include "onboard/ort_session.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

struct DTypePair {
  ort::ElementType element;
  DType dtype;
};
constexpr DTypePair kDTypes[] = {
    {ort::kFloat, DType::kFloat32},     {ort::kDouble, DType::kFloat64},
    {ort::kBool, DType::kBool},         {ort::kUint8, DType::kUInt8},
    {ort::kInt8, DType::kInt8},         {ort::kInt16, DType::kInt16},
    {ort::kUint16, DType::kUInt16},     {ort::kInt32, DType::kInt32},
    {ort::kUint32, DType::kUInt32},     {ort::kInt64, DType::kInt64},
    {ort::kUint64, DType::kUInt64},     {ort::kFloat16, DType::kFloat16},
    {ort::kBfloat16, DType::kBFloat16},
};

ort::ElementType ElementOf(DType dtype) {
  for (const DTypePair& each : kDTypes) {
    if (each.dtype == dtype) return each.element;
  }
  return ort::kUndefined;
}

class OrtSession : public ModelSession {
 public:
  OrtSession(std::shared_ptr<OrtLibrary> library, const ModelSpec& model, const std::string& device)
      : library_(std::move(library)),
        api_(library_->api()),
        subject_("Model '" + model.name + "'") {
    try {
      Open(model, device);
    } catch (...) {
      Release();
      throw;
    }
  }
  ~OrtSession() override { Release(); }

  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

  void Bind(int parity, const std::vector<void*>& inputs,
            const std::vector<void*>& outputs) override {
    Set& set = sets_[parity];
    set.inputs = Wrap(inputs_, inputs);
    set.outputs = Wrap(outputs_, outputs);
    if (is_cuda_) return;
    Check(api_.CreateIoBinding(session_, &set.binding));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Check(api_.BindInput(set.binding, input_names_[i], set.inputs[i]));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Check(api_.BindOutput(set.binding, output_names_[i], set.outputs[i]));
    }
  }

  bool Run(int parity) noexcept override {
    Set& set = sets_[parity];
    ort::Status* status =
        is_cuda_
            ? api_.Run(session_, nullptr, input_names_.data(), set.inputs.data(), set.inputs.size(),
                       output_names_.data(), set.outputs.size(), set.outputs.data())
            : api_.RunWithBinding(session_, nullptr, set.binding);
    if (status == nullptr) return true;
    std::strncpy(error_, api_.GetErrorMessage(status), sizeof(error_) - 1);
    api_.ReleaseStatus(status);
    return false;
  }

  const char* error() const noexcept override { return error_; }

 private:
  struct Set {
    ort::IoBinding* binding = nullptr;
    std::vector<ort::Value*> inputs, outputs;
  };

  void Check(ort::Status* status) const { library_->Check(status, subject_); }

  void Open(const ModelSpec& model, const std::string& device) {
    is_cuda_ = device != "cpu";
    ort::SessionOptions* options = nullptr;
    Check(api_.CreateSessionOptions(&options));
    try {
      SetOptions(options, device);
      Check(api_.CreateSession(library_->env(), model.file.c_str(), options, &session_));
    } catch (...) {
      api_.ReleaseSessionOptions(options);
      throw;
    }
    api_.ReleaseSessionOptions(options);
    Check(api_.CreateCpuMemoryInfo(ort::kArenaAllocator, ort::kMemDefault, &memory_));
    ReadPorts(true, &inputs_, &input_names_);
    ReadPorts(false, &outputs_, &output_names_);
  }

  void SetOptions(ort::SessionOptions* options, const std::string& device) {
    Check(api_.SetSessionGraphOptimizationLevel(options, ort::kOptimizeAll));
    Check(api_.SetSessionExecutionMode(options, ort::kSequential));
    Check(api_.SetIntraOpNumThreads(options, 1));
    Check(api_.SetInterOpNumThreads(options, 1));
    Check(api_.SetSessionLogSeverityLevel(options, ort::kLogFatal));
    Check(api_.AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0"));
    Check(api_.AddSessionConfigEntry(options, "session.inter_op.allow_spinning", "0"));
    if (!library_->op().empty()) {
      Check(api_.RegisterCustomOpsLibrary(options, library_->op().c_str()));
    }
    if (is_cuda_) AppendCuda(options, device);
  }

  void AppendCuda(ort::SessionOptions* options, const std::string& device) {
    const std::string index = device.size() > 5 ? device.substr(5) : "0";
    if (device.compare(0, 4, "cuda") != 0 || index.empty() ||
        index.find_first_not_of("0123456789") != std::string::npos) {
      throw Error(LP_INVALID_ARGUMENT,
                  "'device' of deploy.json must be cpu, cuda or cuda:<index>, got '" + device +
                      "'; pack the policy again.");
    }
    ort::CudaProviderOptions* cuda = nullptr;
    Check(api_.CreateCudaProviderOptions(&cuda));
    const char* keys[] = {"device_id", "use_tf32"};
    const char* values[] = {index.c_str(), "0"};
    ort::Status* status = api_.UpdateCudaProviderOptions(cuda, keys, values, 2);
    if (status == nullptr) status = api_.AppendExecutionProviderCuda(options, cuda);
    api_.ReleaseCudaProviderOptions(cuda);
    Check(status);
  }

  void ReadPorts(bool is_input, std::vector<TensorSpec>* specs, std::vector<const char*>* names) {
    size_t count = 0;
    Check(api_.SessionGetCount(session_, is_input, &count));
    Check(api_.GetAllocatorWithDefaultOptions(&allocator_));
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      Check(api_.SessionGetName(session_, is_input, i, allocator_, &name));
      names->push_back(name);
      specs->push_back(ReadPort(is_input, i, name));
    }
  }

  TensorSpec ReadPort(bool is_input, size_t index, const char* name) {
    TensorSpec spec;
    spec.name = name;
    ort::TypeInfo* type = nullptr;
    Check(api_.SessionGetTypeInfo(session_, is_input, index, &type));
    const ort::TensorInfo* info = nullptr;
    ort::ElementType element = ort::kUndefined;
    size_t rank = 0;
    ort::Status* status = api_.CastTypeInfoToTensorInfo(type, &info);
    const bool is_tensor = status == nullptr && info != nullptr;
    if (is_tensor) status = api_.GetTensorElementType(info, &element);
    if (is_tensor && status == nullptr) status = api_.GetDimensionsCount(info, &rank);
    spec.shape.resize(rank);
    if (is_tensor && status == nullptr) status = api_.GetDimensions(info, spec.shape.data(), rank);
    api_.ReleaseTypeInfo(type);
    Check(status);
    for (const DTypePair& each : kDTypes) {
      if (each.element == element) spec.dtype = each.dtype;
    }
    bool fixed = is_tensor && ElementOf(spec.dtype) == element;
    for (const int64_t each : spec.shape) fixed = fixed && each >= 0;
    if (!fixed) {
      throw Error(LP_BAD_METADATA, subject_ + " has a port '" + spec.name +
                                       "' that is no tensor of a fixed shape; export it again.");
    }
    return spec;
  }

  std::vector<ort::Value*> Wrap(const std::vector<TensorSpec>& specs,
                                const std::vector<void*>& memory) {
    std::vector<ort::Value*> values;
    for (size_t i = 0; i < specs.size(); ++i) {
      ort::Value* value = nullptr;
      Check(api_.CreateTensorWithData(memory_, memory[i], specs[i].bytes(), specs[i].shape.data(),
                                      specs[i].shape.size(), ElementOf(specs[i].dtype), &value));
      values.push_back(value);
    }
    return values;
  }

  void Release() {
    for (Set& set : sets_) {
      if (set.binding != nullptr) api_.ReleaseIoBinding(set.binding);
      for (ort::Value* each : set.inputs) api_.ReleaseValue(each);
      for (ort::Value* each : set.outputs) api_.ReleaseValue(each);
    }
    for (const auto* names : {&input_names_, &output_names_}) {
      for (const char* each : *names) {
        if (ort::Status* status = api_.AllocatorFree(allocator_, const_cast<char*>(each))) {
          api_.ReleaseStatus(status);
        }
      }
    }
    if (session_ != nullptr) api_.ReleaseSession(session_);
    if (memory_ != nullptr) api_.ReleaseMemoryInfo(memory_);
  }

  std::shared_ptr<OrtLibrary> library_;
  const ort::HostApi& api_;
  std::string subject_;
  bool is_cuda_ = false;
  ort::Session* session_ = nullptr;
  ort::MemoryInfo* memory_ = nullptr;
  ort::Allocator* allocator_ = nullptr;  // ONNX Runtime's own
  std::vector<TensorSpec> inputs_, outputs_;
  std::vector<const char*> input_names_, output_names_;
  Set sets_[2];
  char error_[512] = {};
};

}  // namespace

OrtLibrary::OrtLibrary(const LibrarySpec& libraries) : op_(libraries.op) {
  // The operator library looks for Warp when the first segment is opened.
  if (!libraries.warp_dir.empty()) {
    ::setenv("LEAPP_POLICY_WARP_LIBRARY_DIR", libraries.warp_dir.c_str(), 1);
  }
  void* handle = ::dlopen(libraries.onnxruntime.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error(LP_LOAD_FAILED, "ONNX Runtime '" + libraries.onnxruntime + "' cannot be loaded (" +
                                    ::dlerror() + "); pack the policy for this machine.");
  }
  using GetBase = const ort::ApiBase* (*)();
  const auto get = reinterpret_cast<GetBase>(::dlsym(handle, "OrtGetApiBase"));
  const ort::ApiBase* base = get == nullptr ? nullptr : get();
  version_ = base == nullptr ? "unknown" : base->GetVersionString();
  const ort::Api* api = base == nullptr ? nullptr : base->GetApi(ort::kApiVersion);
  if (api == nullptr) {
    throw Error(LP_LOAD_FAILED, "'" + libraries.onnxruntime +
                                    "' must be ONNX Runtime 1.17 or newer, got version " +
                                    version_ + "; pack the policy with a newer one.");
  }
  api_ = static_cast<const ort::HostApi*>(api);
  Check(api_->CreateEnv(ort::kLogFatal, "leapp-run", &env_), "ONNX Runtime's environment");
}

OrtLibrary::~OrtLibrary() {
  if (env_ != nullptr) api_->ReleaseEnv(env_);
}

void OrtLibrary::Check(ort::Status* status, const std::string& what) const {
  if (status == nullptr) return;
  std::string reason = api_->GetErrorMessage(status);
  api_->ReleaseStatus(status);
  for (char& each : reason) {
    if (each == '\n') each = ' ';
  }
  throw Error(LP_LOAD_FAILED, what + " was refused by ONNX Runtime " + version_ + ": " + reason);
}

std::unique_ptr<ModelSession> OpenOrtSession(std::shared_ptr<OrtLibrary> library,
                                             const ModelSpec& model, const std::string& device) {
  return std::make_unique<OrtSession>(std::move(library), model, device);
}

}  // namespace leapp_policy::onboard
