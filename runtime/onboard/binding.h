// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "onboard/cause.h"
#include "onboard/deployment.h"
#include "onboard/pipeline.h"

namespace leapp_policy::onboard {

// The newest sensors packet as the runner sees it. `values` is null until the first has come.
struct Sensors {
  const float* values = nullptr;  // [sensor_floats]
  uint64_t sequence = 0;
  int64_t time_ns = 0;  // CLOCK_MONOTONIC of the sender
};

// Takes a policy's inputs from a sensor payload: by the recorded order, never filled in.
class Binding {
 public:
  // Both are borrowed and outlive the object.
  Binding(const Deployment& deployment, Pipeline* pipeline);

  // What is wrong with the signals at `now_ns`: none, or the first of missing, stale, not finite,
  // out of range; `start` adds the start envelope.
  Problem Check(const Sensors& sensors, int64_t now_ns, bool start) const noexcept;

  // Writes the models' inputs: order, clip, scale. The signals have been checked.
  void Fill(const Sensors& sensors) noexcept;

 private:
  struct Slice {
    const Part* part;
    const SignalSpec* signal;
    float* to;
  };

  const Deployment& deployment_;
  std::vector<Slice> slices_;
};

}  // namespace leapp_policy::onboard
