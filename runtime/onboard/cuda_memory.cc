// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/cuda_driver.h"
#include "core/error.h"
#include "onboard/model_memory.h"

namespace leapp_policy::onboard {
namespace {

// In the GPU's primary context, which ONNX Runtime and Warp use, too. Copies are between
// page-locked memory and the GPU: of these alone the driver says that they are done on return.
class CudaMemory : public ModelMemory {
 public:
  CudaMemory(int index, size_t bytes) : driver_(cuda::Driver::Get()), index_(index) {
    if (index >= driver_.device_count()) {
      throw Error(LP_WRONG_DEVICE, "The policy was packed for 'cuda:" + std::to_string(index) +
                                       "', this machine has " +
                                       std::to_string(driver_.device_count()) +
                                       " GPU(s); pack it for one of them.");
    }
    const cuda::Functions& f = driver_.functions();
    Check(f.DevicePrimaryCtxRetain(&context_, index));
    const cuda::CurrentContext current(driver_, context_);
    const size_t whole = (bytes / kAlignment + 1) * kAlignment;
    try {
      Check(f.MemAllocHost(&host_, whole));
      std::memset(host_, 0, whole);
      Check(f.MemAlloc(&device_, whole));
      Check(f.MemcpyHtoD(device_, host_, whole));
    } catch (...) {
      Release();
      throw;
    }
  }
  ~CudaMemory() override { Release(); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  uint8_t* host() noexcept override { return static_cast<uint8_t*>(host_); }
  uint8_t* model() noexcept override { return reinterpret_cast<uint8_t*>(device_); }

  bool ToModel(size_t offset, size_t bytes) noexcept override {
    if (bytes == 0) return true;
    return Within([&](const cuda::Functions& f) {
      return f.MemcpyHtoD(device_ + offset, host() + offset, bytes);
    });
  }
  bool ToHost(size_t offset, size_t bytes) noexcept override {
    if (bytes == 0) return true;
    return Within([&](const cuda::Functions& f) {
      return f.MemcpyDtoH(host() + offset, device_ + offset, bytes);
    });
  }
  bool Copy(size_t to, size_t from, size_t bytes) noexcept override {
    if (bytes == 0) return true;
    return Within([&](const cuda::Functions& f) {
      const cuda::Result result =
          f.MemcpyDtoDAsync(device_ + to, device_ + from, bytes, /*stream=*/nullptr);
      return result == cuda::kSuccess ? f.StreamSynchronize(nullptr) : result;
    });
  }
  const char* error() const noexcept override { return error_; }

 private:
  // Calls the driver in the GPU's context; keeps its words where it fails.
  template <typename Call>
  bool Within(Call&& call) noexcept {
    const cuda::Functions& f = driver_.functions();
    cuda::Result result = f.CtxPushCurrent(context_);
    if (result == cuda::kSuccess) {
      result = call(f);
      cuda::Context popped = nullptr;
      f.CtxPopCurrent(&popped);
    }
    if (result == cuda::kSuccess) return true;
    const char* text = nullptr;
    if (f.GetErrorString(result, &text) != cuda::kSuccess) text = nullptr;
    std::strncpy(error_, text == nullptr ? "the GPU failed" : text, sizeof(error_) - 1);
    return false;
  }

  void Check(cuda::Result result) const {
    if (result == cuda::kSuccess) return;
    throw Error(LP_LOAD_FAILED, "GPU 'cuda:" + std::to_string(index_) +
                                    "' gives the policy no memory (" + driver_.Describe(result) +
                                    "); end other programs on it.");
  }

  void Release() noexcept {
    Within([&](const cuda::Functions& f) {
      if (device_ != 0) f.MemFree(device_);
      if (host_ != nullptr) f.MemFreeHost(host_);
      return cuda::kSuccess;
    });
  }

  const cuda::Driver& driver_;
  const int index_;
  cuda::Context context_ = nullptr;
  void* host_ = nullptr;
  cuda::DevicePtr device_ = 0;
  char error_[256] = {};
};

}  // namespace

std::unique_ptr<ModelMemory> MakeCudaMemory(int index, size_t bytes) {
  return std::make_unique<CudaMemory>(index, bytes);
}

}  // namespace leapp_policy::onboard
