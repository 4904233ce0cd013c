// SPDX-License-Identifier: Apache-2.0
//
// The smallest test harness that does: a failed CHECK prints its place and fails the program.
#pragma once

#include <cstdio>
#include <string>

#include "core/error.h"

namespace leapp_policy::test {

inline int failures = 0;

inline void Report(bool ok, const char* file, int line, const std::string& what) {
  if (ok) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

// Runs `body`, which must throw Error with `status` and a sentence that holds `text`.
template <typename Body>
void ExpectError(lp_status status, const std::string& text, const char* file, int line,
                 Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    const std::string sentence = e.what();
    const bool ok = e.status() == status && sentence.find(text) != std::string::npos;
    Report(ok, file, line,
           "expected status " + std::to_string(status) + " with '" + text + "', got " +
               std::to_string(e.status()) + ": " + sentence);
    return;
  }
  Report(false, file, line, "expected an Error with '" + text + "', nothing was thrown");
}

inline int Result() { return failures == 0 ? 0 : 1; }

}  // namespace leapp_policy::test

#define CHECK(condition) \
  ::leapp_policy::test::Report((condition), __FILE__, __LINE__, "failed: " #condition)
#define CHECK_ERROR(status, text, ...) \
  ::leapp_policy::test::ExpectError(status, text, __FILE__, __LINE__, [&] { __VA_ARGS__; })
