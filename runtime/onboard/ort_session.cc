// SPDX-License-Identifier: Apache-2.0
#include "onboard/ort_session.h"

#include <cstring>

#include "core/device.h"
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

// ONNX Runtime keeps one CUDA graph for each of these numbers: one for each set of buffers.
constexpr const char* kGraphIds[] = {"1", "2"};

class OrtSession : public ModelSession {
 public:
  OrtSession(std::shared_ptr<OrtLibrary> library, const ModelSpec& model, const std::string& device)
      : library_(std::move(library)),
        api_(library_->api()),
        file_(model.file),
        name_("Model '" + model.name + "'"),
        device_(ParseDevice(device)),
        is_graph_(device_.family == DeviceFamily::kCuda) {
    try {
      if (!is_graph_ || !TryGraph([&] { Open(); })) Open();
      ReadPorts(true, &inputs_);
      ReadPorts(false, &outputs_);
    } catch (...) {
      Close();
      throw;
    }
  }
  ~OrtSession() override { Close(); }

  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  std::string note() const override { return note_; }

  void Bind(int parity, const std::vector<void*>& inputs,
            const std::vector<void*>& outputs) override {
    memory_of_[parity] = {inputs, outputs};
    const auto bind = [&] {
      BindSet(parity);
      // A graph is captured at its first run.
      if (is_graph_ && !Run(parity)) throw Error(LP_RUN_FAILED, error_);
    };
    if (!is_graph_) return bind();
    if (TryGraph(bind)) return;
    Open();
    for (int each = 0; each <= parity; ++each) BindSet(each);
  }

  bool Run(int parity) noexcept override {
    const Set& set = sets_[parity];
    ort::Status* status = api_.RunWithBinding(session_, set.options, set.binding);
    if (status == nullptr) return true;
    std::strncpy(error_, api_.GetErrorMessage(status), sizeof(error_) - 1);
    api_.ReleaseStatus(status);
    return false;
  }

  const char* error() const noexcept override { return error_; }

 private:
  struct Set {
    ort::IoBinding* binding = nullptr;
    ort::RunOptions* options = nullptr;
    std::vector<ort::Value*> values;
  };
  struct Memory {
    std::vector<void*> inputs, outputs;
  };

  void Check(ort::Status* status) const { library_->Check(status, name_); }

  // A model that cannot be one CUDA graph as a whole, because a part of it runs on the CPU or
  // cannot be captured, is opened again without. False: it must be, and note() says why.
  template <typename Attempt>
  bool TryGraph(Attempt&& attempt) {
    try {
      attempt();
      return true;
    } catch (const Error& e) {
      note_ = name_ + " runs without a CUDA graph, which takes longer: " + e.what();
    }
    Close();
    is_graph_ = false;
    return false;
  }

  void Open() {
    ort::SessionOptions* options = nullptr;
    Check(api_.CreateSessionOptions(&options));
    try {
      SetOptions(options);
      Check(api_.CreateSession(library_->env(), file_.c_str(), options, &session_));
    } catch (...) {
      api_.ReleaseSessionOptions(options);
      throw;
    }
    api_.ReleaseSessionOptions(options);
    if (device_.family == DeviceFamily::kCuda) {
      Check(api_.CreateMemoryInfo("Cuda", ort::kDeviceAllocator, device_.index, ort::kMemDefault,
                                  &memory_));
    } else {
      Check(api_.CreateCpuMemoryInfo(ort::kArenaAllocator, ort::kMemDefault, &memory_));
    }
  }

  void SetOptions(ort::SessionOptions* options) {
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
    if (device_.family == DeviceFamily::kCuda) AppendCuda(options);
  }

  void AppendCuda(ort::SessionOptions* options) {
    ort::CudaProviderOptions* cuda = nullptr;
    Check(api_.CreateCudaProviderOptions(&cuda));
    const std::string index = std::to_string(device_.index);
    const char* keys[] = {"device_id", "use_tf32", "enable_cuda_graph"};
    const char* values[] = {index.c_str(), "0", is_graph_ ? "1" : "0"};
    ort::Status* status = api_.UpdateCudaProviderOptions(cuda, keys, values, 3);
    if (status == nullptr) status = api_.AppendExecutionProviderCuda(options, cuda);
    api_.ReleaseCudaProviderOptions(cuda);
    Check(status);
  }

  void ReadPorts(bool is_input, std::vector<TensorSpec>* specs) {
    size_t count = 0;
    Check(api_.SessionGetCount(session_, is_input, &count));
    for (size_t i = 0; i < count; ++i) specs->push_back(ReadPort(is_input, i));
  }

  std::string ReadName(bool is_input, size_t index) {
    ort::Allocator* allocator = nullptr;  // ONNX Runtime's own
    char* name = nullptr;
    Check(api_.GetAllocatorWithDefaultOptions(&allocator));
    Check(api_.SessionGetName(session_, is_input, index, allocator, &name));
    std::string found = name;
    Check(api_.AllocatorFree(allocator, name));
    return found;
  }

  TensorSpec ReadPort(bool is_input, size_t index) {
    TensorSpec spec;
    spec.name = ReadName(is_input, index);
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
      throw Error(LP_BAD_METADATA, name_ + " has a port '" + spec.name +
                                       "' that is no tensor of a fixed shape; export it again.");
    }
    return spec;
  }

  void BindSet(int parity) {
    Set& set = sets_[parity];
    const Memory& memory = memory_of_[parity];
    Check(api_.CreateIoBinding(session_, &set.binding));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ort::Value* value = Wrap(&set, inputs_[i], memory.inputs[i]);
      Check(api_.BindInput(set.binding, inputs_[i].name.c_str(), value));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const ort::Value* value = Wrap(&set, outputs_[i], memory.outputs[i]);
      Check(api_.BindOutput(set.binding, outputs_[i].name.c_str(), value));
    }
    if (!is_graph_) return;
    Check(api_.CreateRunOptions(&set.options));
    Check(api_.AddRunConfigEntry(set.options, "gpu_graph_id", kGraphIds[parity]));
  }

  ort::Value* Wrap(Set* set, const TensorSpec& spec, void* memory) {
    ort::Value* value = nullptr;
    Check(api_.CreateTensorWithData(memory_, memory, spec.bytes(), spec.shape.data(),
                                    spec.shape.size(), ElementOf(spec.dtype), &value));
    set->values.push_back(value);
    return value;
  }

  void Close() {
    for (Set& set : sets_) {
      if (set.binding != nullptr) api_.ReleaseIoBinding(set.binding);
      if (set.options != nullptr) api_.ReleaseRunOptions(set.options);
      for (ort::Value* each : set.values) api_.ReleaseValue(each);
      set = {};
    }
    if (session_ != nullptr) api_.ReleaseSession(session_);
    if (memory_ != nullptr) api_.ReleaseMemoryInfo(memory_);
    session_ = nullptr;
    memory_ = nullptr;
  }

  std::shared_ptr<OrtLibrary> library_;
  const ort::HostApi& api_;
  const std::string file_, name_;
  const Device device_;
  bool is_graph_;
  std::string note_;
  ort::Session* session_ = nullptr;
  ort::MemoryInfo* memory_ = nullptr;
  std::vector<TensorSpec> inputs_, outputs_;
  Memory memory_of_[2];
  Set sets_[2];
  char error_[512] = {};
};

}  // namespace

std::unique_ptr<ModelSession> OpenOrtSession(std::shared_ptr<OrtLibrary> library,
                                             const ModelSpec& model, const std::string& device) {
  return std::make_unique<OrtSession>(std::move(library), model, device);
}

}  // namespace leapp_policy::onboard
