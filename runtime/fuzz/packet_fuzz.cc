// SPDX-License-Identifier: Apache-2.0
// What a robot, or anybody, sends is taken when it is a whole packet that is new, and dropped and
// counted otherwise; a peer that writes anything into the shared memory cannot do more.
//
// The first byte picks one of two kinds of input:
//   even: packets, one after the other, each as 1 byte what to make right about it, 1 byte size,
//         and its bytes. What the transport takes is held against a judge of its own.
//   odd:  what a peer does with the memory: counters, slots, any byte of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "fuzz/fuzz.h"
#include "fuzz/script.h"
#include "onboard/safety.h"
#include "onboard/transport.h"

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using leapp_policy::fuzz::Expect;
using leapp_policy::fuzz::Script;

namespace {

using Packet = std::vector<uint8_t>;

constexpr uint32_t kSensorFloats = 3;
constexpr uint32_t kDim = 2;
constexpr size_t kMostInAPoll = 256;

PacketHeader HeaderOf(const Packet& packet) {
  PacketHeader header;
  std::memcpy(&header, packet.data(), sizeof(header));
  return header;
}

// What `how` says is made right: magic and version, kind, size, checksum.
void Mend(uint8_t how, Packet* packet) {
  if (packet->size() < sizeof(PacketHeader)) return;
  PacketHeader header = HeaderOf(*packet);
  if ((how & 1) != 0) {
    std::memcpy(header.magic, PacketHeader{}.magic, sizeof(header.magic));
    header.version = kPacketVersion;
  }
  if ((how & 2) != 0) header.kind = static_cast<uint16_t>(header.kind % 4);
  if ((how & 4) != 0) {
    header.floats = static_cast<uint32_t>((packet->size() - sizeof(header)) / sizeof(float));
    packet->resize(PacketBytes(header.floats));
  }
  if ((how & 8) != 0) {
    header.crc32 = Crc32(packet->data() + sizeof(header), packet->size() - sizeof(header));
  }
  if ((how & 16) != 0) header.code = header.code % 8;
  std::memcpy(packet->data(), &header, sizeof(header));
}

Packet TakePacket(Script* script) {
  const uint8_t how = script->Byte();
  Packet packet(script->Byte() % 96);
  for (uint8_t& each : packet) each = script->Byte();
  Mend(how, &packet);
  return packet;
}

class QueueTransport : public Transport {
 public:
  QueueTransport() : Transport(kSensorFloats, kDim) {}
  std::deque<Packet> in;

 protected:
  size_t Receive(uint8_t* into, size_t room) noexcept override {
    if (in.empty()) return kNoPacket;
    const size_t bytes = std::min(room, in.front().size());
    std::copy_n(in.front().begin(), bytes, into);
    in.pop_front();
    return bytes;
  }
  bool Send(const uint8_t*, size_t) noexcept override { return true; }
};

// docs/onboard-formats.md once more, in other words.
class Judge {
 public:
  void Take(const Packet& packet) {
    if (!IsWhole(packet) || !IsWanted(packet)) ++rejected;
  }

  uint32_t control = 0;
  uint64_t rejected = 0;
  Packet sensors;

 private:
  static bool IsWhole(const Packet& packet) {
    if (packet.size() < 64 || std::memcmp(packet.data(), "LPR1\1\0", 6) != 0) return false;
    const PacketHeader header = HeaderOf(packet);
    return (packet.size() - 64) % 4 == 0 && header.floats == (packet.size() - 64) / 4 &&
           header.crc32 == Crc32(packet.data() + 64, packet.size() - 64);
  }

