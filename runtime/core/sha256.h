// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/byte_span.h"

namespace leapp_policy {

// SHA-256 (FIPS 180-4) as 64 lower-case hexadecimal digits.
std::string Sha256Hex(ByteSpan bytes);

}  // namespace leapp_policy
