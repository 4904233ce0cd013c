// SPDX-License-Identifier: Apache-2.0
#include "core/fork_watch.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "core/error.h"

namespace leapp_policy {
namespace {

// A handler instead of a look at getpid(), which would be a system call in every run.
std::atomic<bool> is_child{false};

void MarkChild() { is_child.store(true, std::memory_order_relaxed); }

}  // namespace

void WatchForks() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (pthread_atfork(nullptr, nullptr, &MarkChild) != 0) {
      throw Error(LP_INTERNAL, "The runtime ran out of memory for its fork handler.");
    }
  });
}

bool IsForkedChild() { return is_child.load(std::memory_order_relaxed); }

void ExpectNotForked(lp_status status, const std::string& subject) {
  if (!IsForkedChild()) return;
  throw Error(status,
              subject +
                  " cannot be used in this process, which was forked after Warp's libraries "
                  "had been loaded, and they do not survive a fork; start worker processes "
                  "with the 'spawn' method, or load Warp only after the fork.");
}

}  // namespace leapp_policy
