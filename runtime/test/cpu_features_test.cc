// SPDX-License-Identifier: Apache-2.0
// Without these code for another instruction set could start and die of an illegal instruction.
#include "core/cpu_features.h"

#include "test/check.h"

int main() {
  using leapp_policy::MissingCpuFeatures;
  using leapp_policy::TripleArchitecture;
  CHECK(MissingCpuFeatures({}).empty());
#if defined(__x86_64__)
  CHECK(MissingCpuFeatures({"sse2", "cmov", "fxsr"}).empty());  // part of every x86-64
  // The compiler's own detection is an independent witness.
  CHECK(MissingCpuFeatures({"avx2"}).empty() == !!__builtin_cpu_supports("avx2"));
  CHECK(MissingCpuFeatures({"fma"}).empty() == !!__builtin_cpu_supports("fma"));
  CHECK(MissingCpuFeatures({"bmi2"}).empty() == !!__builtin_cpu_supports("bmi2"));
  CHECK(MissingCpuFeatures({"popcnt"}).empty() == !!__builtin_cpu_supports("popcnt"));
  CHECK(MissingCpuFeatures({"sse4.2"}).empty() == !!__builtin_cpu_supports("sse4.2"));
  CHECK(MissingCpuFeatures({"avx512f"}).empty() == !!__builtin_cpu_supports("avx512f"));
  CHECK(MissingCpuFeatures({"avx512vnni"}).empty() == !!__builtin_cpu_supports("avx512vnni"));
  CHECK(MissingCpuFeatures({"sse4a"}).empty() == !!__builtin_cpu_supports("sse4a"));
  CHECK(leapp_policy::HostElfMachine() == 62);
#else
  CHECK(MissingCpuFeatures({"neon"}).empty());
  CHECK(leapp_policy::HostElfMachine() == 183);
#endif
  const auto missing = MissingCpuFeatures({"quantum", "", "warp-drive"});
  CHECK(missing.size() == 3 && missing[0] == "quantum" && missing[2] == "warp-drive");
  CHECK(TripleArchitecture("x86_64-unknown-linux-gnu") == "x86_64");
  CHECK(TripleArchitecture("arm64-apple-darwin") == "aarch64");
  CHECK(TripleArchitecture("") == "");
  return leapp_policy::test::Result();
}
