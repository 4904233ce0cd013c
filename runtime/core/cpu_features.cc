// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#else
#error "leapp-policy runs on x86_64 and aarch64"
#endif

namespace leapp_policy {
namespace {

#if defined(__x86_64__)

enum Register { kEax, kEbx, kEcx, kEdx };

// State that the operating system must save for a feature, as bits of XCR0.
constexpr uint64_t kNoState = 0;
constexpr uint64_t kAvxState = 0x6;      // XMM, YMM
constexpr uint64_t kAvx512State = 0xe6;  // and opmask, upper ZMM, ZMM16-31

struct Feature {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  Register reg;
  int bit;
  uint64_t os_state;
};

// Source: Intel SDM vol. 2A (CPUID), AMD APM vol. 3 appendix E; names as LLVM spells them.
constexpr Feature kFeatures[] = {
    {"cmov", 1, 0, kEdx, 15, kNoState},
    {"cx8", 1, 0, kEdx, 8, kNoState},
    {"mmx", 1, 0, kEdx, 23, kNoState},
    {"fxsr", 1, 0, kEdx, 24, kNoState},
    {"sse", 1, 0, kEdx, 25, kNoState},
    {"sse2", 1, 0, kEdx, 26, kNoState},
    {"sse3", 1, 0, kEcx, 0, kNoState},
    {"pclmul", 1, 0, kEcx, 1, kNoState},
    {"ssse3", 1, 0, kEcx, 9, kNoState},
    {"fma", 1, 0, kEcx, 12, kAvxState},
    {"cx16", 1, 0, kEcx, 13, kNoState},
    {"sse4.1", 1, 0, kEcx, 19, kNoState},
    {"sse4.2", 1, 0, kEcx, 20, kNoState},
    {"crc32", 1, 0, kEcx, 20, kNoState},
    {"movbe", 1, 0, kEcx, 22, kNoState},
    {"popcnt", 1, 0, kEcx, 23, kNoState},
    {"aes", 1, 0, kEcx, 25, kNoState},
    {"xsave", 1, 0, kEcx, 26, kNoState},
    {"avx", 1, 0, kEcx, 28, kAvxState},
    {"f16c", 1, 0, kEcx, 29, kAvxState},
    {"rdrnd", 1, 0, kEcx, 30, kNoState},
    {"fsgsbase", 7, 0, kEbx, 0, kNoState},
    {"bmi", 7, 0, kEbx, 3, kNoState},
    {"avx2", 7, 0, kEbx, 5, kAvxState},
    {"bmi2", 7, 0, kEbx, 8, kNoState},
    {"avx512f", 7, 0, kEbx, 16, kAvx512State},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512State},
    {"rdseed", 7, 0, kEbx, 18, kNoState},
    {"adx", 7, 0, kEbx, 19, kNoState},
    {"avx512ifma", 7, 0, kEbx, 21, kAvx512State},
    {"clflushopt", 7, 0, kEbx, 23, kNoState},
    {"clwb", 7, 0, kEbx, 24, kNoState},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512State},
    {"sha", 7, 0, kEbx, 29, kNoState},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512State},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512State},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512State},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512State},
    {"gfni", 7, 0, kEcx, 8, kNoState},
    {"vaes", 7, 0, kEcx, 9, kAvxState},
    {"vpclmulqdq", 7, 0, kEcx, 10, kAvxState},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512State},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512State},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512State},
    {"rdpid", 7, 0, kEcx, 22, kNoState},
    {"avx512vp2intersect", 7, 0, kEdx, 8, kAvx512State},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512State},
    {"avxvnni", 7, 1, kEax, 4, kAvxState},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512State},
    {"xsaveopt", 13, 1, kEax, 0, kNoState},
    {"xsavec", 13, 1, kEax, 1, kNoState},
    {"xsaves", 13, 1, kEax, 3, kNoState},
    {"sahf", 0x80000001, 0, kEcx, 0, kNoState},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNoState},
    {"sse4a", 0x80000001, 0, kEcx, 6, kNoState},
    {"prfchw", 0x80000001, 0, kEcx, 8, kNoState},
    {"64bit", 0x80000001, 0, kEdx, 29, kNoState},
};

uint64_t OsState() {
  uint32_t r[4];
  if (!__get_cpuid(1, &r[kEax], &r[kEbx], &r[kEcx], &r[kEdx])) return 0;
  const bool has_xgetbv = r[kEcx] >> 27 & 1;
  if (!has_xgetbv) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool HostHas(const std::string& name) {
  for (const Feature& feature : kFeatures) {
    if (name != feature.name) continue;
    uint32_t r[4];
    if (!__get_cpuid_count(feature.leaf, feature.subleaf, &r[kEax], &r[kEbx], &r[kEcx], &r[kEdx])) {
      return false;
    }
    const bool in_cpu = r[feature.reg] >> feature.bit & 1;
    return in_cpu && (OsState() & feature.os_state) == feature.os_state;
  }
  return false;
}

#else  // __aarch64__

struct Feature {
  const char* name;
  unsigned long auxv;
  int bit;
};

// Source: the Linux kernel's arm64 ELF hwcaps documentation; names as LLVM spells them.
constexpr Feature kFeatures[] = {
    {"fp-armv8", AT_HWCAP, 0},   {"neon", AT_HWCAP, 1},   {"aes", AT_HWCAP, 3},
    {"sha2", AT_HWCAP, 6},       {"crc", AT_HWCAP, 7},    {"lse", AT_HWCAP, 8},
    {"fullfp16", AT_HWCAP, 9},   {"rdm", AT_HWCAP, 12},   {"jsconv", AT_HWCAP, 13},
    {"complxnum", AT_HWCAP, 14}, {"rcpc", AT_HWCAP, 15},  {"sha3", AT_HWCAP, 17},
    {"dotprod", AT_HWCAP, 20},   {"sve", AT_HWCAP, 22},   {"fp16fml", AT_HWCAP, 23},
    {"sve2", AT_HWCAP2, 1},      {"i8mm", AT_HWCAP2, 13}, {"bf16", AT_HWCAP2, 14},
};

bool HostHas(const std::string& name) {
  for (const Feature& feature : kFeatures) {
    if (name == feature.name) return getauxval(feature.auxv) >> feature.bit & 1;
  }
  return false;
}

#endif

}  // namespace

const char* HostArchitecture() {
#if defined(__x86_64__)
  return "x86_64";
#else
  return "aarch64";
#endif
}

unsigned HostElfMachine() {
#if defined(__x86_64__)
  return 62;
#else
  return 183;
#endif
}

std::string TripleArchitecture(const std::string& triple) {
  const std::string arch = triple.substr(0, triple.find('-'));
  if (arch == "arm64") return "aarch64";
  if (arch == "amd64" || arch == "x86-64") return "x86_64";
  return arch;
}

std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features) {
  std::vector<std::string> missing;
  for (const std::string& name : features) {
    if (!HostHas(name)) missing.push_back(name);
  }
  return missing;
}

}  // namespace leapp_policy
