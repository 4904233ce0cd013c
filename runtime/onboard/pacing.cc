// SPDX-License-Identifier: Apache-2.0
#include "onboard/pacing.h"

#include <errno.h>
#include <time.h>

#include "onboard/clock.h"

namespace leapp_policy::onboard {

void Pacing::Wait() const noexcept {
  timespec until{};
  until.tv_sec = planned_ns_ / kSecondNs;
  until.tv_nsec = planned_ns_ % kSecondNs;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

uint64_t Pacing::Advance(int64_t now_ns) noexcept {
  planned_ns_ += period_ns_;
  if (now_ns < planned_ns_) return 0;
  const int64_t behind = (now_ns - planned_ns_) / period_ns_ + 1;
  planned_ns_ += behind * period_ns_;
  return static_cast<uint64_t>(behind);
}

}  // namespace leapp_policy::onboard
