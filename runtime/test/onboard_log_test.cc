// SPDX-License-Identifier: Apache-2.0
// Without these a log could tell another run than the one that was, or the loop could allocate.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>

#include "onboard/control_loop.h"
#include "onboard/replay.h"
#include "onboard/report.h"
#include "onboard/step_log.h"
#include "test/check.h"
#include "test/onboard_fakes.h"

#if defined(__SANITIZE_ADDRESS__)
#define LP_COUNTS_MALLOC 0
#else
#define LP_COUNTS_MALLOC 1
#endif

namespace {

thread_local bool counting = false;
thread_local uint64_t allocations = 0;
[[maybe_unused]] thread_local uint64_t wall_clock_reads = 0;

void Count() {
  if (counting) ++allocations;
}

}  // namespace

// Every way to memory of this program is counted on the thread that asks for it. A sanitizer brings
// its own malloc; there operator new alone is counted.
#if LP_COUNTS_MALLOC
extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);
extern "C" void* __libc_realloc(void*, size_t);
extern "C" void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
extern "C" void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
// The wall clock of this program steps about; the loop must not even look at it.
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  if (clock != CLOCK_MONOTONIC && counting) ++wall_clock_reads;
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
}
extern "C" time_t time(time_t*) noexcept {
  if (counting) ++wall_clock_reads;
  return 0;
}
#else
void* operator new(size_t size) {
  Count();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::test::FakeDeployment;
using leapp_policy::test::FakeDocument;
using leapp_policy::test::FakeOpen;
using leapp_policy::test::Json;
using leapp_policy::test::One;

// A robot that measures something else in each tick and asks for a stop at last.
class ScriptedTransport : public Transport {
 public:
  ScriptedTransport() : Transport(4, 2) {}
  int ticks = 0;

 protected:
  size_t Receive(uint8_t* into, size_t) noexcept override {
    has_ = !has_;
    if (!has_) return kNoPacket;
    ++ticks;
    float values[4] = {0.01f * static_cast<float>(ticks), -0.2f, 0.5f, 0.0f};
    if (ticks == 40) values[0] = __builtin_nanf("");
    PacketHeader header;
    header.kind = static_cast<uint16_t>(PacketKind::kSensors);
    header.floats = 4;
    header.sequence = static_cast<uint64_t>(ticks);
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    header.time_ns =
        static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
    header.crc32 = Crc32(values, sizeof(values));
    std::memcpy(into, &header, sizeof(header));
    std::memcpy(into + sizeof(header), values, sizeof(values));
    return sizeof(header) + sizeof(values);
  }
  bool Send(const uint8_t*, size_t) noexcept override { return true; }

 private:
  bool has_ = false;
};

Json FastDocument() {
  Json document = FakeDocument();
  document["rate_hz"] = 1000.0;
  document["safety"] = {{"blend_in_s", 0.01}, {"recover_s", 0.005}};
  return document;
}

std::string Path() {
  return std::filesystem::temp_directory_path() / ("leapp_log_test_" + std::to_string(::getpid()));
}

LogHeader MakeHeader(const Runner& runner) {
  LogHeader header;
  header.sensor_floats = 4;
  header.dim = 2;
  header.period_ns = runner.deployment().period_ns;
  header.auto_start = 1;
  std::memset(header.digest[0], 'd', sizeof(header.digest[0]));
  return header;
}

void Record(const std::string& path, std::FILE* notes) {
  Runner runner(One(FakeDeployment(FastDocument())), FakeOpen(), true);
  runner.Warm(3);
  ScriptedTransport transport;
  const std::atomic<bool> stop{false};
  const LogHeader header = MakeHeader(runner);
  StepLog log(path, header, {{"joints", "command"}}, notes);
  counting = true;
  const LoopResult result = RunLoop(&runner, &transport, &log, 0.3, stop);
  counting = false;
  CHECK(allocations == 0);
  CHECK(wall_clock_reads == 0);
  CHECK(result.steps > 60 && !result.fault);
  LogHeader figures = header;
  figures.steps = result.steps;
  figures.wall_ns = result.wall_ns;
  figures.cpu_ns = 1;
  log.Close(figures);
  CHECK(log.dropped() == 0);
}

void TestCounterCounts() {
  counting = true;
  auto* memory = new std::vector<int>(1000);
  counting = false;
  delete memory;
  CHECK(allocations > 0);
  allocations = 0;
}

void TestReplay(const std::string& path) {
  LogFile log = ReadLog(path);
  CHECK(log.count() == log.header.steps && log.count() > 60);
  Runner again(One(FakeDeployment(FastDocument())), FakeOpen(), true);
  again.Warm(3);
  const ReplayResult result = Replay(log, &again);
  CHECK(result.equal && result.steps == log.count());

  // One bit of one action, in one step.
  LogFile changed = log;
  auto* action = const_cast<float*>(changed.action(50));
  uint32_t bits;
  std::memcpy(&bits, action + 1, 4);
  bits ^= 1u;
  std::memcpy(action + 1, &bits, 4);
  Runner third(One(FakeDeployment(FastDocument())), FakeOpen(), true);
  const ReplayResult differs = Replay(changed, &third);
  CHECK(!differs.equal && differs.steps == 50);
  CHECK(differs.difference.find("Step 50 differs: action element 1") == 0);

  LogFile gap = log;
  gap.records.erase(gap.records.begin(), gap.records.begin() + gap.header.record_bytes);
  Runner fourth(One(FakeDeployment(FastDocument())), FakeOpen(), true);
  CHECK_ERROR(LP_INVALID_ARGUMENT, "lacks step 0", Replay(gap, &fourth));
  LogFile foreign = log;
  foreign.header.digest[0][0] = 'e';
  CHECK_ERROR(LP_INVALID_ARGUMENT, "name the folder that was run", Replay(foreign, &fourth));
}

void TestReport(const std::string& path) {
  const LogFile log = ReadLog(path);
  const Json report = Json::parse(ReportJson(log));
  CHECK(report["steps"] == log.count() && report["rate_hz"] == 1000.0);
  CHECK(report["step_us"]["p50"] <= report["step_us"]["p99"] &&
        report["step_us"]["p99_9"] <= report["step_us"]["max"]);
  uint64_t sum = 0;
  for (const Json& each : report["jitter_histogram"]["counts"]) sum += each.get<uint64_t>();
  CHECK(sum == report["running_steps"]);
  const Json& transitions = report["transitions"];
  CHECK(transitions.size() == 4);  // armed, running, hold at NaN, running
  CHECK(transitions[2]["to"] == "hold" && transitions[2]["cause"] == 13);
  CHECK(transitions[3]["why"] == "the signals are good again");
  CHECK(ReportSvg(log).find("</svg>") != std::string::npos);
}

void SetTimes(LogFile* log, size_t step, int64_t late, int64_t work, int64_t policy) {
  LogRecord record = log->record(step);
  record.now_ns = record.planned_ns + late;
  record.work_ns = work;
  record.policy_ns = policy;
  std::memcpy(log->records.data() + step * log->header.record_bytes, &record, sizeof(record));
}

void TestReportSaysWhyDeadlinesWereMissed(const std::string& path) {
  LogFile log = ReadLog(path);
  const int64_t period = log.header.period_ns;
  for (size_t i = 0; i < log.count(); ++i) SetTimes(&log, i, 0, period, period);
  CHECK(Json::parse(ReportJson(log))["deadline_misses"] == 0);
  SetTimes(&log, 1, period, 1, 1);
  SetTimes(&log, 2, 2 * period, period, 1);
  SetTimes(&log, 3, 0, period + 1, period);
  SetTimes(&log, 4, 0, period + 1, 1);
  const Json report = Json::parse(ReportJson(log));
  CHECK(report["deadline_misses"] == 4);
  const Json expected = {{"woke_late", 2}, {"policy_took_long", 1}, {"rest_took_long", 1}};
  CHECK(report["missed_because"] == expected);
}

// A log whose numbers no run can have; `change` damages it.
void RefuseLog(const std::string& path, const std::string& text,
               const std::function<void(LogHeader*, LogRecord*)>& change) {
  LogHeader header;
  header.sensor_floats = 4;
  header.dim = 2;
  header.period_ns = 10'000'000;
  std::memset(header.digest[0], 'd', sizeof(header.digest[0]));
  LogRecord record;
  header.record_bytes = static_cast<uint32_t>(RecordBytes(4, 2));
  change(&header, &record);
  const std::vector<float> values((header.record_bytes - sizeof(record)) / sizeof(float));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite(&header, sizeof(header), 1, file);
  std::fwrite(&record, sizeof(record), 1, file);
  std::fwrite(values.data(), sizeof(float), values.size(), file);
  std::fclose(file);
  CHECK_ERROR(LP_INVALID_ARGUMENT, text, ReadLog(path));
}

void TestDamagedNumbers() {
  const std::string path = Path() + "_damaged";
  const std::string damaged = "is damaged: record 0 has a time or a state that no run has";
  for (int64_t LogRecord::* field :
       {&LogRecord::planned_ns, &LogRecord::now_ns, &LogRecord::work_ns, &LogRecord::policy_ns}) {
    // Sums and differences of them overflow.
    RefuseLog(path, damaged, [&](auto*, LogRecord* record) { record->*field = INT64_MAX; });
    RefuseLog(path, damaged, [&](auto*, LogRecord* record) { record->*field = INT64_MIN; });
  }
  RefuseLog(path, damaged, [](auto*, LogRecord* record) { record->state = 6; });
  RefuseLog(path, "is no log", [](LogHeader* header, auto*) { header->period_ns = INT64_MAX; });
  // A zero would cut off the sentence that shows it.
  RefuseLog(path, "is no log", [](LogHeader* header, auto*) { header->digest[0][5] = 0; });
  RefuseLog(path, "is no log", [](LogHeader* header, auto*) {
    header->sensor_floats = 1u << 19;  // no packet holds so many
    header->record_bytes = static_cast<uint32_t>(RecordBytes(1u << 19, 2));
  });
  std::remove(path.c_str());
}

void TestBadFiles(const std::string& path) {
  CHECK_ERROR(LP_INVALID_ARGUMENT, "is no log", ReadLog("/nowhere/log"));
  CHECK_ERROR(LP_INVALID_ARGUMENT, "cannot be written",
              StepLog("/nowhere/log", LogHeader{}, {{}}, stderr));
  // A run that was killed leaves half a record.
  CHECK(::truncate(path.c_str(), sizeof(LogHeader) + 5 * RecordBytes(4, 2) + 11) == 0);
  CHECK(ReadLog(path).count() == 5);
  CHECK(::truncate(path.c_str(), 100) == 0);
  CHECK_ERROR(LP_INVALID_ARGUMENT, "is no log", ReadLog(path));
}

void TestFullRing() {
  Runner runner(One(FakeDeployment()), FakeOpen(), true);
  StepLog log("", MakeHeader(runner), {{}}, stderr);
  const StepOutput& output = runner.Step({});
  LogRecord record;
  for (int i = 0; i < 100'000; ++i) log.Push(record, {}, output);
  CHECK(log.dropped() > 0);  // the loop did not wait for the writer
}

void TestNotes(std::FILE* notes) {
  std::rewind(notes);
  std::string text(2000, 0);
  text.resize(std::fread(&text[0], 1, text.size(), notes));
  CHECK(text.find("init -> armed: arming was requested\n") != std::string::npos);
  CHECK(text.find("running -> hold: signal 'joints' is not finite\n") != std::string::npos);
}

}  // namespace

int main() {
  TestCounterCounts();
  const std::string path = Path();
  std::FILE* notes = std::tmpfile();
  Record(path, notes);
  TestNotes(notes);
  std::fclose(notes);
  TestReplay(path);
  TestReport(path);
  TestReportSaysWhyDeadlinesWereMissed(path);
  TestBadFiles(path);
  TestDamagedNumbers();
  std::remove(path.c_str());
  TestFullRing();
  return leapp_policy::test::Result();
}
