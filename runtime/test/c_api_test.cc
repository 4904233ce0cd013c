// SPDX-License-Identifier: Apache-2.0
// Without these a mistake of the caller could crash the process instead of giving a status.
#include <cstdlib>
#include <cstring>

#include "leapp_policy/runtime.h"
#include "test/check.h"

namespace {

bool Said(const char* text) { return std::strstr(lp_last_error(), text) != nullptr; }

}  // namespace

int main() {
  CHECK(lp_abi_version() == LP_ABI_VERSION);
  CHECK(std::strcmp(lp_last_error(), "") == 0);

  lp_segment* segment = reinterpret_cast<lp_segment*>(1);
  CHECK(lp_segment_open("x", 1, "{}", "cpu", nullptr) == LP_INVALID_ARGUMENT && Said("'out'"));
  CHECK(lp_segment_open(nullptr, 0, "{}", "cpu", &segment) == LP_INVALID_ARGUMENT);
  CHECK(segment == nullptr && Said("'bundle' must not be NULL"));
  CHECK(lp_segment_open("x", 1, nullptr, "cpu", &segment) == LP_INVALID_ARGUMENT);
  CHECK(lp_segment_open("x", 1, "{}", nullptr, &segment) == LP_INVALID_ARGUMENT);
  CHECK(lp_segment_open("x", 1, "{}", "tpu", &segment) == LP_INVALID_ARGUMENT && Said("'tpu'"));
  CHECK(lp_segment_open("x", 1, "{}", "cuda:0", &segment) == LP_BAD_METADATA && Said("'inputs'"));
  CHECK(lp_segment_open("x", 1, "{", "cpu", &segment) == LP_BAD_METADATA && Said("JSON"));
  CHECK(lp_segment_open("x", 1, R"({"inputs":[],"outputs":[]})", "cpu", &segment) == LP_BAD_BUNDLE);
  CHECK(Said("magic"));

  CHECK(lp_segment_run(nullptr, nullptr, 0, nullptr, 0, nullptr) == LP_INVALID_ARGUMENT);
  CHECK(lp_segment_describe(nullptr) == nullptr);
  lp_segment_close(nullptr);

  CHECK(lp_warp_describe(nullptr) == LP_INVALID_ARGUMENT);
  setenv("LEAPP_POLICY_WARP_LIBRARY_DIR", "/nonexistent", 1);
  const char* warp = nullptr;
  CHECK(lp_warp_describe(&warp) == LP_NO_WARP && Said("/nonexistent/warp.so"));
  return leapp_policy::test::Result();
}
