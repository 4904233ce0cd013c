// SPDX-License-Identifier: Apache-2.0
#include "onboard/step_log.h"

#include <time.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

constexpr uint64_t kRingRecords = 4096;
constexpr long kWriterPauseNs = 20'000'000;

// Of what is read: sums and differences of such times cannot overflow.
constexpr int64_t kLongestNs = int64_t{1} << 61;
constexpr int64_t kLongestPeriodNs = 1'000'000'000'000;  // of the smallest rate
constexpr uint32_t kMostFloats = 16000;                  // a packet holds no more

bool IsTime(int64_t time_ns) { return time_ns >= 0 && time_ns <= kLongestNs; }

// They are shown in messages.
bool HasDigests(const LogHeader& header) {
  const std::string digits = "0123456789abcdef";
  for (uint32_t i = 0; i < header.policies; ++i) {
    for (const char each : header.digest[i]) {
      if (digits.find(each) == std::string::npos) return false;
    }
  }
  return true;
}

bool IsHeader(const LogHeader& header) {
  return std::memcmp(header.magic, LogHeader{}.magic, sizeof(header.magic)) == 0 &&
         header.version == 1 && header.sensor_floats <= kMostFloats && header.dim <= kMostFloats &&
         header.policies >= 1 && header.policies <= 2 && HasDigests(header) &&
         header.period_ns > 0 && header.period_ns <= kLongestPeriodNs &&
         header.record_bytes == RecordBytes(header.sensor_floats, header.dim);
}

bool IsRecord(const LogRecord& record) {
  return IsTime(record.planned_ns) && IsTime(record.now_ns) && IsTime(record.work_ns) &&
         IsTime(record.policy_ns) && record.state <= static_cast<uint32_t>(State::kFault);
}

}  // namespace

size_t RecordBytes(size_t sensor_floats, size_t dim) {
  const size_t bytes = sizeof(LogRecord) + sizeof(float) * (sensor_floats + 2 * dim);
  return (bytes + 7) / 8 * 8;
}

StepLog::StepLog(const std::string& path, const LogHeader& header,
                 std::vector<std::vector<std::string>> signals, std::FILE* notes)
    : header_(header), signals_(std::move(signals)), notes_(notes), path_(path) {
  header_.record_bytes = static_cast<uint32_t>(RecordBytes(header.sensor_floats, header.dim));
  ring_.resize(kRingRecords * header_.record_bytes);
  if (!path.empty()) {
    file_ = std::fopen(path.c_str(), "wb");
    if (file_ == nullptr || std::fwrite(&header_, sizeof(header_), 1, file_) != 1) {
      const std::string reason = std::strerror(errno);
      if (file_ != nullptr) std::fclose(file_);
      throw Error(LP_INVALID_ARGUMENT, "Log '" + path + "' cannot be written (" + reason +
                                           "); name a file in a folder that is there.");
    }
  }
  thread_ = std::thread([this] { Write(); });
}

StepLog::~StepLog() {
  if (thread_.joinable()) Close(header_);
}

void StepLog::Push(const LogRecord& record, const StepInput& input,
                   const StepOutput& output) noexcept {
  const uint64_t written = written_.load(std::memory_order_relaxed);
  if (written - read_.load(std::memory_order_acquire) >= kRingRecords) {
    ++dropped_;
    return;
  }
  uint8_t* to = ring_.data() + (written % kRingRecords) * header_.record_bytes;
  std::memcpy(to, &record, sizeof(record));
  to += sizeof(record);
  const size_t sensor_bytes = sizeof(float) * header_.sensor_floats;
  if (input.sensors.values != nullptr) {
    std::memcpy(to, input.sensors.values, sensor_bytes);
  } else {
    std::memset(to, 0, sensor_bytes);
  }
  const size_t target_bytes = sizeof(float) * header_.dim;
  std::memcpy(to + sensor_bytes, output.action, target_bytes);
  std::memcpy(to + sensor_bytes + target_bytes, output.targets, target_bytes);
  written_.store(written + 1, std::memory_order_release);
}

void StepLog::Write() {
  while (!stop_.load(std::memory_order_acquire)) {
    Drain();
    const timespec pause{0, kWriterPauseNs};
    ::nanosleep(&pause, nullptr);
  }
  Drain();
}

