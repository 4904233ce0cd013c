// SPDX-License-Identifier: Apache-2.0
// A log is refused with a sentence, or gives a report that can be read and a replay that ends.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fuzz/fuzz.h"
#include "onboard/replay.h"
#include "onboard/report.h"
#include "test/onboard_fakes.h"

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::fuzz::Expect;

namespace {

// A file that is nowhere but in memory, and rewritten for each input.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("step_log_fuzz", MFD_CLOEXEC)) {
    Expect(file_ >= 0, "the system gives a file in memory");
  }
  std::string Write(const uint8_t* data, size_t size) const {
    const bool good =
        ::ftruncate(file_, 0) == 0 && ::pwrite(file_, data, size, 0) == static_cast<ssize_t>(size);
    Expect(good, "a file in memory can be written");
    return "/proc/self/fd/" + std::to_string(file_);
  }

 private:
  int file_;
};

void ExpectReport(const LogFile& log) {
  const auto report = leapp_policy::test::Json::parse(ReportJson(log), nullptr, false);
  Expect(report.is_object(), "a report is JSON");
  Expect(report["steps"] == log.count(), "a report tells all steps");
  const std::string svg = ReportSvg(log);
  const std::string end = "</svg>\n";
  Expect(svg.rfind("<svg ", 0) == 0 && svg.size() > end.size() &&
             svg.compare(svg.size() - end.size(), end.size(), end) == 0,
         "a picture is whole");
  Expect(svg.find("nan") == std::string::npos && svg.find("inf") == std::string::npos,
         "a picture has numbers", svg);
}

void ExpectReplay(const LogFile& log) {
  static const Deployment deployment = leapp_policy::test::FakeDeployment();
  std::vector<Deployment> policies(log.header.policies, deployment);
  Runner runner(std::move(policies), leapp_policy::test::FakeOpen(), log.header.auto_start != 0);
  try {
    const ReplayResult result = Replay(log, &runner);
    Expect(result.equal == result.difference.empty(), "a difference is told");
    Expect(result.equal ? result.steps == log.count() : result.steps < log.count(),
           "a replay counts its steps");
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_INVALID_ARGUMENT);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFile file;
  LogFile log;
  try {
    log = ReadLog(file.Write(data, size));
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_INVALID_ARGUMENT);
    return 0;
  }
  Expect(sizeof(LogHeader) + log.records.size() <= size, "no record is made up");
  Expect(log.count() * log.header.record_bytes == log.records.size(), "records are whole");
  ExpectReport(log);
  ExpectReplay(log);
  return 0;
}
