// SPDX-License-Identifier: Apache-2.0
#include "torch/open_segments.h"

#include <c10/core/StorageImpl.h>

#include <utility>

namespace leapp_policy {
namespace {

// A tensor that was made in inference mode counts no versions.
int64_t Version(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

}  // namespace

OpenSegments::Entry::Entry(const at::Tensor& bundle)
    : tensor(bundle.getIntrusivePtr()),
      storage(bundle.storage().getWeakStorageImpl()),
      version(Version(bundle)) {}

bool OpenSegments::Entry::Holds(const at::Tensor& bundle) const {
  return storage._unsafe_get_target() == bundle.storage().unsafeGetStorageImpl() &&
         version == Version(bundle);
}

std::shared_ptr<const TorchSegment> OpenSegments::Get(const at::Tensor& bundle,
                                                      const std::string& runtime_metadata,
                                                      at::Device device) {
  const Key key{runtime_metadata, device.str()};
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = entries_.find(bundle.unsafeGetTensorImpl());
  if (found != entries_.end() && !found->second.Holds(bundle)) {
    entries_.erase(found);
    found = entries_.end();
  }
  if (found == entries_.end()) {
    for (auto each = entries_.begin(); each != entries_.end();) {
      each = each->second.Expired() ? entries_.erase(each) : std::next(each);
    }
    found = entries_.emplace(bundle.unsafeGetTensorImpl(), Entry(bundle)).first;
  }
  std::shared_ptr<const TorchSegment>& segment = found->second.segments[key];
  if (!segment) segment = std::make_shared<const TorchSegment>(bundle, runtime_metadata, device);
  return segment;
}

}  // namespace leapp_policy
