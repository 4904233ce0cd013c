// SPDX-License-Identifier: Apache-2.0
#include "core/sha256.h"

#include <array>
#include <cmath>
#include <cstring>

namespace leapp_policy {
namespace {

constexpr size_t kBlock = 64;
constexpr int kRounds = 64;

// The first 32 bits of the fractional part of `root`, the way FIPS 180-4 (4.2.2, 5.3.3) defines its
// constants. A long double has more than the 32 + 5 bits that this needs.
uint32_t Fraction(long double root) {
  return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

struct Constants {
  std::array<uint32_t, kRounds> k;
  std::array<uint32_t, 8> h;
};

Constants MakeConstants() {
  Constants c{};
  int found = 0;
  for (int n = 2; found < kRounds; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    c.k[found] = Fraction(std::cbrt(static_cast<long double>(n)));
    if (found < 8) c.h[found] = Fraction(std::sqrt(static_cast<long double>(n)));
    ++found;
  }
  return c;
}

uint32_t Rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

void Compress(const Constants& c, const uint8_t* block, std::array<uint32_t, 8>* state) {
  std::array<uint32_t, kRounds> w;
  for (int t = 0; t < 16; ++t) {
    const uint8_t* p = block + 4 * t;
    w[t] = static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 |
           static_cast<uint32_t>(p[2]) << 8 | static_cast<uint32_t>(p[3]);
  }
  for (int t = 16; t < kRounds; ++t) {
    const uint32_t s0 = Rotate(w[t - 15], 7) ^ Rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = Rotate(w[t - 2], 17) ^ Rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  std::array<uint32_t, 8> v = *state;
  for (int t = 0; t < kRounds; ++t) {
    const uint32_t sum1 = Rotate(v[4], 6) ^ Rotate(v[4], 11) ^ Rotate(v[4], 25);
    const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    const uint32_t t1 = v[7] + sum1 + choice + c.k[t] + w[t];
    const uint32_t sum0 = Rotate(v[0], 2) ^ Rotate(v[0], 13) ^ Rotate(v[0], 22);
    const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    v = {t1 + sum0 + majority, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
  }
  for (int i = 0; i < 8; ++i) (*state)[i] += v[i];
}

}  // namespace

std::string Sha256Hex(ByteSpan bytes) {
  static const Constants constants = MakeConstants();
  std::array<uint32_t, 8> state = constants.h;
  const size_t whole = bytes.size / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) Compress(constants, bytes.data + at, &state);

  // The rest, a one bit, zeros, and the length in bits fill one or two more blocks.
  std::array<uint8_t, 2 * kBlock> tail{};
  const size_t rest = bytes.size - whole;
  if (rest > 0) std::memcpy(tail.data(), bytes.data + whole, rest);
  tail[rest] = 0x80;
  const size_t tail_size = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = static_cast<uint64_t>(bytes.size) * 8;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  }
  for (size_t at = 0; at < tail_size; at += kBlock) Compress(constants, tail.data() + at, &state);

  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace leapp_policy
