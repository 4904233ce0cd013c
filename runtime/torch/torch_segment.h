// SPDX-License-Identifier: Apache-2.0
// A segment whose inputs and outputs are torch tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "leapp_policy/runtime.h"

namespace leapp_policy {

// Dtype, shape and size of a boundary tensor.
struct TensorLayout {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t num_bytes;
};

// The outputs that runtime metadata name. Throws c10::Error where they are no metadata.
std::vector<TensorLayout> OutputLayouts(const std::string& runtime_metadata);

// An open segment on one device. Owns it.
class TorchSegment {
 public:
  // Opens the segment; `bundle` is uint8 [n] on any device and read once. Throws c10::Error.
  TorchSegment(const at::Tensor& bundle, const std::string& runtime_metadata, at::Device device);
  ~TorchSegment();
  TorchSegment(const TorchSegment&) = delete;
  TorchSegment& operator=(const TorchSegment&) = delete;

  // Runs it: on the CPU to the end, on CUDA on the current stream. `inputs` are in the order of the
  // metadata, of their dtypes and shapes, on this segment's device; the results are new tensors.
  // Throws c10::Error where an input is another, and where the replay fails.
  std::vector<at::Tensor> Run(const std::vector<at::Tensor>& inputs) const;

 private:
  void Check(const at::Tensor& input, const TensorLayout& layout) const;

  at::Device device_;
  lp_segment* segment_ = nullptr;
  std::string name_;
  std::vector<TensorLayout> inputs_;
  std::vector<TensorLayout> outputs_;
};

}  // namespace leapp_policy
