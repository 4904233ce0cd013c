// SPDX-License-Identifier: Apache-2.0
//
// How the node of any middleware embeds the runner. The middleware's part is played by `Node`: it
// delivers messages on a thread of its own and has a timer. What a real node replaces is marked.
//
//   leapp-run-embed-node FOLDER      runs the policy on a constant message for 100 ticks
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "onboard/clock.h"
#include "onboard/open_runner.h"
#include "onboard/pacing.h"

namespace {

using leapp_policy::onboard::MonotonicNs;
using leapp_policy::onboard::OpenedRunner;
using leapp_policy::onboard::StepInput;
using leapp_policy::onboard::StepOutput;

class Node {
 public:
  explicit Node(const std::string& folder)
      : opened_(leapp_policy::onboard::OpenRunner({folder}, /*auto_start=*/false)),
        inbox_(opened_.runner->deployment().sensor_floats),
        values_(inbox_.size()) {
    opened_.runner->Warm(50);  // before the node says that it is ready
  }

  // The middleware's subscription calls this on its own thread, once a message.
  void OnSensors(const std::vector<float>& payload, int64_t measured_ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    inbox_ = payload;
    measured_ns_ = measured_ns;
    ++sequence_;
  }

  // A service or a button calls these, from any thread.
  void Request(uint32_t control) { control_.fetch_or(control); }

  // The middleware's timer calls this at the policy's rate.
  void OnTimer() {
    StepInput input;
    {
      // The callback of a message may hold the lock: then the last message is used once more, and
      // the staleness check of the runner sees how old it is.
      const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      if (lock.owns_lock()) {
        values_.swap(inbox_);
        inbox_ = values_;
        seen_ = {values_.data(), sequence_, measured_ns_};
        if (sequence_ == 0) seen_.values = nullptr;
      }
    }
    input.now_ns = MonotonicNs();
    input.sensors = seen_;
    input.control = control_.exchange(0);
    input.missed = missed_;
    const StepOutput& output = opened_.runner->Step(input);
    if (output.send) Publish(output);
    missed_ = MonotonicNs() - input.now_ns > opened_.runner->deployment().period_ns;
  }

  size_t published() const { return published_; }
  const leapp_policy::onboard::Deployment& deployment() const {
    return opened_.runner->deployment();
  }
  leapp_policy::onboard::State state() const { return state_; }

 private:
  // Where a real node fills its message of joint targets and publishes it.
  void Publish(const StepOutput& output) {
    state_ = output.state;
    ++published_;
  }

  OpenedRunner opened_;
  std::mutex mutex_;
  std::vector<float> inbox_;  // guarded by mutex_, as the two below
  int64_t measured_ns_ = 0;
  uint64_t sequence_ = 0;
  std::vector<float> values_;
  leapp_policy::onboard::Sensors seen_;
  std::atomic<uint32_t> control_{0};
  bool missed_ = false;
  size_t published_ = 0;
  leapp_policy::onboard::State state_ = leapp_policy::onboard::State::kInit;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: leapp-run-embed-node FOLDER\n");
    return 2;
  }
  try {
    Node node(argv[1]);
    std::atomic<bool> stop{false};
    std::thread middleware([&] {
      const std::vector<float> payload(node.deployment().sensor_floats, 0.0f);
      while (!stop.load()) {
        node.OnSensors(payload, MonotonicNs());
        std::this_thread::sleep_for(std::chrono::nanoseconds(node.deployment().period_ns));
      }
    });
    leapp_policy::onboard::Pacing timer(node.deployment().period_ns);
    timer.Begin(MonotonicNs());
    for (int tick = 0; tick < 100; ++tick) {
      timer.Wait();
      if (tick == 10) node.Request(leapp_policy::onboard::kControlArm);
      if (tick == 20) node.Request(leapp_policy::onboard::kControlStart);
      node.OnTimer();
      timer.Advance(MonotonicNs());
    }
    stop.store(true);
    middleware.join();
    std::printf("%zu targets published, last state: %s\n", node.published(),
                leapp_policy::onboard::StateName(node.state()));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "leapp-run-embed-node: %s\n", e.what());
    return 2;
  }
}
