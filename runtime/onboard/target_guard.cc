// SPDX-License-Identifier: Apache-2.0
#include "onboard/target_guard.h"

#include <algorithm>

namespace leapp_policy::onboard {

TargetGuard::TargetGuard(const TargetSpec& spec, int64_t period_ns, int64_t blend_in_ns)
    : spec_(spec), blend_in_ns_(blend_in_ns), last_(spec.dim()), from_(spec.dim()) {
  for (const float each : spec.max_rate) {
    max_step_.push_back(static_cast<float>(each * 1e-9 * static_cast<double>(period_ns)));
  }
}

void TargetGuard::Place(const float* values) noexcept {
  std::copy(values, values + last_.size(), last_.begin());
  placed_ = true;
}

void TargetGuard::BeginBlend(int64_t now_ns) noexcept {
  std::copy(last_.begin(), last_.end(), from_.begin());
  blend_began_ns_ = now_ns;
}

void TargetGuard::Follow(const float* wanted, int64_t now_ns) noexcept {
  // A clock that runs back begins the blend again and never goes out beyond its ends.
  const int64_t passed = std::max<int64_t>(now_ns - blend_began_ns_, 0);
  const bool blends = placed_ && passed < blend_in_ns_;
  const float t =
      blends ? static_cast<float>(static_cast<double>(passed) / static_cast<double>(blend_in_ns_))
             : 1.0f;
  const float share = t * t * (3.0f - 2.0f * t);  // no jump in speed at either end
  for (size_t i = 0; i < last_.size(); ++i) {
    float value = wanted[i];
    if (blends) {
      // In double: the difference of two float32 may be infinite.
      const double from = from_[i];
      value = static_cast<float>(from + share * (static_cast<double>(wanted[i]) - from));
    }
    value = std::min(std::max(value, spec_.lower[i]), spec_.upper[i]);
    if (placed_) {
      value = std::min(std::max(value, last_[i] - max_step_[i]), last_[i] + max_step_[i]);
    }
    last_[i] = value;
  }
  placed_ = true;
}

}  // namespace leapp_policy::onboard
