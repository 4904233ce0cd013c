// SPDX-License-Identifier: Apache-2.0
#include "onboard/options.h"

#include <cmath>
#include <cstdlib>

#include "core/error.h"

namespace leapp_policy::onboard {

const char* const kUsage =
    "usage: leapp-run FOLDER --transport shm:NAME|udp:PORT [--log FILE] [--seconds N]\n"
    "                 [--auto-start] [--rate-hz HZ] [--switch FOLDER2] [--cpu N] [--fifo PRIO]\n"
    "                 [--no-lock]\n"
    "       leapp-run --replay LOG FOLDER [--switch FOLDER2]\n"
    "       leapp-run --report LOG [--out STEM]\n";

namespace {

[[noreturn]] void Refuse(const std::string& sentence) {
  throw Error(LP_INVALID_ARGUMENT, sentence + " 'leapp-run --help' lists all options.");
}

double ToNumber(const std::string& option, const std::string& text, double low, double high) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value >= low && value <= high)) {
    Refuse("'" + option + "' must be a number from " + std::to_string(static_cast<long>(low)) +
           " to " + std::to_string(static_cast<long>(high)) + ", got '" + text + "'.");
  }
  return value;
}

int ToInteger(const std::string& option, const std::string& text, int low, int high) {
  const double value = ToNumber(option, text, low, high);
  if (value != std::floor(value)) Refuse("'" + option + "' must be whole, got '" + text + "'.");
  return static_cast<int>(value);
}

// Takes one option that has a value.
void SetValue(Options* out, const std::string& option, const std::string& value) {
  if (option == "--transport") {
    out->transport = value;
  } else if (option == "--log" || option == "--replay" || option == "--report") {
    out->log = value;
  } else if (option == "--out") {
    out->out = value;
  } else if (option == "--seconds") {
    out->seconds = ToNumber(option, value, 0.0, 1e9);
  } else if (option == "--rate-hz") {
    out->rate_hz = ToNumber(option, value, 0.0, 1e6);
  } else if (option == "--switch") {
    out->folders.resize(2);
    out->folders[1] = value;
  } else if (option == "--cpu") {
    out->cpu = ToInteger(option, value, 0, 1023);
  } else if (option == "--fifo") {
    out->fifo = ToInteger(option, value, 1, 99);
  } else {
    Refuse("There is no option '" + option + "'.");
  }
}

void CheckWhole(const Options& options) {
  if (options.command == Command::kHelp) return;
  const bool has_folder = !options.folders.empty() && !options.folders[0].empty();
  if (options.command == Command::kReport) {
    if (has_folder) Refuse("'--report' takes a log and no folder.");
    return;
  }
  if (!has_folder) Refuse("The deployment folder is missing.");
  if (options.command == Command::kRun && options.transport.empty()) {
    Refuse("'--transport' is missing.");
  }
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& each = arguments[i];
    if (each == "--help" || each == "-h") {
      out.command = Command::kHelp;
      return out;
    }
    if (each == "--auto-start") {
      out.auto_start = true;
    } else if (each == "--no-lock") {
      out.lock_memory = false;
    } else if (each.size() > 1 && each[0] == '-') {
      // A typo is told before a value that it lacks.
      if (i + 1 >= arguments.size()) {
        if (each.compare(0, 2, "--") == 0)
          Refuse("Option '" + each + "' is unknown or lacks its value.");
        Refuse("There is no option '" + each + "'.");
      }
      if (each == "--replay") out.command = Command::kReplay;
      if (each == "--report") out.command = Command::kReport;
      SetValue(&out, each, arguments[++i]);
    } else {
      if (out.folders.empty()) out.folders.resize(1);
      if (!out.folders[0].empty()) Refuse("Just one folder can be run, got '" + each + "', too.");
      out.folders[0] = each;
    }
  }
  CheckWhole(out);
  return out;
}

}  // namespace leapp_policy::onboard
