// SPDX-License-Identifier: Apache-2.0
#include "onboard/model_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/device.h"

namespace leapp_policy::onboard {
namespace {

class HostMemory : public ModelMemory {
 public:
  explicit HostMemory(size_t bytes) {
    const size_t whole = (bytes / kAlignment + 1) * kAlignment;
    bytes_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, whole)));
    if (bytes_ == nullptr) throw std::bad_alloc();
    std::memset(bytes_.get(), 0, whole);
  }

  uint8_t* host() noexcept override { return bytes_.get(); }
  uint8_t* model() noexcept override { return bytes_.get(); }
  bool ToModel(size_t, size_t) noexcept override { return true; }
  bool ToHost(size_t, size_t) noexcept override { return true; }
  bool Copy(size_t to, size_t from, size_t bytes) noexcept override {
    std::memcpy(bytes_.get() + to, bytes_.get() + from, bytes);
    return true;
  }
  const char* error() const noexcept override { return ""; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<uint8_t, Free> bytes_;
};

}  // namespace

std::unique_ptr<ModelMemory> MakeModelMemory(const std::string& device, size_t bytes) {
  const Device parsed = ParseDevice(device);
  if (parsed.family == DeviceFamily::kCuda) return MakeCudaMemory(parsed.index, bytes);
  return std::make_unique<HostMemory>(bytes);
}

}  // namespace leapp_policy::onboard
