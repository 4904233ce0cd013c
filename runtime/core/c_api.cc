// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/fork_watch.h"
#include "core/segment.h"
#include "core/warp_library.h"
#include "leapp_policy/runtime.h"

struct lp_segment {
  std::unique_ptr<leapp_policy::Segment> impl;
};

namespace {

using leapp_policy::Error;

thread_local std::string last_error;
thread_local std::string warp_description;

lp_status Report(lp_status status, const char* sentence) noexcept {
  try {
    last_error = sentence;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

// Runs `body` and turns whatever it throws into a status and a sentence: the ABI edge.
template <typename Body>
lp_status Guard(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return LP_OK;
  } catch (const Error& e) {
    return Report(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return Report(LP_INTERNAL, "The runtime ran out of memory.");
  } catch (const std::exception& e) {
    return Report(LP_INTERNAL, e.what());
  } catch (...) {
    return Report(LP_INTERNAL, "The runtime failed with an unknown exception.");
  }
}

void ExpectPointer(const void* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Error(LP_INVALID_ARGUMENT, "The argument '" + std::string(name) + "' must not be NULL.");
  }
}

}  // namespace

extern "C" {

uint32_t lp_abi_version(void) { return LP_ABI_VERSION; }

const char* lp_last_error(void) { return last_error.c_str(); }

lp_status lp_warp_describe(const char** out) {
  return Guard([&] {
    ExpectPointer(out, "out");
    const leapp_policy::WarpLibrary& library = leapp_policy::WarpLibrary::Get();
    const nlohmann::json description = {{"version", library.version()},
                                        {"folder", library.folder()}};
    warp_description = description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    *out = warp_description.c_str();
  });
}

lp_status lp_segment_open(const void* bundle, uint64_t bundle_size,
                          const char* runtime_metadata_json, const char* device, lp_segment** out) {
  return Guard([&] {
    ExpectPointer(out, "out");
    *out = nullptr;
    ExpectPointer(bundle, "bundle");
    ExpectPointer(runtime_metadata_json, "runtime_metadata_json");
    ExpectPointer(device, "device");
    auto segment = std::make_unique<lp_segment>();
    segment->impl = leapp_policy::Segment::Open(
        {static_cast<const uint8_t*>(bundle), static_cast<size_t>(bundle_size)},
        runtime_metadata_json, device);
    *out = segment.release();
  });
}

lp_status lp_segment_run(lp_segment* segment, const lp_const_buffer* inputs, size_t num_inputs,
                         const lp_buffer* outputs, size_t num_outputs, void* stream) {
  return Guard([&] {
    ExpectPointer(segment, "segment");
    segment->impl->Run(inputs, num_inputs, outputs, num_outputs, stream);
  });
}

const char* lp_segment_describe(const lp_segment* segment) {
  return segment == nullptr ? nullptr : segment->impl->description().c_str();
}

void lp_segment_close(lp_segment* segment) {
  // In a forked child Warp cannot be asked to unload anything: it might never answer.
  if (segment != nullptr && leapp_policy::IsForkedChild()) (void)segment->impl.release();
  delete segment;
}

}  // extern "C"
