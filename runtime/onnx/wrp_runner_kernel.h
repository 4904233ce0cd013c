// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/segment.h"
#include "onnx/ort_abi.h"

namespace leapp_policy {

// One node of an ONNX session: an open segment and the translation between ONNX Runtime's tensors
// and its buffers. Tensors are memory of the provider's device: host memory for the CPU provider,
// GPU memory for the CUDA provider, whose stream takes the work.
class WrpRunnerKernel {
 public:
  // Reads the node's metadata attribute and its constant bundle and opens the segment.
  //
  // Throws Error.
  WrpRunnerKernel(const ort::Api& api, const ort::KernelInfo* info, DeviceFamily family);
  ~WrpRunnerKernel();
  WrpRunnerKernel(const WrpRunnerKernel&) = delete;
  WrpRunnerKernel& operator=(const WrpRunnerKernel&) = delete;

  // Runs the node once. Any thread; calls are serialised.
  //
  // Throws Error when an input has another dtype or shape than the metadata, or the run fails.
  void Compute(ort::KernelContext* context);

 private:
  void OpenSegment(const ort::KernelInfo* info);
  void ReadInput(const ort::KernelContext* context, size_t index);
  void MakeOutput(ort::KernelContext* context, size_t index);
  void CheckTensor(const TensorSpec& spec, const ort::Value* value) const;

  const ort::Api& api_;
  const DeviceFamily family_;
  std::unique_ptr<Segment> segment_;
  std::mutex mutex_;  // guards the two vectors, which are kept so that a run allocates nothing
  std::vector<lp_const_buffer> inputs_;
  std::vector<lp_buffer> outputs_;
};

}  // namespace leapp_policy
