// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace leapp_policy::onboard {

struct RealtimeOptions {
  bool lock_memory = true;
  std::optional<int> cpu;   // pins the calling thread
  std::optional<int> fifo;  // SCHED_FIFO priority of the calling thread
};

// What the calling thread got. A robot without the rights still runs, and says what it lacks.
struct RealtimeResult {
  bool memory_locked = false;
  bool pinned = false;
  bool fifo = false;
  std::vector<std::string> notes;  // one sentence for each thing that was refused
};

RealtimeResult SetUpRealtime(const RealtimeOptions& options);

// Touches the stack below, so that no step takes a page fault for it.
void TouchStack();

}  // namespace leapp_policy::onboard
