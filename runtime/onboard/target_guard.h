// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "onboard/deployment.h"

namespace leapp_policy::onboard {

// Makes what is sent out of what the policy wants: blended in from where the robot is, within the
// limits, and no faster than the largest rate. The rate is held last: a robot that stands outside
// of its limits is led back at that rate and never thrown.
class TargetGuard {
 public:
  // `spec` is borrowed. Allocates here and never later.
  TargetGuard(const TargetSpec& spec, int64_t period_ns, int64_t blend_in_ns);

  // Values that the next ones follow, [dim], in the sent order.
  void Place(const float* values) noexcept;
  // Begins a blend from the last values.
  void BeginBlend(int64_t now_ns) noexcept;
  // The values to send, [dim], from the policy's in the sent order, all finite.
  void Follow(const float* wanted, int64_t now_ns) noexcept;

  const float* values() const { return last_.data(); }
  bool placed() const { return placed_; }

 private:
  const TargetSpec& spec_;
  const int64_t blend_in_ns_;
  std::vector<float> last_, from_, max_step_;
  int64_t blend_began_ns_ = 0;
  bool placed_ = false;
};

}  // namespace leapp_policy::onboard
