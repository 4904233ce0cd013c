// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/bundle.h"
#include "core/byte_span.h"
#include "core/device.h"
#include "core/metadata.h"
#include "core/warp_library.h"
#include "core/wrp_header.h"

namespace leapp_policy {

// The checks of a bundle against its record and against the running machine. Each throws Error with
// both values in the message; none executes anything of the bundle.

// Size and SHA-256 of the bundle, where they are recorded (LP_BAD_BUNDLE).
void CheckDigest(const Metadata& metadata, ByteSpan bundle);

// The record's and the recording's device family against the one asked for (LP_WRONG_DEVICE), and
// the two .wrp formats against each other (LP_BAD_BUNDLE).
void CheckDevice(const Metadata& metadata, const WrpHeader& header, Device device);

// Major and minor Warp release of the producer against `running` (LP_WRONG_VERSION). The recording
// itself is asked when there is no record.
void CheckWarpVersion(const Metadata& metadata, const WrpHeader& header,
                      const std::string& running);

// Architecture and instruction set of the machine code against this machine (LP_WRONG_CPU), and the
// form of its objects (LP_BAD_BUNDLE).
void CheckCpu(const Metadata& metadata, const std::vector<WarpModuleBytes>& modules);

// What a GPU gets of a bundle's builds.
struct GpuSelection {
  std::vector<WarpModuleBytes> modules;
  bool has_ptx = false;  // of which some are PTX, which a driver may refuse
  std::string misfit;    // a sentence without remedy and full stop: no build of a module fits
};

// The best build of each CUDA module for a GPU of compute capability `arch` (90 for 9.0), under the
// name that the recording has for the module: machine code of the same major version, else PTX of
// an older one. Without a record of builds, all files of the bundle as they are.
//
// Throws Error(LP_BAD_BUNDLE) for a build that the bundle does not hold.
GpuSelection SelectGpuModules(const Metadata& metadata, const Bundle& bundle, int arch);

// A file of the bundle that its metadata names (LP_BAD_BUNDLE when it is not there).
ByteSpan BundleFile(const Metadata& metadata, const Bundle& bundle, const std::string& filename);

}  // namespace leapp_policy
