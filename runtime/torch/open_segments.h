// SPDX-License-Identifier: Apache-2.0
// The segments that are open, by the tensor that holds their bundle.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "torch/torch_segment.h"

namespace leapp_policy {

// Opens each segment once, and closes it after its bundle tensor has died. A tensor is known by the
// address of its implementation, which a weak reference keeps from being used again; megabytes are
// neither hashed nor compared in a step. Any thread may call.
class OpenSegments {
 public:
  // Returns the open segment, opening it if need be. Throws c10::Error as TorchSegment does.
  std::shared_ptr<const TorchSegment> Get(const at::Tensor& bundle,
                                          const std::string& runtime_metadata, at::Device device);

 private:
  using Key = std::pair<std::string, std::string>;  // metadata, device

  struct Entry {
    explicit Entry(const at::Tensor& bundle);
    // Whether the tensor still holds the bytes that were opened.
    bool Holds(const at::Tensor& bundle) const;
    bool Expired() const { return tensor.expired(); }

    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t version;
    std::map<Key, std::shared_ptr<const TorchSegment>> segments;
  };

  std::mutex mutex_;
  std::map<const c10::TensorImpl*, Entry> entries_;
};

}  // namespace leapp_policy
