// SPDX-License-Identifier: Apache-2.0
// Without these code for another instruction set could start and die of an illegal instruction.
#include "core/cpu_features.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

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
  CHECK(MissingCpuFeatures({"fp-armv8", "neon"}).empty());  // part of every 64-bit Arm with Linux
  // The system header's names are an independent witness of the bits.
  const auto agrees = [](const char* name, unsigned long vector, unsigned long bit) {
    return MissingCpuFeatures({name}).empty() == ((getauxval(vector) & bit) != 0);
  };
  CHECK(agrees("aes", AT_HWCAP, HWCAP_AES));
  CHECK(agrees("sha2", AT_HWCAP, HWCAP_SHA2));
  CHECK(agrees("crc", AT_HWCAP, HWCAP_CRC32));
  CHECK(agrees("lse", AT_HWCAP, HWCAP_ATOMICS));
  CHECK(agrees("fullfp16", AT_HWCAP, HWCAP_ASIMDHP));
  CHECK(agrees("rdm", AT_HWCAP, HWCAP_ASIMDRDM));
  CHECK(agrees("jsconv", AT_HWCAP, HWCAP_JSCVT));
  CHECK(agrees("complxnum", AT_HWCAP, HWCAP_FCMA));
  CHECK(agrees("rcpc", AT_HWCAP, HWCAP_LRCPC));
  CHECK(agrees("sha3", AT_HWCAP, HWCAP_SHA3));
  CHECK(agrees("dotprod", AT_HWCAP, HWCAP_ASIMDDP));
  CHECK(agrees("sve", AT_HWCAP, HWCAP_SVE));
  CHECK(agrees("fp16fml", AT_HWCAP, HWCAP_ASIMDFHM));
  CHECK(agrees("sve2", AT_HWCAP2, HWCAP2_SVE2));
  CHECK(agrees("i8mm", AT_HWCAP2, HWCAP2_I8MM));
  CHECK(agrees("bf16", AT_HWCAP2, HWCAP2_BF16));
  CHECK(leapp_policy::HostElfMachine() == 183);
#endif
  const auto missing = MissingCpuFeatures({"quantum", "", "warp-drive"});
  CHECK(missing.size() == 3 && missing[0] == "quantum" && missing[2] == "warp-drive");
  CHECK(TripleArchitecture("x86_64-unknown-linux-gnu") == "x86_64");
  CHECK(TripleArchitecture("arm64-apple-darwin") == "aarch64");
  CHECK(TripleArchitecture("") == "");
  return leapp_policy::test::Result();
}
