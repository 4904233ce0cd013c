// SPDX-License-Identifier: Apache-2.0
// Without these a damaged or an old packet could be taken for what the robot measures.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "onboard/safety.h"
#include "onboard/transport.h"
#include "test/check.h"

namespace {

using namespace leapp_policy::onboard;  // NOLINT: a test of this namespace alone
using Bytes = std::vector<uint8_t>;

Bytes MakePacket(PacketKind kind, const std::vector<float>& values, uint64_t sequence,
                 int64_t time_ns, uint32_t code = 0) {
  PacketHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.floats = static_cast<uint32_t>(values.size());
  header.sequence = sequence;
  header.time_ns = static_cast<uint64_t>(time_ns);
  header.code = code;
  header.crc32 = Crc32(values.data(), values.size() * sizeof(float));
  Bytes packet(PacketBytes(header.floats));
  std::memcpy(packet.data(), &header, sizeof(header));
  if (!values.empty()) std::memcpy(packet.data() + 64, values.data(), packet.size() - 64);
  return packet;
}

class QueueTransport : public Transport {
 public:
  QueueTransport() : Transport(2, 2) {}
  std::deque<Bytes> in;
  Bytes out;

 protected:
  size_t Receive(uint8_t* into, size_t room) noexcept override {
    if (in.empty()) return kNoPacket;
    const size_t bytes = std::min(room, in.front().size());
    std::copy_n(in.front().begin(), bytes, into);
    in.pop_front();
    return bytes;
  }
  bool Send(const uint8_t* packet, size_t bytes) noexcept override {
    out.assign(packet, packet + bytes);
    return true;
  }
};

void TestLayout() {
  CHECK(Crc32("123456789", 9) == 0xCBF43926u);
  CHECK(offsetof(PacketHeader, floats) == 8 && offsetof(PacketHeader, crc32) == 12 &&
        offsetof(PacketHeader, sequence) == 16 && offsetof(PacketHeader, time_ns) == 24 &&
        offsetof(PacketHeader, answers) == 32 && offsetof(PacketHeader, code) == 40 &&
        offsetof(PacketHeader, cause) == 44);
  QueueTransport transport;
  const float values[2] = {1.5f, -2.0f};
  CHECK(transport.SendTargets({values, 2, 77, 3, 11}, 123));
  PacketHeader header;
  std::memcpy(&header, transport.out.data(), sizeof(header));
  CHECK(IsPacket(transport.out.data(), transport.out.size()) && header.kind == 2 &&
        header.sequence == 1 && header.answers == 77 && header.code == 3 && header.cause == 11 &&
        header.time_ns == 123 && std::memcmp(transport.out.data() + 64, values, 8) == 0);
}

void TestNewestWins() {
  QueueTransport t;
  CHECK(t.Poll() == 0 && t.sensors().values == nullptr);
  t.in = {MakePacket(PacketKind::kSensors, {1, 2}, 5, 100),
          MakePacket(PacketKind::kControl, {}, 1, 0, 1),
          MakePacket(PacketKind::kSensors, {3, 4}, 6, 200),
          MakePacket(PacketKind::kControl, {}, 1, 0, 4)};
  CHECK(t.Poll() == (kControlArm | kControlEstop));  // none is lost behind the other
  CHECK(t.sensors().values[0] == 3.0f && t.sensors().sequence == 6 && t.rejected() == 0);
}

void TestDropped() {
  QueueTransport t;
  const Bytes good = MakePacket(PacketKind::kSensors, {1, 2}, 5, 100);
  t.in = {good};
  t.Poll();
  for (size_t i : {0u, 4u, 6u, 8u, 12u, 64u, 71u}) {
    Bytes damaged = MakePacket(PacketKind::kSensors, {9, 9}, 8, 900);
    damaged[i] ^= 0x40;
    t.in.push_back(damaged);
  }
  t.in.push_back(Bytes());
  t.in.push_back(Bytes(10));
  t.in.push_back(Bytes(good.begin(), good.end() - 4));
  t.in.push_back(MakePacket(PacketKind::kSensors, {9, 9, 9}, 8, 900));  // another robot
  t.in.push_back(MakePacket(PacketKind::kSensors, {9, 9}, 4, 90));      // overtaken
  t.in.push_back(good);                                                 // twice
  t.in.push_back(MakePacket(PacketKind::kTargets, {9, 9}, 8, 900));
  t.in.push_back(MakePacket(PacketKind::kControl, {}, 1, 0, 0));
  t.in.push_back(MakePacket(PacketKind::kControl, {}, 1, 0, 6));
  const size_t count = t.in.size();
  CHECK(t.Poll() == 0 && t.rejected() == count && t.sensors().values[0] == 1.0f);
  t.in = {MakePacket(PacketKind::kSensors, {7, 7}, 1, 1000)};  // the robot was restarted
  t.Poll();
  CHECK(t.sensors().sequence == 1 && t.sensors().values[0] == 7.0f);
}

void TestAddresses() {
  for (const char* each : {"", "udp", "udp:", "udp:0", "udp:65536", "udp:1x", "shm:", "shm:a/b",
                           "tcp:1", "shm:../x"}) {
    CHECK_ERROR(LP_INVALID_ARGUMENT, "Transport must be udp:PORT", OpenTransport(each, 2, 2));
  }
}

void TestUdp() {
  uint16_t port = 0;
  std::unique_ptr<Transport> runner;
  for (port = 42110; runner == nullptr && port < 42190; ++port) {
    try {
      runner = OpenUdp(port, 2, 2);
      break;
    } catch (const leapp_policy::Error&) {
    }
  }
  CHECK(runner != nullptr);
  if (runner == nullptr) return;
  CHECK_ERROR(LP_INVALID_ARGUMENT, "cannot be bound", OpenUdp(port, 2, 2));
  const float values[2] = {4, 5};
  CHECK(!runner->SendTargets({values, 2, 0, 0, 0}, 1));  // nobody has spoken yet
  const int robot = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto send = [&](const Bytes& packet) {
    ::sendto(robot, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
  };
  send({});  // an empty datagram hides none behind it
  send(MakePacket(PacketKind::kSensors, {1, 2}, 1, 10));
  runner->Poll();
  CHECK(runner->sensors().values != nullptr && runner->sensors().values[1] == 2.0f);
  CHECK(runner->rejected() == 1);  // it is one of the packets that a poll takes at most
  CHECK(runner->SendTargets({values, 2, 1, 2, 0}, 1));
  Bytes got(200);
  CHECK(::recv(robot, got.data(), got.size(), 0) == 72 && IsPacket(got.data(), 72));
  ::close(robot);
  runner->SendTargets({values, 2, 1, 2, 0}, 1);  // the robot is gone: no crash, no SIGPIPE
  CHECK(runner->Poll() == 0);
}

void TestSharedMemory() {
  const std::string name = "test_" + std::to_string(::getpid());
  const std::string path = "/dev/shm/leapp_policy." + name;
  {
    auto runner = OpenSharedMemory(name, 2, 3);
    CHECK_ERROR(LP_INVALID_ARGUMENT, "in use by another runner", OpenSharedMemory(name, 2, 3));
    const int file = ::open(path.c_str(), O_RDWR);
    constexpr size_t kBytes = 192 + 2 * 64 * 128;
    auto* memory =
        static_cast<uint8_t*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    CHECK(std::memcmp(memory, "LPS1\1\0\0\0\x40\0\0\0\x80\0\0\0\1\0\0\0", 20) == 0);
    auto* counter = reinterpret_cast<uint64_t*>(memory + 64);
    for (uint64_t n = 0; n < 200; ++n) {
      const Bytes packet = MakePacket(PacketKind::kSensors, {float(n), 0}, n + 1, int64_t(n));
      std::memcpy(memory + 192 + (n % 64) * 128, packet.data(), packet.size());
      *counter = n + 1;
      if (n % 7 == 0) runner->Poll();
    }
    runner->Poll();
    CHECK(runner->sensors().sequence == 200 && runner->sensors().values[0] == 199.0f);
    CHECK(runner->rejected() == 0);
    std::memset(memory + 192, 0xFF, 64 * 128);  // anything may be written there
    *counter = 10'000;
    runner->Poll();
    CHECK(runner->sensors().sequence == 200 && runner->rejected() == 63);
    const float values[3] = {1, 2, 3};
    for (int i = 0; i < 70; ++i) runner->SendTargets({values, 3, 0, 2, 0}, 1);
    CHECK(*reinterpret_cast<uint64_t*>(memory + 128) == 70);
    CHECK(IsPacket(memory + 192 + 64 * 128 + 5 * 128, 76));
    ::munmap(memory, kBytes);
    ::close(file);
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
  ::close(::open(path.c_str(), O_RDWR | O_CREAT, 0600));  // what a killed runner leaves
  OpenSharedMemory(name, 2, 3);
  CHECK(::access(path.c_str(), F_OK) != 0);
}

}  // namespace

int main() {
  TestLayout();
  TestNewestWins();
  TestDropped();
  TestAddresses();
  TestUdp();
  TestSharedMemory();
  return leapp_policy::test::Result();
}
