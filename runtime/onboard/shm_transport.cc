// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "onboard/transport.h"

namespace leapp_policy::onboard {
namespace {

constexpr uint32_t kSlots = 64;
constexpr size_t kHeaderBytes = 192;
constexpr int kLooks = 20;
constexpr useconds_t kLookUs = 2000;

struct SharedHeader {
  char magic[4];
  uint32_t version;
  uint32_t slots;
  uint32_t slot_bytes;
  std::atomic<uint32_t> ready;
  uint32_t pid;
  uint8_t pad_0[40];
  std::atomic<uint64_t> to_runner;
  uint8_t pad_1[56];
  std::atomic<uint64_t> to_robot;
  uint8_t pad_2[56];
};
static_assert(sizeof(SharedHeader) == kHeaderBytes && offsetof(SharedHeader, to_runner) == 64 &&
                  offsetof(SharedHeader, to_robot) == 128,
              "as in docs/onboard-formats.md");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "counters are shared between processes");

uint32_t SlotBytes(size_t sensor_floats, size_t dim) {
  const size_t bytes = PacketBytes(static_cast<uint32_t>(std::max(sensor_floats, dim)));
  return static_cast<uint32_t>((bytes + 63) / 64 * 64);
}

// Two rings in a file in memory, which this side makes, locks and removes.
class SharedMemoryTransport : public Transport {
 public:
  SharedMemoryTransport(const std::string& name, size_t sensor_floats, size_t dim)
      : Transport(sensor_floats, dim),
        path_("/dev/shm/leapp_policy." + name),
        slot_bytes_(SlotBytes(sensor_floats, dim)),
        bytes_(kHeaderBytes + size_t{2} * kSlots * slot_bytes_) {
    RemoveLeftOver();
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0) Refuse("be made");
    void* memory = MAP_FAILED;
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0 &&
        ::posix_fallocate(file_, 0, static_cast<off_t>(bytes_)) == 0) {
      memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    }
    if (memory == MAP_FAILED) {
      ::unlink(path_.c_str());
      ::close(file_);
      Refuse("be mapped");
    }
    memory_ = static_cast<uint8_t*>(memory);
    header_ = new (memory_) SharedHeader{};
    std::memcpy(header_->magic, "LPS1", 4);
    header_->version = 1;
    header_->slots = kSlots;
    header_->slot_bytes = slot_bytes_;
    header_->pid = static_cast<uint32_t>(::getpid());
    header_->ready.store(1, std::memory_order_release);
  }
  ~SharedMemoryTransport() override {
    ::munmap(memory_, bytes_);
    ::unlink(path_.c_str());
    ::close(file_);
  }
  SharedMemoryTransport(const SharedMemoryTransport&) = delete;
  SharedMemoryTransport& operator=(const SharedMemoryTransport&) = delete;

 protected:
  size_t Receive(uint8_t* into, size_t room) noexcept override {
    const uint64_t written = header_->to_runner.load(std::memory_order_acquire);
    // A counter that runs back is that of a robot which began anew.
    if (written < read_) read_ = 0;
    if (written - read_ >= kSlots) read_ = written - (kSlots - 1);
    if (written == read_) return kNoPacket;
    const uint8_t* slot = memory_ + kHeaderBytes + (read_ % kSlots) * slot_bytes_;
    ++read_;
    PacketHeader header;
    std::memcpy(&header, slot, sizeof(header));
    // The other side may write anything: sizes are bounded before they are used.
    const size_t most = std::min<size_t>(slot_bytes_, room);
    const size_t bytes =
        header.floats > most / 4 ? most : std::min(PacketBytes(header.floats), most);
    std::memcpy(into, slot, bytes);
    return bytes;
  }
  bool Send(const uint8_t* packet, size_t bytes) noexcept override {
    uint8_t* ring = memory_ + kHeaderBytes + size_t{kSlots} * slot_bytes_;
    std::memcpy(ring + (sent_ % kSlots) * slot_bytes_, packet, bytes);
    header_->to_robot.store(++sent_, std::memory_order_release);
    return true;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(LP_INVALID_ARGUMENT, "Shared memory '" + path_ + "' cannot " + what + " (" +
                                         std::strerror(errno) + "); take another name.");
  }

  // A runner that was killed leaves its file behind, one that lives holds its lock.
  void RemoveLeftOver() const {
    const int old = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (old < 0) return;
    bool is_free = ::flock(old, LOCK_EX | LOCK_NB) == 0;
    // A robot that waits for a runner holds the lock for a moment, to see whether it is free.
    for (int i = 0; !is_free && i < kLooks; ++i) {
      ::usleep(kLookUs);
      is_free = ::flock(old, LOCK_EX | LOCK_NB) == 0;
    }
    if (is_free) ::unlink(path_.c_str());
    ::close(old);
    if (!is_free) {
      throw Error(LP_INVALID_ARGUMENT,
                  "Shared memory '" + path_ +
                      "' is in use by another runner; end it or take another name.");
    }
  }

  const std::string path_;
  const uint32_t slot_bytes_;
  const size_t bytes_;
  int file_ = -1;
  uint8_t* memory_ = nullptr;
  SharedHeader* header_ = nullptr;
  uint64_t read_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<Transport> OpenSharedMemory(const std::string& name, size_t sensor_floats,
                                            size_t dim) {
  return std::make_unique<SharedMemoryTransport>(name, sensor_floats, dim);
}

}  // namespace leapp_policy::onboard
