// SPDX-License-Identifier: Apache-2.0
//
// The torch operator for programs in C++, and for AOTInductor packages that they load:
//   leapp::warp_runner(Tensor[] inputs, str runtime_metadata, Tensor bundle) -> Tensor[]
//
// What Python has registered of the operator before this library was loaded stays as it is.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "torch/open_segments.h"
#include "torch/torch_segment.h"

namespace leapp_policy {
namespace {

constexpr const char* kName = "leapp::warp_runner";
constexpr const char* kSchema =
    "warp_runner(Tensor[] inputs, str runtime_metadata, Tensor bundle) -> Tensor[]";

std::vector<at::Tensor> Run(const std::vector<at::Tensor>& inputs,
                            const std::string& runtime_metadata, const at::Tensor& bundle) {
  // Kept to the end of the process: a segment may not be closed after torch has gone.
  static OpenSegments* open = new OpenSegments;
  const at::Device device = inputs.empty() ? bundle.device() : inputs.front().device();
  return open->Get(bundle, runtime_metadata, device)->Run(inputs);
}

std::vector<at::Tensor> Shapes(const std::vector<at::Tensor>& inputs,
                               const std::string& runtime_metadata, const at::Tensor& bundle) {
  std::vector<at::Tensor> outputs;
  const at::Device device = inputs.empty() ? bundle.device() : inputs.front().device();
  for (const TensorLayout& layout : OutputLayouts(runtime_metadata)) {
    outputs.push_back(at::empty(layout.shape, at::TensorOptions(layout.dtype).device(device)));
  }
  return outputs;
}

// Registers what is missing. A library that is unloaded takes its registrations with it.
class Registration {
 public:
  Registration() : library_(torch::Library::FRAGMENT, "leapp", std::nullopt, __FILE__, __LINE__) {
    if (!Find().has_value()) {
      library_.def(kSchema);
      library_.impl("warp_runner", c10::DispatchKey::Meta, &Shapes);
    }
    for (c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
      if (!Find()->hasKernelForDispatchKey(key)) library_.impl("warp_runner", key, &Run);
    }
  }

 private:
  static std::optional<c10::OperatorHandle> Find() {
    return c10::Dispatcher::singleton().findSchema({kName, ""});
  }

  torch::Library library_;
};

const Registration registration;

}  // namespace
}  // namespace leapp_policy
