// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onboard/binding.h"
#include "onboard/packet.h"

namespace leapp_policy::onboard {

struct TargetsMessage {
  const float* values = nullptr;
  uint32_t dim = 0;
  uint64_t answers = 0;  // sequence of the sensors packet that was used
  uint32_t state = 0;
  uint32_t cause = 0;
};

// How packets come and go. A subclass moves bytes; what a packet means is told here. Nothing is
// allocated after construction.
class Transport {
 public:
  Transport(size_t sensor_floats, size_t dim);
  virtual ~Transport() = default;

  // Takes all that has come. The newest sensors are in sensors() from then on; returns the requests
  // (ControlBit) since the last call.
  uint32_t Poll() noexcept;
  const Sensors& sensors() const { return sensors_; }

  // Sends targets; false where they could not be sent.
  bool SendTargets(const TargetsMessage& message, int64_t now_ns) noexcept;

  // Packets that were dropped as damaged, of another size, or old.
  uint64_t rejected() const { return rejected_; }

 protected:
  // Copies the next packet to `into`, which has room for `room` bytes, and returns its size, which
  // may be 0; kNoPacket when there is none.
  static constexpr size_t kNoPacket = SIZE_MAX;
  virtual size_t Receive(uint8_t* into, size_t room) noexcept = 0;
  virtual bool Send(const uint8_t* packet, size_t bytes) noexcept = 0;
  // The packet that Receive() gave last was good sensors.
  virtual void SensorsAccepted() noexcept {}

 private:
  bool TakeSensors(const PacketHeader& header) noexcept;

  std::vector<uint8_t> in_, out_;
  std::vector<float> values_;
  Sensors sensors_;
  const uint32_t dim_;
  uint64_t sent_ = 0;
  uint64_t rejected_ = 0;
};

// Opens "shm:NAME" or "udp:PORT" on the runner's side. Throws Error with one sentence.
std::unique_ptr<Transport> OpenTransport(const std::string& address, size_t sensor_floats,
                                         size_t dim);
std::unique_ptr<Transport> OpenUdp(uint16_t port, size_t sensor_floats, size_t dim);
std::unique_ptr<Transport> OpenSharedMemory(const std::string& name, size_t sensor_floats,
                                            size_t dim);

}  // namespace leapp_policy::onboard
