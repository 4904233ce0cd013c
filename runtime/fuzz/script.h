// SPDX-License-Identifier: Apache-2.0
//
// The bytes of an input as decisions, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace leapp_policy::fuzz {

// What comes after the last byte is pseudo-random and the same for the same input, so that a
// short input decides as much as a long one.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), left_(size) {
    for (size_t i = 0; i < size; ++i) seed_ = (seed_ ^ data[i]) * 0x100000001B3u;
  }

  uint8_t Byte() {
    if (left_ > 0) {
      --left_;
      return *data_++;
    }
    seed_ ^= seed_ << 13;
    seed_ ^= seed_ >> 7;
    seed_ ^= seed_ << 17;
    return static_cast<uint8_t>(seed_ >> 32);
  }

  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    return word;
  }

  // From -0.5 to 0.5: within most ranges.
  float Small() { return (static_cast<float>(Byte()) - 127.5f) / 255.0f; }

  // As far from each other as two numbers can be.
  float Largest() {
    return Byte() % 2 == 0 ? std::numeric_limits<float>::max()
                           : std::numeric_limits<float>::lowest();
  }

  // Mostly a small number, now and then one that is none.
  float Any() {
    const uint8_t how = Byte();
    if (how < 0xE0) return Small();
    switch (how % 8) {
      case 0:
        return std::numeric_limits<float>::quiet_NaN();
      case 1:
        return std::numeric_limits<float>::infinity();
      case 2:
        return -std::numeric_limits<float>::infinity();
      case 3:
      case 4:
        return Largest();
      case 5:
        return std::numeric_limits<float>::denorm_min();
      default: {
        const uint32_t bits = static_cast<uint32_t>(Word());
        float any;
        std::memcpy(&any, &bits, sizeof(any));
        return any;
      }
    }
  }

  void Numbers(float* to, size_t count) {
    const uint8_t how = Byte() % 8;
    for (size_t i = 0; i < count; ++i) to[i] = how == 0 ? Any() : how < 3 ? Largest() : Small();
  }

  bool done() const { return left_ == 0; }

 private:
  const uint8_t* data_;
  size_t left_;
  uint64_t seed_ = 0xCBF29CE484222325u;
};

}  // namespace leapp_policy::fuzz
