// SPDX-License-Identifier: Apache-2.0
#include "onboard/control_loop.h"

#include <algorithm>

#include "onboard/clock.h"
#include "onboard/pacing.h"

namespace leapp_policy::onboard {
namespace {

// Fault is told more than once: a datagram may be lost.
constexpr int kFaultPackets = 10;

LogRecord MakeRecord(const StepInput& input, const StepOutput& output, bool sent) {
  LogRecord record;
  record.now_ns = input.now_ns;
  record.sensor_sequence = input.sensors.sequence;
  record.sensor_time_ns = input.sensors.time_ns;
  record.control = input.control;
  record.flags = (input.sensors.values != nullptr ? kHasSensors : 0u) |
                 (input.missed ? kMissedBefore : 0u) | (output.ran ? kRan : 0u) |
                 (sent ? kSent : 0u) | (output.policy != 0 ? kSecondPolicy : 0u);
  record.state = static_cast<uint32_t>(output.state);
  record.cause = static_cast<uint32_t>(output.cause.cause);
  record.cause_signal = output.cause.signal;
  record.refusal = static_cast<uint32_t>(output.refusal.cause);
  record.refusal_signal = output.refusal.signal;
  return record;
}

bool Send(Transport* transport, const Runner& runner, const StepOutput& output, State state,
          uint64_t answers) {
  TargetsMessage message;
  message.values = output.targets;
  message.dim = static_cast<uint32_t>(runner.deployment().targets.dim());
  message.answers = answers;
  message.state = static_cast<uint32_t>(state);
  message.cause = static_cast<uint32_t>(output.cause.cause);
  return transport->SendTargets(message, MonotonicNs());
}

}  // namespace

LoopResult RunLoop(Runner* runner, Transport* transport, StepLog* log, double seconds,
                   const std::atomic<bool>& stop) noexcept {
  const int64_t period_ns = runner->deployment().period_ns;
  const int64_t began_ns = MonotonicNs();
  const int64_t length_ns = static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
  Pacing pacing(period_ns);
  pacing.Begin(began_ns);
  LoopResult result;
  StepInput input;
  const StepOutput* output = nullptr;
  for (int faults = 0; faults < kFaultPackets && !stop.load(std::memory_order_relaxed);) {
    pacing.Wait();
    input.now_ns = MonotonicNs();
    if (length_ns > 0 && input.now_ns - began_ns > length_ns) break;
    input.control = transport->Poll();
    input.sensors = transport->sensors();
    const int64_t polled_ns = MonotonicNs();
    output = &runner->Step(input);
    const int64_t stepped_ns = MonotonicNs();
    const bool sent =
        output->send && Send(transport, *runner, *output, output->state, input.sensors.sequence);
    LogRecord record = MakeRecord(input, *output, sent);
    record.step = result.steps++;
    record.planned_ns = pacing.planned_ns();
    record.policy_ns = stepped_ns - polled_ns;
    const int64_t ended_ns = MonotonicNs();
    record.work_ns = ended_ns - input.now_ns;
    const bool missed = ended_ns > record.planned_ns + period_ns;
    record.skipped = static_cast<uint32_t>(pacing.Advance(ended_ns));
    log->Push(record, input, *output);
    input.missed = missed;
    result.misses += missed ? 1 : 0;
    faults += output->state == State::kFault ? 1 : 0;
  }
  result.wall_ns = MonotonicNs() - began_ns;
  result.fault = output != nullptr && output->state == State::kFault;
  if (output != nullptr && output->send && !result.fault) {
    Send(transport, *runner, *output, State::kDamped, input.sensors.sequence);
  }
  return result;
}

}  // namespace leapp_policy::onboard
