// SPDX-License-Identifier: Apache-2.0
// A recording's header is refused with a sentence, or gives a version that is fit to be printed.
#include "core/wrp_header.h"
#include "fuzz/fuzz.h"

using leapp_policy::fuzz::Expect;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const leapp_policy::WrpHeader header = leapp_policy::ReadWrpHeader({data, size});
    if (header.warp_version) {
      Expect(!header.warp_version->empty() && header.warp_version->size() <= 64,
             "a version is short", *header.warp_version);
      for (const char c : *header.warp_version) {
        Expect(c > 0x20 && c < 0x7f, "a version is printable", *header.warp_version);
      }
    }
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_BAD_BUNDLE);
  }
  return 0;
}
