// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace leapp_policy::onboard {

enum class Command { kRun, kReplay, kReport, kHelp };

// The command line of leapp-run.
struct Options {
  Command command = Command::kRun;
  std::vector<std::string> folders;  // the policy, and that of --switch
  std::string transport;
  std::string log;  // --log, --replay or --report
  std::string out;  // --out
  double seconds = 0.0;
  std::optional<double> rate_hz;
  std::optional<int> cpu, fifo;
  bool auto_start = false;
  bool lock_memory = true;
};

extern const char* const kUsage;

// Throws Error with one sentence.
Options ParseOptions(const std::vector<std::string>& arguments);

}  // namespace leapp_policy::onboard
