// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "onboard/transport.h"

namespace leapp_policy::onboard {
namespace {

// Datagrams on the loopback interface; it answers to where the last good sensors came from.
class UdpTransport : public Transport {
 public:
  UdpTransport(uint16_t port, size_t sensor_floats, size_t dim) : Transport(sensor_floats, dim) {
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_ < 0 ||
        ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      const std::string reason = std::strerror(errno);
      if (socket_ >= 0) ::close(socket_);
      throw Error(LP_INVALID_ARGUMENT, "UDP port " + std::to_string(port) +
                                           " of 127.0.0.1 cannot be bound (" + reason +
                                           "); end the other program or take another port.");
    }
  }
  ~UdpTransport() override { ::close(socket_); }
  UdpTransport(const UdpTransport&) = delete;
  UdpTransport& operator=(const UdpTransport&) = delete;

 protected:
  size_t Receive(uint8_t* into, size_t room) noexcept override {
    for (;;) {
      socklen_t size = sizeof(from_);
      const ssize_t got =
          ::recvfrom(socket_, into, room, 0, reinterpret_cast<sockaddr*>(&from_), &size);
      if (got >= 0) return static_cast<size_t>(got);
      // The news that the robot's port is closed, which comes once for each packet sent to it.
      if (errno != EINTR && errno != ECONNREFUSED) return kNoPacket;
    }
  }
  bool Send(const uint8_t* packet, size_t bytes) noexcept override {
    if (peer_.sin_port == 0) return false;
    const ssize_t sent = ::sendto(socket_, packet, bytes, MSG_NOSIGNAL,
                                  reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_));
    return sent == static_cast<ssize_t>(bytes);
  }
  void SensorsAccepted() noexcept override { peer_ = from_; }

 private:
  int socket_ = -1;
  sockaddr_in from_{}, peer_{};
};

}  // namespace

std::unique_ptr<Transport> OpenUdp(uint16_t port, size_t sensor_floats, size_t dim) {
  return std::make_unique<UdpTransport>(port, sensor_floats, dim);
}

}  // namespace leapp_policy::onboard