void StepLog::Drain() {
  const uint64_t written = written_.load(std::memory_order_acquire);
  for (uint64_t i = read_.load(std::memory_order_relaxed); i < written; ++i) {
    const uint8_t* from = ring_.data() + (i % kRingRecords) * header_.record_bytes;
    LogRecord record;
    std::memcpy(&record, from, sizeof(record));
    Tell(record);
    if (file_ != nullptr && !failed_) {
      failed_ = std::fwrite(from, header_.record_bytes, 1, file_) != 1;
      if (failed_) {
        std::fprintf(notes_, "Log '%s' cannot be written any more (%s); the loop goes on.\n",
                     path_.c_str(), std::strerror(errno));
      }
    }
    read_.store(i + 1, std::memory_order_release);
  }
}

void StepLog::Tell(const LogRecord& record) {
  if (record.step == 0) first_ns_ = record.now_ns;
  const double seconds = 1e-9 * static_cast<double>(record.now_ns - first_ns_);
  const auto name = [&](int32_t signal) {
    const auto& names = signals_[(record.flags & kSecondPolicy) != 0 ? 1 : 0];
    const size_t index = static_cast<size_t>(signal);
    return signal >= 0 && index < names.size() ? names[index] : std::string();
  };
  const State state = static_cast<State>(record.state);
  if (state != state_) {
    std::fprintf(notes_, "%9.3f s  %s -> %s: %s\n", seconds, StateName(state_), StateName(state),
                 Describe(static_cast<Cause>(record.cause), name(record.cause_signal)).c_str());
    state_ = state;
  }
  const Problem refusal{static_cast<Cause>(record.refusal), record.refusal_signal};
  // A request that stands is refused in every step, and told once.
  if (refusal && (refusal.cause != refusal_.cause || refusal.signal != refusal_.signal)) {
    std::fprintf(notes_, "%9.3f s  %s, refused: %s\n", seconds, StateName(state),
                 Describe(refusal.cause, name(refusal.signal)).c_str());
  }
  if (refusal) refusal_ = refusal;
  std::fflush(notes_);
}

void StepLog::Close(const LogHeader& figures) {
  stop_.store(true, std::memory_order_release);
  thread_.join();
  if (file_ == nullptr) return;
  header_.steps = figures.steps;
  header_.dropped = dropped_;
  header_.wall_ns = figures.wall_ns;
  header_.cpu_ns = figures.cpu_ns;
  header_.rss_kb = figures.rss_kb;
  header_.rejected = figures.rejected;
  std::rewind(file_);
  std::fwrite(&header_, sizeof(header_), 1, file_);
  if (std::fclose(file_) != 0 && !failed_) {
    std::fprintf(notes_, "Log '%s' is not whole (%s).\n", path_.c_str(), std::strerror(errno));
  }
  file_ = nullptr;
}

LogRecord LogFile::record(size_t index) const {
  LogRecord record;
  std::memcpy(&record, records.data() + index * header.record_bytes, sizeof(record));
  return record;
}

const float* LogFile::sensors(size_t index) const {
  return reinterpret_cast<const float*>(records.data() + index * header.record_bytes +
                                        sizeof(LogRecord));
}

LogFile ReadLog(const std::string& path) {
  LogFile log;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const bool good = file != nullptr && std::fread(&log.header, sizeof(log.header), 1, file) == 1 &&
                    IsHeader(log.header);
  if (good) {
    std::vector<uint8_t> record(log.header.record_bytes);
    // A run that was killed may have left half a record at the end.
    while (std::fread(record.data(), record.size(), 1, file) == 1) {
      log.records.insert(log.records.end(), record.begin(), record.end());
    }
  }
  if (file != nullptr) std::fclose(file);
  if (!good) {
    throw Error(LP_INVALID_ARGUMENT,
                "'" + path + "' is no log of leapp-run that can be read; name the file of --log.");
  }
  for (size_t i = 0; i < log.count(); ++i) {
    if (IsRecord(log.record(i))) continue;
    throw Error(LP_INVALID_ARGUMENT, "Log '" + path + "' is damaged: record " + std::to_string(i) +
                                         " has a time or a state that no run has; copy it again.");
  }
  log.header.settings[sizeof(log.header.settings) - 1] = 0;
  return log;
}

}  // namespace leapp_policy::onboard