  bool IsWanted(const Packet& packet) {
    const PacketHeader header = HeaderOf(packet);
    if (header.kind == 3) {
      if (header.code == 0 || header.code > 5) return false;
      control |= 1u << header.code;
      return true;
    }
    if (header.kind != 1 || header.floats != kSensorFloats) return false;
    if (!sensors.empty()) {
      const PacketHeader last = HeaderOf(sensors);
      const bool is_later =
          static_cast<int64_t>(header.time_ns) > static_cast<int64_t>(last.time_ns);
      if (header.sequence <= last.sequence && !is_later) return false;
    }
    sensors = packet;
    return true;
  }
};

void ExpectAsJudged(const Transport& transport, const Judge& judge) {
  Expect(transport.rejected() == judge.rejected, "what is wrong is counted, nothing else");
  const Sensors& sensors = transport.sensors();
  Expect((sensors.values == nullptr) == judge.sensors.empty(), "good sensors are taken");
  if (sensors.values == nullptr) return;
  const PacketHeader header = HeaderOf(judge.sensors);
  Expect(sensors.sequence == header.sequence &&
             sensors.time_ns == static_cast<int64_t>(header.time_ns) &&
             std::memcmp(sensors.values, judge.sensors.data() + 64, 4 * kSensorFloats) == 0,
         "the newest sensors are there as they were sent");
}

void TakePackets(Script* script) {
  QueueTransport transport;
  Judge judge;
  while (!script->done()) {
    size_t count = 1 + script->Byte() % 4;
    for (; count > 0 && !script->done(); --count) {
      transport.in.push_back(TakePacket(script));
      judge.Take(transport.in.back());
    }
    judge.control ^= transport.Poll();
    Expect(judge.control == 0, "each request is told once");
    ExpectAsJudged(transport, judge);
  }
}

// The robot's side of the shared memory.
class Peer {
 public:
  explicit Peer(const std::string& name) : transport_(OpenSharedMemory(name, kSensorFloats, kDim)) {
    const std::string path = "/dev/shm/leapp_policy." + name;
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    Expect(memory != MAP_FAILED, "the robot can map the file");
    memory_ = static_cast<uint8_t*>(memory);
  }
  ~Peer() { ::munmap(memory_, kBytes); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Act(Script* script) {
    switch (script->Byte() % 8) {
      case 0:
        return WriteCounter(script->Word());
      case 1:
        return WriteCounter(Counter() + script->Byte());
      case 2: {
        const size_t at = script->Word() % kBytes;
        memory_[at] = script->Byte();
        return;
      }
      case 3:
        return Send();
      case 4:
        return Poll();
      default: {  // as a good robot does, and then maybe not
        const Packet packet = TakePacket(script);
        uint8_t* slot = memory_ + kHeader + Counter() % kSlots * kSlotBytes;
        std::copy_n(packet.begin(), std::min(packet.size(), kSlotBytes), slot);
        WriteCounter(Counter() + 1);
        if (script->Byte() % 4 != 0) Poll();
      }
    }
  }

 private:
  static constexpr size_t kSlots = 64, kSlotBytes = 128, kHeader = 192;
  static constexpr size_t kBytes = kHeader + 2 * kSlots * kSlotBytes;

  uint64_t Counter() const {
    uint64_t counter;
    std::memcpy(&counter, memory_ + 64, sizeof(counter));
    return counter;
  }
  void WriteCounter(uint64_t counter) { std::memcpy(memory_ + 64, &counter, sizeof(counter)); }

  void Poll() {
    const uint64_t rejected = transport_->rejected();
    const Sensors before = transport_->sensors();
    const uint32_t control = transport_->Poll();
    const Sensors& after = transport_->sensors();
    Expect((control & ~0x3Eu) == 0, "a request is one of five");
    Expect(transport_->rejected() - rejected <= kMostInAPoll, "a poll takes so many at most");
    Expect(before.values == nullptr || after.values == before.values, "sensors stay in place");
    const bool is_new = after.sequence != before.sequence || after.time_ns != before.time_ns;
    Expect(!is_new || IsInASlot(after), "sensors are a packet that a slot holds");
  }

  bool IsInASlot(const Sensors& sensors) const {
    constexpr size_t kBytesOfSensors = sizeof(PacketHeader) + sizeof(float) * kSensorFloats;
    for (size_t i = 0; i < kSlots; ++i) {
      const uint8_t* slot = memory_ + kHeader + i * kSlotBytes;
      const Packet packet(slot, slot + kBytesOfSensors);
      if (!IsPacket(packet.data(), packet.size())) continue;
      const PacketHeader header = HeaderOf(packet);
      if (header.sequence == sensors.sequence &&
          static_cast<int64_t>(header.time_ns) == sensors.time_ns &&
          std::memcmp(packet.data() + 64, sensors.values, sizeof(float) * kSensorFloats) == 0) {
        return true;
      }
    }
    return false;
  }

  // Whatever the peer wrote, the runner's own packets are whole and where they belong.
  void Send() {
    const float values[kDim] = {1.0f, 2.0f};
    transport_->SendTargets({values, kDim, 0, 2, 0}, 1);
    const uint8_t* slot = memory_ + kHeader + (kSlots + sent_++ % kSlots) * kSlotBytes;
    Expect(IsPacket(slot, PacketBytes(kDim)), "targets are a packet in their slot");
    uint64_t counter;
    std::memcpy(&counter, memory_ + 128, sizeof(counter));
    Expect(counter == sent_, "the runner's counter is its own");
  }

  std::unique_ptr<Transport> transport_;
  uint8_t* memory_ = nullptr;
  uint64_t sent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Script script(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    TakePackets(&script);
  } else {
    Peer peer("fuzz_" + std::to_string(::getpid()));
    while (!script.done()) peer.Act(&script);
  }
  return 0;
}
