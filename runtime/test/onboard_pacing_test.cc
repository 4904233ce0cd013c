// SPDX-License-Identifier: Apache-2.0
// Without these a late step could shift all later ones, or be followed by a burst.
#include "onboard/clock.h"
#include "onboard/pacing.h"
#include "test/check.h"

namespace {

using leapp_policy::onboard::MonotonicNs;
using leapp_policy::onboard::Pacing;

void TestTicksAreAbsolute() {
  Pacing pacing(100);
  pacing.Begin(1000);
  CHECK(pacing.planned_ns() == 1100);
  CHECK(pacing.Advance(1150) == 0 && pacing.planned_ns() == 1200);
  CHECK(pacing.Advance(1299) == 0 && pacing.planned_ns() == 1300);
}

void TestLateTicksAreLeftOut() {
  Pacing pacing(100);
  pacing.Begin(1000);
  CHECK(pacing.Advance(1200) == 1 && pacing.planned_ns() == 1300);
  CHECK(pacing.Advance(1950) == 6 && pacing.planned_ns() == 2000);
  CHECK(pacing.Advance(2001) == 0 && pacing.planned_ns() == 2100);
}

void TestWait() {
  constexpr int64_t kPeriod = 2'000'000;
  Pacing pacing(kPeriod);
  const int64_t began = MonotonicNs();
  pacing.Begin(began);
  for (int i = 0; i < 5; ++i) {
    pacing.Wait();
    CHECK(MonotonicNs() >= pacing.planned_ns());
    pacing.Advance(MonotonicNs());
  }
  CHECK(MonotonicNs() - began >= 5 * kPeriod);
  CHECK((pacing.planned_ns() - began) % kPeriod == 0);
}

}  // namespace

int main() {
  TestTicksAreAbsolute();
  TestLateTicksAreLeftOut();
  TestWait();
  return leapp_policy::test::Result();
}
