// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/byte_span.h"

namespace leapp_policy {

// The device byte of a .wrp file, Warp's numbers.
constexpr uint8_t kWrpDeviceCuda = 0;
constexpr uint8_t kWrpDeviceCpu = 1;

// The facts at the front of a .wrp recording that are checked before Warp parses it.
struct WrpHeader {
  uint32_t format = 0;
  uint8_t device = 0;
  std::optional<std::string> warp_version;  // the producer's, where the metadata section gives it
};

// Throws Error(LP_BAD_BUNDLE) when the bytes are no .wrp recording.
WrpHeader ReadWrpHeader(ByteSpan wrp);

}  // namespace leapp_policy
