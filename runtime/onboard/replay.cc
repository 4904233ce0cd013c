// SPDX-License-Identifier: Apache-2.0
#include "onboard/replay.h"

#include <cstdio>
#include <cstring>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

void CheckBelongs(const LogFile& log, const Runner& runner) {
  const LogHeader& header = log.header;
  if (header.policies != runner.policies()) {
    throw Error(LP_INVALID_ARGUMENT, "The log is of " + std::to_string(header.policies) +
                                         " policies, got " + std::to_string(runner.policies()) +
                                         "; name the same folders, the second with --switch.");
  }
  for (size_t i = 0; i < runner.policies(); ++i) {
    const std::string digest(header.digest[i], sizeof(header.digest[i]));
    if (digest != runner.deployment(i).digest) {
      throw Error(LP_INVALID_ARGUMENT, "The log is of deployment " + digest.substr(0, 12) +
                                           "…, got " + runner.deployment(i).digest.substr(0, 12) +
                                           "…; name the folder that was run.");
    }
  }
  if (header.sensor_floats != runner.deployment().sensor_floats ||
      header.dim != runner.deployment().targets.dim()) {
    throw Error(LP_INVALID_ARGUMENT, "The log has other sizes than the deployment; it is damaged.");
  }
}

// The first element whose bits differ, or -1.
int64_t FirstDifference(const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) return static_cast<int64_t>(i);
  }
  return -1;
}

std::string Numbers(const char* what, int64_t element, float logged, float now) {
  char text[160];
  std::snprintf(text, sizeof(text), "%s element %lld was %.9g, is %.9g", what,
                static_cast<long long>(element), static_cast<double>(logged),
                static_cast<double>(now));
  return text;
}

std::string Compare(const LogFile& log, size_t i, const LogRecord& record,
                    const StepOutput& output) {
  if (record.state != static_cast<uint32_t>(output.state)) {
    return std::string("the state was ") + StateName(static_cast<State>(record.state)) + ", is " +
           StateName(output.state);
  }
  if (((record.flags & kRan) != 0) != output.ran) return "the policy ran in just one of the two";
  const int64_t action = FirstDifference(log.action(i), output.action, log.header.dim);
  if (action >= 0) {
    return Numbers("action", action, log.action(i)[action], output.action[action]);
  }
  const int64_t target = FirstDifference(log.targets(i), output.targets, log.header.dim);
  if (target >= 0) {
    return Numbers("target", target, log.targets(i)[target], output.targets[target]);
  }
  return "";
}

}  // namespace

ReplayResult Replay(const LogFile& log, Runner* runner) {
  CheckBelongs(log, *runner);
  ReplayResult result;
  for (size_t i = 0; i < log.count(); ++i) {
    const LogRecord record = log.record(i);
    if (record.step != i) {
      throw Error(LP_INVALID_ARGUMENT,
                  "The log lacks step " + std::to_string(i) +
                      " and cannot be replayed past it; the disk was too slow.");
    }
    StepInput input;
    input.now_ns = record.now_ns;
    input.control = record.control;
    input.missed = (record.flags & kMissedBefore) != 0;
    if ((record.flags & kHasSensors) != 0) {
      input.sensors = {log.sensors(i), record.sensor_sequence, record.sensor_time_ns};
    }
    const std::string difference = Compare(log, i, record, runner->Step(input));
    if (!difference.empty()) {
      result.difference = "Step " + std::to_string(i) + " differs: " + difference + ".";
      return result;
    }
    ++result.steps;
  }
  result.equal = true;
  return result;
}

}  // namespace leapp_policy::onboard
