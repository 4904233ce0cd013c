// SPDX-License-Identifier: Apache-2.0
// Metadata is refused with a sentence, or its sizes are those that dtypes and shapes give.
#include "core/metadata.h"
#include "fuzz/fuzz.h"

using leapp_policy::TensorSpec;
using leapp_policy::fuzz::Expect;

namespace {

void ExpectDense(const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    uint64_t bytes = leapp_policy::DTypeSize(spec.dtype);
    for (const int64_t dim : spec.shape) {
      Expect(dim >= 0, "a dimension is not negative", spec.name);
      Expect(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes),
             "the bytes of a shape fit", spec.name);
    }
    Expect(bytes == spec.num_bytes, "an array has the bytes of its shape", spec.name);
    Expect(spec.masked || !spec.name.empty(), "an array that is read has a name");
    Expect(spec.name.find('\0') == std::string::npos, "a name has no NUL");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const leapp_policy::Metadata metadata = leapp_policy::ParseMetadata(text);
    ExpectDense(metadata.inputs);
    ExpectDense(metadata.outputs);
    if (metadata.record && metadata.record->device.family == leapp_policy::DeviceFamily::kCpu) {
      Expect(metadata.record->cpu.has_value(), "machine code for a CPU states its target");
    }
  } catch (const leapp_policy::Error& e) {
    leapp_policy::fuzz::ExpectRefusal(e, LP_BAD_METADATA);
  }
  return 0;
}
