// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target shares: an input in memory of exactly its size, and rules that abort.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/byte_span.h"
#include "core/error.h"

// One input of a fuzz target; libFuzzer's signature, so that driver.cc and libFuzzer both fit.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace leapp_policy::fuzz {

// Ends the process with `rule`, so that the fuzzer keeps the input that broke it.
inline void Expect(bool holds, const char* rule, const std::string& got = "") {
  if (holds) return;
  std::fprintf(stderr, "broken rule: %s; got: %s\n", rule, got.c_str());
  std::abort();
}

// A refusal is one full sentence with the status of its kind.
inline void ExpectRefusal(const Error& e, lp_status status) {
  const std::string sentence = e.what();
  Expect(e.status() == status, "a refusal has the status of its kind", sentence);
  Expect(!sentence.empty() && sentence.back() == '.', "a refusal is a sentence", sentence);
}

inline bool IsInside(ByteSpan part, ByteSpan whole) {
  return part.data >= whole.data && part.size <= whole.size &&
         static_cast<size_t>(part.data - whole.data) <= whole.size - part.size;
}

}  // namespace leapp_policy::fuzz
