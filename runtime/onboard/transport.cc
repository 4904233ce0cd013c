// SPDX-License-Identifier: Apache-2.0
#include "onboard/transport.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

// A sender that floods the runner must not keep it from its step.
constexpr int kMostPacketsInAPoll = 256;
constexpr uint32_t kHighestControl = 5;

}  // namespace

Transport::Transport(size_t sensor_floats, size_t dim)
    : in_(kMostPacketBytes),
      out_(PacketBytes(static_cast<uint32_t>(dim))),
      values_(sensor_floats),
      dim_(static_cast<uint32_t>(dim)) {}

uint32_t Transport::Poll() noexcept {
  uint32_t control = 0;
  for (int i = 0; i < kMostPacketsInAPoll; ++i) {
    const size_t bytes = Receive(in_.data(), in_.size());
    if (bytes == kNoPacket) break;
    PacketHeader header;
    bool good = IsPacket(in_.data(), bytes);
    if (good) {
      std::memcpy(&header, in_.data(), sizeof(header));
      if (header.kind == static_cast<uint16_t>(PacketKind::kControl)) {
        good = header.code >= 1 && header.code <= kHighestControl;
        if (good) control |= 1u << header.code;
      } else {
        good = header.kind == static_cast<uint16_t>(PacketKind::kSensors) && TakeSensors(header);
      }
    }
    if (!good) ++rejected_;
  }
  return control;
}

bool Transport::TakeSensors(const PacketHeader& header) noexcept {
  if (header.floats != values_.size()) return false;
  const int64_t time_ns = static_cast<int64_t>(header.time_ns);
  const bool is_first = sensors_.values == nullptr;
  // A sender that was restarted counts from 1 again, but its time goes on.
  if (!is_first && header.sequence <= sensors_.sequence && time_ns <= sensors_.time_ns) {
    return false;
  }
  std::memcpy(values_.data(), in_.data() + sizeof(header), values_.size() * sizeof(float));
  sensors_ = {values_.data(), header.sequence, time_ns};
  SensorsAccepted();
  return true;
}

bool Transport::SendTargets(const TargetsMessage& message, int64_t now_ns) noexcept {
  PacketHeader header;
  header.kind = static_cast<uint16_t>(PacketKind::kTargets);
  header.floats = dim_;
  header.sequence = ++sent_;
  header.time_ns = static_cast<uint64_t>(now_ns);
  header.answers = message.answers;
  header.code = message.state;
  header.cause = message.cause;
  header.crc32 = Crc32(message.values, size_t{4} * dim_);
  std::memcpy(out_.data(), &header, sizeof(header));
  std::memcpy(out_.data() + sizeof(header), message.values, size_t{4} * dim_);
  return Send(out_.data(), out_.size());
}

std::unique_ptr<Transport> OpenTransport(const std::string& address, size_t sensor_floats,
                                         size_t dim) {
  const size_t colon = address.find(':');
  const std::string kind = address.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits = !rest.empty() && rest.find_first_not_of("0123456789") == std::string::npos;
  if (kind == "udp" && digits && rest.size() <= 5 && std::stoul(rest) - 1 < 65535) {
    return OpenUdp(static_cast<uint16_t>(std::stoul(rest)), sensor_floats, dim);
  }
  const bool plain = !rest.empty() && rest.size() <= 64 &&
                     std::all_of(rest.begin(), rest.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '_' || c == '-';
                     });
  if (kind == "shm" && plain) return OpenSharedMemory(rest, sensor_floats, dim);
  throw Error(
      LP_INVALID_ARGUMENT,
      "Transport must be udp:PORT (1 to 65535) or shm:NAME (letters, digits, _ and -), got '" +
          address + "'.");
}

}  // namespace leapp_policy::onboard
