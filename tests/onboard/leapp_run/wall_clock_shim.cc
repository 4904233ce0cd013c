// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into a program, it moves the wall clock that the program sees, and
// counts who looks. The file that WALL_CLOCK_SHIM names is shared with the
// test: what to add, to which clock, and counts.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

struct Shared {
  std::atomic<int64_t> wall_offset_s;
  std::atomic<int64_t> monotonic_offset_s;
  std::atomic<int64_t> wall_reads;
  std::atomic<int64_t> monotonic_reads;
};

Shared *shared() {
  static Shared *const memory = [] {
    const char *path = std::getenv("WALL_CLOCK_SHIM");
    const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
      std::abort();
    void *found = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED, file, 0);
    ::close(file);
    if (found == MAP_FAILED)
      std::abort();
    return static_cast<Shared *>(found);
  }();
  return memory;
}

// The system call itself: what the C library would have asked for.
timespec Read(clockid_t clock) {
  timespec now{};
  ::syscall(SYS_clock_gettime, clock, &now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    ++shared()->wall_reads;
    now.tv_sec += shared()->wall_offset_s;
  } else if (clock == CLOCK_MONOTONIC) {
    ++shared()->monotonic_reads;
    now.tv_sec += shared()->monotonic_offset_s;
  }
  return now;
}

} // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec *now) noexcept {
  *now = Read(clock);
  return 0;
}

int gettimeofday(timeval *now, void *) noexcept {
  const timespec found = Read(CLOCK_REALTIME);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) noexcept {
  const time_t now = Read(CLOCK_REALTIME).tv_sec;
  if (into != nullptr)
    *into = now;
  return now;
}
}
