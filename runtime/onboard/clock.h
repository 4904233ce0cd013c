// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cstdint>

namespace leapp_policy::onboard {

constexpr int64_t kSecondNs = 1'000'000'000;

// CLOCK_MONOTONIC: a step of the wall clock does not move it.
inline int64_t MonotonicNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

}  // namespace leapp_policy::onboard
