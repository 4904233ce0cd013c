// SPDX-License-Identifier: Apache-2.0
// lp_segment_open() as a whole, on a Warp that only counts what it is asked to load.
//
// The first byte picks one of two kinds of input:
//   even: 4 bytes length n, n bytes of metadata, the bundle. It is refused with a sentence, or
//         opens and runs.
//   odd:  1 byte how, 8 bytes where, 1 byte what, the bundle. The metadata records the digest of
//         the bundle; the change that those bytes describe is made afterwards. Then it must be
//         refused as damaged, and none of it may have reached Warp.
#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "core/sha256.h"
#include "fuzz/fuzz.h"
#include "leapp_policy/runtime.h"

using leapp_policy::ByteSpan;
using leapp_policy::fuzz::Expect;

namespace {

constexpr size_t kChangeSize = 10;

uint64_t (*warp_loads)() = nullptr;

// Opens, runs where it opens, and closes; the sentence is in lp_last_error().
lp_status Open(const std::vector<uint8_t>& bundle, const std::string& metadata) {
  // An empty vector's data() may be null, which is the caller's mistake and not under test here.
  static const uint8_t kNothing = 0;
  lp_segment* segment = nullptr;
  const lp_status status = lp_segment_open(bundle.empty() ? &kNothing : bundle.data(),
                                           bundle.size(), metadata.c_str(), "cpu", &segment);
  Expect((status == LP_OK) == (segment != nullptr), "a segment comes with LP_OK alone");
  if (status != LP_OK) {
    const std::string sentence = lp_last_error();
    Expect(!sentence.empty() && sentence.back() == '.', "a refusal is a sentence", sentence);
    Expect(status != LP_INTERNAL && status != LP_NO_WARP, "a refusal has a reason", sentence);
    return status;
  }
  Expect(std::strlen(lp_segment_describe(segment)) > 0, "an open segment has a description");
  // With no buffers at all a segment that has ports must refuse; one that has none runs.
  const lp_status ran = lp_segment_run(segment, nullptr, 0, nullptr, 0, nullptr);
  Expect(ran == LP_OK || ran == LP_INVALID_ARGUMENT, "missing buffers are refused",
         lp_last_error());
  lp_segment_close(segment);
  return status;
}

void OpenAny(ByteSpan input) {
  if (input.size < 4) return;
  const size_t left = input.size - 4;
  const size_t length = leapp_policy::ReadU32(input.data) % (left + 1);
  const std::string metadata(reinterpret_cast<const char*>(input.data + 4), length);
  const uint8_t* bundle = input.data + 4 + length;
  Open(std::vector<uint8_t>(bundle, input.data + input.size), metadata);
}

std::string MetadataFor(const std::vector<uint8_t>& bundle) {
  const std::string digest = leapp_policy::Sha256Hex({bundle.data(), bundle.size()});
  return R"({"inputs": [], "outputs": [], "leapp_policy": {"schema": 1, "segment": "fuzz/0",
             "device": "cpu", "warp_version": "1.19.0", "wrp_format": 18,
             "cpu": {"triple": "x86_64-unknown-linux-gnu", "march": "x86-64", "features": []},
             "bundle": {"sha256": ")" +
         digest + R"(", "size": )" + std::to_string(bundle.size()) + "}}}";
}

// One change to a copy of `bundle`: bits, a cut, a longer end, a byte more or less inside.
std::vector<uint8_t> Changed(const std::vector<uint8_t>& bundle, const uint8_t* change) {
  std::vector<uint8_t> out = bundle;
  const uint8_t how = change[0] % 5;
  const size_t where = static_cast<size_t>(leapp_policy::ReadU64(change + 1) % bundle.size());
  const uint8_t what = change[9];
  const auto at = out.begin() + static_cast<std::ptrdiff_t>(where);
  if (how == 0) *at = static_cast<uint8_t>(*at ^ what);
  if (how == 1) out.resize(where);
  if (how == 2) out.push_back(what);
  if (how == 3) out.insert(at, what);
  if (how == 4) out.erase(at);
  return out;
}

void OpenChanged(ByteSpan input) {
  if (input.size <= kChangeSize) return;
  const std::vector<uint8_t> bundle(input.data + kChangeSize, input.data + input.size);
  const std::vector<uint8_t> changed = Changed(bundle, input.data);
  const uint64_t before = warp_loads();
  const lp_status status = Open(changed, MetadataFor(bundle));
  const bool says_damaged =
      status == LP_BAD_BUNDLE && std::strstr(lp_last_error(), "bundle must have ") != nullptr;
  Expect(says_damaged == (changed != bundle),
         "a bundle is damaged when it is not the one that was exported", lp_last_error());
  Expect(!says_damaged || warp_loads() == before, "nothing damaged reaches Warp");
}

}  // namespace

// The stand-in lies beside this program. That it can be used is checked here: without it every
// input would be refused for want of Warp, and nothing be tested.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake_warp";
  setenv("LEAPP_POLICY_WARP_LIBRARY_DIR", folder.c_str(), 1);
  const char* description = nullptr;
  const bool found = lp_warp_describe(&description) == LP_OK;
  Expect(found, "fake_warp.cc has what the runtime asks of Warp", found ? "" : lp_last_error());
  void* core = dlopen((folder / "warp.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  warp_loads = reinterpret_cast<uint64_t (*)()>(dlsym(core, "fake_warp_loads"));
  Expect(warp_loads != nullptr, "fake_warp.cc counts what it loads");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteSpan rest{data + 1, size - 1};
  if (data[0] % 2 == 0) {
    OpenAny(rest);
  } else {
    OpenChanged(rest);
  }
  return 0;
}
