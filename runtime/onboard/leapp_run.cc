// SPDX-License-Identifier: Apache-2.0
// The program; docs/onboard.md tells its options and exit codes.
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "onboard/control_loop.h"
#include "onboard/open_runner.h"
#include "onboard/options.h"
#include "onboard/realtime.h"
#include "onboard/replay.h"
#include "onboard/report.h"

namespace leapp_policy::onboard {
namespace {

constexpr int kDone = 0, kDiffers = 1, kRefused = 2, kFault = 3;
constexpr int kWarmUpRuns = 50;

std::atomic<bool> stop{false};

void OnSignal(int) { stop.store(true, std::memory_order_relaxed); }

void CatchSignals() {
  struct sigaction action{};
  action.sa_handler = &OnSignal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

// Memory that was once taken stays: giving it back and taking it again costs page faults.
void KeepMemory() {
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_MMAP_MAX, 0);
}

// Now, not at most: while libraries were checked and loaded it was more.
int64_t ResidentKb() {
  long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return int64_t{resident} * ::sysconf(_SC_PAGESIZE) / 1024;
}

void CheckRate(const Options& options, const Deployment& deployment) {
  if (!options.rate_hz) return;
  const double expected = deployment.rate_hz;
  if (std::abs(*options.rate_hz - expected) <= 1e-3 * expected) return;
  char text[256];
  std::snprintf(text, sizeof(text),
                "Policy '%s' must run at %g Hz (dt %g s), got %g Hz; call it at its own rate, or "
                "train it for the other one.",
                deployment.name.c_str(), expected, 1.0 / expected, *options.rate_hz);
  throw Error(LP_INVALID_ARGUMENT, text);
}

LogHeader MakeHeader(const Options& options, const OpenedRunner& opened, const WarmUp& warm) {
  const Runner& runner = *opened.runner;
  const Deployment& deployment = runner.deployment();
  LogHeader header;
  header.sensor_floats = static_cast<uint32_t>(deployment.sensor_floats);
  header.dim = static_cast<uint32_t>(deployment.targets.dim());
  header.period_ns = deployment.period_ns;
  header.auto_start = options.auto_start ? 1 : 0;
  header.policies = static_cast<uint32_t>(runner.policies());
  for (size_t i = 0; i < runner.policies(); ++i) {
    const std::string& digest = runner.deployment(i).digest;
    std::memcpy(header.digest[i], digest.data(), std::min(digest.size(), sizeof(header.digest[i])));
  }
  const nlohmann::ordered_json settings = {
      {"policy", deployment.name.substr(0, 100)},
      {"onnxruntime", opened.library->version().substr(0, 40)},
      {"device", deployment.device},
      {"threads", 1},
      {"spinning", false},
      {"transport", options.transport.substr(0, 80)},
      {"cpu", options.cpu ? nlohmann::ordered_json(*options.cpu) : nullptr},
      {"fifo", options.fifo ? nlohmann::ordered_json(*options.fifo) : nullptr},
      {"warm_up_runs", kWarmUpRuns},
      {"warm_up_first_us", static_cast<double>(warm.first_ns / 10) / 100.0},
      {"warm_up_last_us", static_cast<double>(warm.last_ns / 10) / 100.0},
  };
  const std::string text =
      settings.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::strncpy(header.settings, text.c_str(), sizeof(header.settings) - 1);
  return header;
}

int Run(const Options& options) {
  OpenedRunner opened = OpenRunner(options.folders, options.auto_start);
  KeepMemory();
  Runner& runner = *opened.runner;
  const Deployment& deployment = runner.deployment();
  CheckRate(options, deployment);
  const auto transport =
      OpenTransport(options.transport, deployment.sensor_floats, deployment.targets.dim());
  const WarmUp warm = runner.Warm(kWarmUpRuns);
  for (const std::string& each : runner.notes()) std::fprintf(stderr, "note: %s\n", each.c_str());
  std::fprintf(stderr, "Policy '%s' at %g Hz on %s; warm-up: first run %.3f ms, last %.3f ms.\n",
               deployment.name.c_str(), deployment.rate_hz, options.transport.c_str(),
               1e-6 * static_cast<double>(warm.first_ns), 1e-6 * static_cast<double>(warm.last_ns));

  std::vector<std::vector<std::string>> signals(runner.policies());
  for (size_t i = 0; i < signals.size(); ++i) {
    for (const SignalSpec& each : runner.deployment(i).signals) signals[i].push_back(each.name);
  }
  LogHeader header = MakeHeader(options, opened, warm);
  // Its thread is begun first: it must inherit neither the priority nor the CPU of the loop.
  StepLog log(options.log, header, std::move(signals), stderr);
  const RealtimeResult realtime = SetUpRealtime({options.lock_memory, options.cpu, options.fifo});
  for (const std::string& each : realtime.notes) std::fprintf(stderr, "note: %s\n", each.c_str());
  TouchStack();
  CatchSignals();

  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const LoopResult result = RunLoop(&runner, transport.get(), &log, options.seconds, stop);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  const auto cpu_ns = [](const rusage& usage) {
    return int64_t{usage.ru_utime.tv_sec + usage.ru_stime.tv_sec} * 1'000'000'000 +
           int64_t{usage.ru_utime.tv_usec + usage.ru_stime.tv_usec} * 1000;
  };
  header.steps = result.steps;
  header.wall_ns = result.wall_ns;
  header.cpu_ns = cpu_ns(after) - cpu_ns(before);
  header.rss_kb = ResidentKb();
  header.rejected = transport->rejected();
  log.Close(header);
  std::fprintf(stderr, "%llu steps, %llu deadlines missed, %llu packets rejected.\n",
               static_cast<unsigned long long>(result.steps),
               static_cast<unsigned long long>(result.misses),
               static_cast<unsigned long long>(transport->rejected()));
  if (runner.error()[0] != 0) std::fprintf(stderr, "The model said: %s\n", runner.error());
  return result.fault ? kFault : kDone;
}

int RunReplay(const Options& options) {
  const LogFile log = ReadLog(options.log);
  OpenedRunner opened = OpenRunner(options.folders, log.header.auto_start != 0);
  opened.runner->Warm(kWarmUpRuns);
  const ReplayResult result = Replay(log, opened.runner.get());
  if (!result.equal) {
    std::fprintf(stderr, "%s\n", result.difference.c_str());
    return kDiffers;
  }
  std::printf("%llu steps, every action bit-equal\n",
              static_cast<unsigned long long>(result.steps));
  return kDone;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) {
    throw Error(LP_INVALID_ARGUMENT, "'" + path + "' cannot be written; name another with --out.");
  }
}

int RunReport(const Options& options) {
  const LogFile log = ReadLog(options.log);
  const std::string stem = options.out.empty() ? options.log : options.out;
  const std::string json = ReportJson(log);
  WriteText(stem + ".json", json);
  WriteText(stem + ".svg", ReportSvg(log));
  std::fputs(json.c_str(), stdout);
  return kDone;
}

int Main(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  switch (options.command) {
    case Command::kRun:
      return Run(options);
    case Command::kReplay:
      return RunReplay(options);
    case Command::kReport:
      return RunReport(options);
    case Command::kHelp:
      std::fputs(kUsage, stdout);
      return kDone;
  }
  return kRefused;
}

}  // namespace
}  // namespace leapp_policy::onboard

int main(int argc, char** argv) {
  try {
    return leapp_policy::onboard::Main({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "leapp-run: %s\n", e.what());
    return 2;
  }
}
