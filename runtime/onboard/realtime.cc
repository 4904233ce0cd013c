// SPDX-License-Identifier: Apache-2.0
#include "onboard/realtime.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace leapp_policy::onboard {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

// mlockall(MCL_FUTURE) under a small limit succeeds and lets later allocations fail: asked before.
bool MayLock() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

}  // namespace

RealtimeResult SetUpRealtime(const RealtimeOptions& options) {
  RealtimeResult result;
  if (options.lock_memory) {
    // What the warm-up has touched is locked; libraries are not read in whole, most is never used.
    int flags = MCL_CURRENT | MCL_ONFAULT;
    if (MayLock()) flags |= MCL_FUTURE;
    result.memory_locked = ::mlockall(flags) == 0;
    if (!result.memory_locked) {
      result.notes.push_back(std::string("Memory is not locked (") + std::strerror(errno) +
                             "): a page that was swapped out can delay a step; raise 'ulimit -l' "
                             "or grant CAP_IPC_LOCK.");
    }
  }
  if (options.cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool known = *options.cpu >= 0 && *options.cpu < CPU_SETSIZE;
    if (known) CPU_SET(static_cast<size_t>(*options.cpu), &set);
    const int error =
        known ? ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set) : EINVAL;
    result.pinned = error == 0;
    if (error != 0) {
      result.notes.push_back("The loop is not pinned to CPU " + std::to_string(*options.cpu) +
                             " (" + std::strerror(error) +
                             "); name one that this process may use.");
    }
  }
  if (options.fifo) {
    sched_param param{};
    param.sched_priority = *options.fifo;
    const int error = ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &param);
    result.fifo = error == 0;
    if (error != 0) {
      result.notes.push_back("The loop has no real-time priority " + std::to_string(*options.fifo) +
                             " (" + std::strerror(error) +
                             "): other processes can delay it; raise 'ulimit -r' or grant "
                             "CAP_SYS_NICE.");
    }
  }
  return result;
}

void TouchStack() {
  volatile unsigned char stack[kStackBytes];
  for (size_t i = 0; i < kStackBytes; i += 1024) stack[i] = 0;
  static_cast<void>(stack[0]);
}

}  // namespace leapp_policy::onboard
