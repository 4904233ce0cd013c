// SPDX-License-Identifier: Apache-2.0
//
// The layout of what goes over a transport; docs/onboard-formats.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leapp_policy::onboard {

enum class PacketKind : uint16_t { kSensors = 1, kTargets = 2, kControl = 3 };

constexpr uint16_t kPacketVersion = 1;

struct PacketHeader {
  char magic[4] = {'L', 'P', 'R', '1'};
  uint16_t version = kPacketVersion;
  uint16_t kind = 0;
  uint32_t floats = 0;
  uint32_t crc32 = 0;
  uint64_t sequence = 0;
  uint64_t time_ns = 0;
  uint64_t answers = 0;
  uint32_t code = 0;
  uint32_t cause = 0;
  uint8_t reserved[16] = {};
};
static_assert(sizeof(PacketHeader) == 64, "the header is 64 bytes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packets are little-endian");

constexpr size_t kMostPacketBytes = 65507;  // a UDP datagram

inline size_t PacketBytes(uint32_t floats) { return sizeof(PacketHeader) + size_t{4} * floats; }

// CRC-32 as zlib has it.
uint32_t Crc32(const void* data, size_t bytes) noexcept;

// Whether `bytes` of `packet` are one whole packet of this version with a payload as it was sent.
bool IsPacket(const uint8_t* packet, size_t bytes) noexcept;

}  // namespace leapp_policy::onboard
