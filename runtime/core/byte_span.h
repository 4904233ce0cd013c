// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace leapp_policy {

// Borrowed read-only bytes. Whoever hands one out says how long the memory lives.
struct ByteSpan {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

// Little-endian reads at any alignment; the caller has checked the bounds.
inline uint32_t ReadU32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

inline uint64_t ReadU64(const uint8_t* p) {
  return static_cast<uint64_t>(ReadU32(p)) | static_cast<uint64_t>(ReadU32(p + 4)) << 32;
}

}  // namespace leapp_policy
