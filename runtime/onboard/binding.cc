// SPDX-License-Identifier: Apache-2.0
#include "onboard/binding.h"

#include <cmath>

namespace leapp_policy::onboard {
namespace {

// Clocks of one machine agree; a packet from further ahead has a wrong time stamp.
constexpr int64_t kMostAheadNs = 50'000'000;

bool IsStale(const SignalSpec& signal, const Sensors& sensors, int64_t now_ns) {
  int64_t age = 0;
  // A sender may write any time, also one whose distance has no int64.
  if (__builtin_sub_overflow(now_ns, sensors.time_ns, &age)) return true;
  if (age < -kMostAheadNs || age > signal.stale_after_ns) return true;
  if (!signal.age_index) return false;
  // Written so that NaN is stale.
  const double own = sensors.values[*signal.age_index];
  return !(own >= 0.0 &&
           static_cast<double>(age) + own * 1e9 <= static_cast<double>(signal.stale_after_ns));
}

bool IsFinite(const SignalSpec& signal, const float* values) {
  for (const uint32_t each : signal.index) {
    if (!std::isfinite(values[each])) return false;
  }
  return true;
}

bool IsWithin(const SignalSpec& signal, const Bounds& bounds, const float* values) {
  if (bounds.empty()) return true;
  for (size_t i = 0; i < signal.index.size(); ++i) {
    const float value = values[signal.index[i]];
    if (!(value >= bounds.low[i] && value <= bounds.high[i])) return false;
  }
  return true;
}

}  // namespace

Binding::Binding(const Deployment& deployment, Pipeline* pipeline) : deployment_(deployment) {
  for (size_t m = 0; m < deployment.models.size(); ++m) {
    const ModelSpec& model = deployment.models[m];
    for (size_t i = 0; i < model.inputs.size(); ++i) {
      if (model.inputs[i].kind != SourceKind::kSignal) continue;
      float* to = pipeline->signal_input(m, i);
      for (const Part& part : model.inputs[i].parts) {
        const SignalSpec& signal = deployment.signals[part.signal];
        slices_.push_back({&part, &signal, to});
        to += signal.index.size();
      }
    }
  }
}

Problem Binding::Check(const Sensors& sensors, int64_t now_ns, bool start) const noexcept {
  if (sensors.values == nullptr) return {Cause::kNoSensors, -1};
  const bool ranges = deployment_.safety.on_range != RangePolicy::kOff;
  for (size_t i = 0; i < deployment_.signals.size(); ++i) {
    const SignalSpec& signal = deployment_.signals[i];
    const int32_t index = static_cast<int32_t>(i);
    if (IsStale(signal, sensors, now_ns)) {
      return {signal.is_command ? Cause::kStaleCommand : Cause::kStaleSensor, index};
    }
    if (!IsFinite(signal, sensors.values)) return {Cause::kNotFiniteSensor, index};
    if (ranges && !IsWithin(signal, signal.range, sensors.values)) {
      return {Cause::kOutOfRange, index};
    }
    if (start && !IsWithin(signal, signal.start, sensors.values)) {
      return {Cause::kOutsideEnvelope, index};
    }
  }
  for (const uint32_t each : deployment_.targets.measured) {
    if (!std::isfinite(sensors.values[each])) return {Cause::kNotFiniteSensor, -1};
  }
  return {};
}

void Binding::Fill(const Sensors& sensors) noexcept {
  for (const Slice& slice : slices_) {
    const Part& part = *slice.part;
    for (size_t i = 0; i < slice.signal->index.size(); ++i) {
      float value = sensors.values[slice.signal->index[i]];
      if (!part.clip.empty()) {
        if (value < part.clip.low[i]) value = part.clip.low[i];
        if (value > part.clip.high[i]) value = part.clip.high[i];
      }
      if (!part.scale.empty()) value *= part.scale[i];
      slice.to[i] = value;
    }
  }
}

}  // namespace leapp_policy::onboard
