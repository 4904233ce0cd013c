// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace leapp_policy {

// One array at the segment's boundary, in expanded scalar layout: dense, row major.
struct TensorSpec {
  std::string name;  // the archive's parameter; empty when `masked`
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t num_bytes = 0;
  bool masked = false;  // an output that nobody reads: filled with zeros, bound to no parameter
};

// What the segment's machine code was compiled for.
struct CpuTarget {
  std::string triple;
  std::string march;
  std::vector<std::string> features;  // LLVM's names, e.g. "avx2", "sse4.1"
};

struct BundleDigest {
  std::string sha256;  // 64 lower-case hexadecimal digits
  uint64_t size = 0;
};

// The producer's record, absent in artifacts that LEAPP itself wrote.
struct Record {
  Device device;
  std::string warp_version;
  uint32_t wrp_format = 0;
  std::optional<CpuTarget> cpu;
  std::optional<BundleDigest> bundle;
};

struct Metadata {
  std::string segment;  // "arm/0"; "<unnamed>" when the artifact does not say
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::optional<Record> record;

  // "Segment 'arm/0'": the subject of every message.
  std::string Subject() const { return "Segment '" + segment + "'"; }
};

// Parses the runtime metadata (LEAPP 0.7.2's keys and the object "leapp_policy", schema 1). Unknown
// keys are left alone; known ones must have the right type and range, and num_bytes must equal
// what shape and dtype give.
//
// Throws Error(LP_BAD_METADATA) that names the key.
Metadata ParseMetadata(const std::string& json);

}  // namespace leapp_policy
