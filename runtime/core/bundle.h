// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/byte_span.h"

namespace leapp_policy {

// One compiled module of a bundle. `data` points into the bundle's bytes.
struct BundleModule {
  std::string filename;
  ByteSpan data;
};

// The parts of a WRPB version 1 archive. Owns names only; all data is borrowed from the bytes that
// were parsed and lives as long as they do.
struct Bundle {
  ByteSpan wrp;
  std::vector<BundleModule> modules;
};

// Parses a WRPB version 1 archive: the recording "<stem>.wrp" first, then its modules
// "<stem>_modules/<filename>", nothing after the last one.
//
// Throws Error(LP_BAD_BUNDLE), with the offset, when a length leaves the archive, a path is
// absolute, climbs, repeats or has another form, or bytes are left over.
Bundle ParseBundle(ByteSpan bytes);

}  // namespace leapp_policy
