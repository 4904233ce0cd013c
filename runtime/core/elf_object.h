// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/byte_span.h"

namespace leapp_policy {

// The machine number of a 64-bit little-endian ELF object, or nothing when the bytes are none.
std::optional<unsigned> ElfMachine(ByteSpan object);

// Looks for damage in the object's tables, which Warp's linker follows without checking them: every
// section, name, symbol and relocation must lie where it says inside the file. Returns what is
// wrong ("symbol 3 has its name outside the string table"), or an empty text. The code itself
// cannot be checked.
std::string FindElfDamage(ByteSpan object);

}  // namespace leapp_policy
