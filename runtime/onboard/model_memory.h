// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace leapp_policy::onboard {

// One block of memory that models read and write, and the host's side of it. On a CPU both sides
// are the same bytes; on a GPU the host's side is page-locked, and what crosses is copied. A copy
// is done when its call returns; none allocates.
class ModelMemory {
 public:
  virtual ~ModelMemory() = default;

  virtual uint8_t* host() noexcept = 0;
  virtual uint8_t* model() noexcept = 0;

  // Brings a range to the other side. False: error() says why.
  virtual bool ToModel(size_t offset, size_t bytes) noexcept = 0;
  virtual bool ToHost(size_t offset, size_t bytes) noexcept = 0;
  // Copies a range of the models' side to another place of it.
  virtual bool Copy(size_t to, size_t from, size_t bytes) noexcept = 0;

  virtual const char* error() const noexcept = 0;
};

// Zeroed on both sides and aligned to kAlignment. Throws Error: the device is unknown, is not
// there, or has no room.
constexpr size_t kAlignment = 256;
std::unique_ptr<ModelMemory> MakeModelMemory(const std::string& device, size_t bytes);
using MakeMemory = std::function<std::unique_ptr<ModelMemory>(const std::string&, size_t)>;

// The one on a GPU; cuda_memory.cc.
std::unique_ptr<ModelMemory> MakeCudaMemory(int index, size_t bytes);

}  // namespace leapp_policy::onboard
