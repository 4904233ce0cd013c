// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace leapp_policy {

// The architecture that this library was compiled for, as in a target triple: "x86_64", "aarch64".
const char* HostArchitecture();

// The ELF machine number of HostArchitecture().
unsigned HostElfMachine();

// The first part of a target triple, in HostArchitecture()'s spelling ("arm64" becomes "aarch64").
std::string TripleArchitecture(const std::string& triple);

// Those of `features` (LLVM's names) that this machine's processor or operating system does not
// offer, in order. A name that is unknown here counts as missing: nobody can vouch for it.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features);

}  // namespace leapp_policy
