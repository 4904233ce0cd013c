// SPDX-License-Identifier: Apache-2.0
#include "onboard/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace leapp_policy::onboard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBinsPerDecade = 5;
constexpr int kBins = 5 * kBinsPerDecade;  // 1 us … 100 ms

struct Series {
  std::vector<double> late_us, work_us, policy_us;
  double first_us = -1.0;  // the first step in running
};

// Timing is told of the steps in which the policy acted: waiting is no load.
Series Collect(const LogFile& log) {
  Series series;
  for (size_t i = 0; i < log.count(); ++i) {
    const LogRecord record = log.record(i);
    if (static_cast<State>(record.state) != State::kRunning) continue;
    series.late_us.push_back(1e-3 * static_cast<double>(record.now_ns - record.planned_ns));
    series.work_us.push_back(1e-3 * static_cast<double>(record.work_ns));
    series.policy_us.push_back(1e-3 * static_cast<double>(record.policy_ns));
    if (series.first_us < 0.0) series.first_us = series.work_us.back();
  }
  return series;
}

struct Misses {
  uint64_t all = 0, woke_late = 0, policy_took_long = 0, rest_took_long = 0, skipped = 0;
};

// A step whose work would have fitted into a period began too late; of another, its longer part is
// why.
Misses CountMisses(const LogFile& log) {
  Misses found;
  const int64_t period = log.header.period_ns;
  for (size_t i = 0; i < log.count(); ++i) {
    const LogRecord record = log.record(i);
    found.skipped += record.skipped;
    if (record.now_ns + record.work_ns <= record.planned_ns + period) continue;
    ++found.all;
    if (record.work_ns <= period) {
      ++found.woke_late;
    } else if (record.policy_ns > record.work_ns - record.policy_ns) {
      ++found.policy_took_long;
    } else {
      ++found.rest_took_long;
    }
  }
  return found;
}

double Rounded(double value) { return std::round(value * 100.0) / 100.0; }

Json Percentiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return Rounded(values[static_cast<size_t>(std::max(rank, 1.0)) - 1]);
  };
  return {
      {"p50", at(0.5)}, {"p99", at(0.99)}, {"p99_9", at(0.999)}, {"max", Rounded(values.back())}};
}

double Edge(int bin) { return std::pow(10.0, static_cast<double>(bin) / kBinsPerDecade); }

std::vector<uint64_t> Histogram(const std::vector<double>& values_us) {
  std::vector<uint64_t> counts(kBins, 0);
  for (const double each : values_us) {
    const double bin = each <= 1.0 ? 0.0 : std::floor(std::log10(each) * kBinsPerDecade);
    ++counts[static_cast<size_t>(std::min(bin, kBins - 1.0))];
  }
  return counts;
}

Json HistogramJson(const std::vector<double>& values_us) {
  Json edges = Json::array();
  for (int i = 0; i <= kBins; ++i) edges.push_back(Rounded(Edge(i)));
  return {{"edges_us", edges}, {"counts", Histogram(values_us)}};
}

// States in order, with their causes.
Json Transitions(const LogFile& log) {
  Json found = Json::array();
  State state = State::kInit;
  for (size_t i = 0; i < log.count(); ++i) {
    const LogRecord record = log.record(i);
    const State now = static_cast<State>(record.state);
    if (now == state) continue;
    const double seconds = 1e-9 * static_cast<double>(record.now_ns - log.record(0).now_ns);
    found.push_back({{"at_s", std::round(seconds * 1e3) / 1e3},
                     {"step", record.step},
                     {"from", StateName(state)},
                     {"to", StateName(now)},
                     {"cause", record.cause},
                     {"why", Describe(static_cast<Cause>(record.cause), "")}});
    state = now;
  }
  return found;
}

