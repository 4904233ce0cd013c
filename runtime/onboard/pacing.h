// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace leapp_policy::onboard {

// Ticks at absolute times on CLOCK_MONOTONIC. A late tick does not move the later ones, and ticks
// that are over are left out instead of made up for in a burst.
class Pacing {
 public:
  explicit Pacing(int64_t period_ns) : period_ns_(period_ns) {}

  // The first tick is one period from `now_ns`.
  void Begin(int64_t now_ns) noexcept { planned_ns_ = now_ns + period_ns_; }

  // Sleeps until the planned tick.
  void Wait() const noexcept;

  // Plans the next tick at the end of a step; returns how many ticks were left out. A step that
  // ended after the tick that followed it has missed its deadline.
  uint64_t Advance(int64_t now_ns) noexcept;

  int64_t planned_ns() const { return planned_ns_; }

 private:
  const int64_t period_ns_;
  int64_t planned_ns_ = 0;
};

}  // namespace leapp_policy::onboard
