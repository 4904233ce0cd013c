// SPDX-License-Identifier: Apache-2.0
//
// The log of a run: a header, then one record of fixed size for each step. Native byte order, which
// is little-endian. It holds every input of Runner::Step(), so that a run can be repeated.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "onboard/runner.h"

namespace leapp_policy::onboard {

struct LogHeader {
  char magic[8] = {'L', 'P', 'L', 'O', 'G', '1', 0, 0};
  uint32_t version = 1;
  uint32_t record_bytes = 0;
  uint32_t sensor_floats = 0;
  uint32_t dim = 0;
  int64_t period_ns = 0;
  uint32_t auto_start = 0;
  uint32_t policies = 1;
  char digest[2][64] = {};  // SHA-256 of each policy's deploy.json
  char settings[768] = {};  // JSON, for the report
  // Written at the end; zero when the program was killed.
  uint64_t steps = 0;
  uint64_t dropped = 0;  // records that found no room
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;  // of all threads
  int64_t rss_kb = 0;
  uint64_t rejected = 0;  // packets
};
static_assert(sizeof(LogHeader) == 984 && offsetof(LogHeader, period_ns) == 24 &&
                  offsetof(LogHeader, digest) == 40 && offsetof(LogHeader, settings) == 168 &&
                  offsetof(LogHeader, steps) == 936 && offsetof(LogHeader, rejected) == 976,
              "as in docs/onboard-formats.md");

struct LogRecord {
  uint64_t step = 0;
  int64_t planned_ns = 0;
  int64_t now_ns = 0;     // when the step began
  int64_t work_ns = 0;    // from there until the targets were sent
  int64_t policy_ns = 0;  // of it, in Runner::Step()
  uint64_t sensor_sequence = 0;
  int64_t sensor_time_ns = 0;
  uint32_t control = 0;
  uint32_t flags = 0;  // LogFlag
  uint32_t state = 0;
  uint32_t cause = 0;
  int32_t cause_signal = -1;
  uint32_t refusal = 0;
  int32_t refusal_signal = -1;
  uint32_t skipped = 0;  // ticks that were left out after this step
  // Followed by sensors [sensor_floats], action [dim], targets [dim], float32.
};
static_assert(sizeof(LogRecord) == 88 && offsetof(LogRecord, sensor_time_ns) == 48 &&
                  offsetof(LogRecord, control) == 56 && offsetof(LogRecord, skipped) == 84,
              "as in docs/onboard-formats.md");

enum LogFlag : uint32_t {
  kHasSensors = 1,
  kMissedBefore = 2,  // StepInput::missed
  kRan = 4,
  kSent = 8,
  kSecondPolicy = 16,
};

// A record with its values, read from or written to memory of record_bytes.
size_t RecordBytes(size_t sensor_floats, size_t dim);

// What messages say of a signal.
struct SignalLabel {
  std::string name, unit;
};

// A ring between the loop, which never waits, and a thread that writes the file and tells what
// happened. Each side has its own counter.
class StepLog {
 public:
  // `path` may be empty: then transitions are told and nothing is written. `signals`: those of each
  // policy. `notes` receives one line for each transition and refusal; borrowed. Throws Error.
  StepLog(const std::string& path, const LogHeader& header,
          std::vector<std::vector<SignalLabel>> signals, std::FILE* notes);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Called by the loop. Full: the record is dropped and counted.
  void Push(const LogRecord& record, const StepInput& input, const StepOutput& output) noexcept;

  // Writes what is left and the figures of the end.
  void Close(const LogHeader& figures);
  uint64_t dropped() const { return dropped_; }

 private:
  void Write();
  void Drain();
  void Tell(const LogRecord& record);

  LogHeader header_;
  std::vector<std::vector<SignalLabel>> signals_;
  std::FILE* file_ = nullptr;
  std::FILE* notes_;
  std::string path_;
  std::vector<uint8_t> ring_;
  std::atomic<uint64_t> written_{0}, read_{0};
  std::atomic<bool> stop_{false};
  uint64_t dropped_ = 0;
  int64_t first_ns_ = 0;
  State state_ = State::kInit;
  Problem refusal_;
  bool failed_ = false;
  std::thread thread_;
};

// A log in memory.
struct LogFile {
  LogHeader header;
  std::vector<uint8_t> records;
  size_t count() const {
    return header.record_bytes == 0 ? 0 : records.size() / header.record_bytes;
  }
  LogRecord record(size_t index) const;
  const float* sensors(size_t index) const;
  const float* action(size_t index) const { return sensors(index) + header.sensor_floats; }
  const float* targets(size_t index) const { return action(index) + header.dim; }
};

// Throws Error: it cannot be read, is no log, or has times that no run can have.
LogFile ReadLog(const std::string& path);

}  // namespace leapp_policy::onboard
