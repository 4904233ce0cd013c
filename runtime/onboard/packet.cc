// SPDX-License-Identifier: Apache-2.0
#include "onboard/packet.h"

#include <array>
#include <cstring>

namespace leapp_policy::onboard {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320u;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1u) ? kPolynomial ^ (value >> 1) : value >> 1;
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32(const void* data, size_t bytes) noexcept {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < bytes; ++i) crc = kTable[(crc ^ p[i]) & 0xFFu] ^ (crc >> 8);
  return crc ^ 0xFFFFFFFFu;
}

bool IsPacket(const uint8_t* packet, size_t bytes) noexcept {
  if (bytes < sizeof(PacketHeader)) return false;
  PacketHeader header;
  std::memcpy(&header, packet, sizeof(header));
  if (std::memcmp(header.magic, PacketHeader{}.magic, sizeof(header.magic)) != 0) return false;
  if (header.version != kPacketVersion || bytes != PacketBytes(header.floats)) return false;
  return header.crc32 == Crc32(packet + sizeof(header), bytes - sizeof(header));
}

}  // namespace leapp_policy::onboard
