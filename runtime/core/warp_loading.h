// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/byte_span.h"
#include "core/metadata.h"
#include "core/warp_library.h"
#include "core/wrp_header.h"

namespace leapp_policy {

// Loading that differs between releases of Warp: since 1.19 it takes bytes; 1.17 and 1.18 take
// paths, and get them in a PrivateFolder that is gone when the call returns.

// Loads a recording with its modules. `context` is a CUDA context, null on the CPU; `device_type`
// is one of wrp_header.h. Returns null where Warp refuses.
//
// Throws Error(LP_LOAD_FAILED) when the files cannot be written.
WarpGraph* LoadRecording(const WarpFunctions& warp, void* context, ByteSpan wrp,
                         const std::vector<WarpModuleBytes>& modules, int device_type);

// The error text that Warp keeps: one for the whole process, never cleared.
std::string WarpErrorText(const WarpFunctions& warp);

// What Warp says now that it did not say `before`; an unchanged text is nobody's reason.
std::string WarpReason(const WarpFunctions& warp, const std::string& before);

// A sentence without remedy and full stop: Warp did not load the segment's recording, and why.
std::string LoadRefusal(const Metadata& metadata, const WrpHeader& header,
                        const WarpFunctions& warp, const std::string& before);

// Loads an object into the JIT as `name`. Returns false where Warp refuses.
//
// Throws Error(LP_LOAD_FAILED) when the file cannot be written.
bool LoadObject(const WarpFunctions& warp, ByteSpan object, const std::string& name);

}  // namespace leapp_policy
