// SPDX-License-Identifier: Apache-2.0
// A bundle is refused with a sentence, or its parts lie inside its bytes under plain names.
#include <set>

#include "core/bundle.h"
#include "fuzz/fuzz.h"

using leapp_policy::fuzz::Expect;
using leapp_policy::fuzz::IsInside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const leapp_policy::ByteSpan bytes{data, size};
  try {
    const leapp_policy::Bundle bundle = leapp_policy::ParseBundle(bytes);
    Expect(IsInside(bundle.wrp, bytes), "the recording lies inside the bundle");
    std::set<std::string> names;
    for (const leapp_policy::BundleModule& module : bundle.modules) {
      Expect(IsInside(module.data, bytes), "a module lies inside the bundle", module.filename);
      Expect(names.insert(module.filename).second, "module names are unique", module.filename);
      Expect(module.filename.find('/') == std::string::npos && module.filename != ".." &&
                 module.filename != "." && !module.filename.empty(),
             "a module has a plain file name", module.filename);
    }
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_BAD_BUNDLE);
  }
  return 0;
}