std::string Panel(const std::string& title, const std::vector<double>& values_us, int top) {
  constexpr double kLeft = 50.0, kWidth = 560.0, kHeight = 130.0;
  const std::vector<uint64_t> counts = Histogram(values_us);
  const uint64_t most = *std::max_element(counts.begin(), counts.end());
  const double base = top + 42.0 + kHeight, step = kWidth / kBins;
  std::string svg;
  char text[256];
  std::snprintf(text, sizeof(text), "<text x='50' y='%d' class='t'>%s, %zu steps</text>\n",
                top + 18, title.c_str(), values_us.size());
  svg += text;
  for (int i = 0; i < kBins; ++i) {
    const uint64_t count = counts[static_cast<size_t>(i)];
    if (count == 0) continue;
    // Logarithmic: one late step in a million must be seen.
    const double share = (std::log10(static_cast<double>(count)) + 0.3) /
                         (std::log10(static_cast<double>(most)) + 0.3);
    std::snprintf(text, sizeof(text),
                  "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'><title>%.4g to %.4g us: %llu"
                  "</title></rect>\n<text x='%.1f' y='%.1f' class='c'>%llu</text>\n",
                  kLeft + i * step + 1, base - share * kHeight, step - 2, share * kHeight, Edge(i),
                  Edge(i + 1), static_cast<unsigned long long>(count), kLeft + (i + 0.5) * step,
                  base - share * kHeight - 3, static_cast<unsigned long long>(count));
    svg += text;
  }
  const char* labels[] = {"1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"};
  for (int i = 0; i < 6; ++i) {
    std::snprintf(text, sizeof(text), "<text x='%.1f' y='%.1f' class='a'>%s</text>\n",
                  kLeft + i * kBinsPerDecade * step, base + 16, labels[i]);
    svg += text;
  }
  std::snprintf(text, sizeof(text), "<line x1='50' x2='610' y1='%.1f' y2='%.1f'/>\n", base, base);
  return svg + text;
}

}  // namespace

std::string ReportJson(const LogFile& log) {
  const LogHeader& header = log.header;
  const Series series = Collect(log);
  const Misses misses = CountMisses(log);
  Json report;
  report["rate_hz"] = Rounded(1e9 / static_cast<double>(header.period_ns));
  report["steps"] = log.count();
  report["running_steps"] = series.work_us.size();
  report["deadline_misses"] = misses.all;
  report["missed_because"] = {{"woke_late", misses.woke_late},
                              {"policy_took_long", misses.policy_took_long},
                              {"rest_took_long", misses.rest_took_long}};
  report["skipped_ticks"] = misses.skipped;
  report["step_us"] = Percentiles(series.work_us);
  report["policy_us"] = Percentiles(series.policy_us);
  report["first_running_step_us"] = series.first_us < 0.0 ? Json() : Json(Rounded(series.first_us));
  report["wake_late_us"] = Percentiles(series.late_us);
  report["jitter_histogram"] = HistogramJson(series.late_us);
  report["final_state"] =
      log.count() == 0 ? "init" : StateName(static_cast<State>(log.record(log.count() - 1).state));
  report["transitions"] = Transitions(log);
  const bool ended = header.wall_ns > 0;
  report["ended_normally"] = ended;
  if (ended) {
    report["cpu_percent"] =
        Rounded(100.0 * static_cast<double>(header.cpu_ns) / static_cast<double>(header.wall_ns));
    report["rss_mb"] = Rounded(static_cast<double>(header.rss_kb) / 1024.0);
    report["dropped_records"] = header.dropped;
    report["rejected_packets"] = header.rejected;
  }
  const Json settings = Json::parse(header.settings, nullptr, false);
  report["settings"] = settings.is_discarded() ? Json() : settings;
  return report.dump(2) + "\n";
}

std::string ReportSvg(const LogFile& log) {
  const Series series = Collect(log);
  return "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 640 440' font-family='sans-serif'>\n"
         "<style>.t{font-size:14px;fill:#222}.a{font-size:11px;fill:#555;text-anchor:middle}"
         ".c{font-size:9px;fill:#555;text-anchor:middle}rect{fill:#3b75af}line{stroke:#888}"
         "</style>\n<rect width='640' height='440' style='fill:#fff'/>\n" +
         Panel("Jitter: wake-up after the planned tick", series.late_us, 10) +
         Panel("Step time: sensors taken to targets sent", series.work_us, 220) + "</svg>\n";
}

}  // namespace leapp_policy::onboard
