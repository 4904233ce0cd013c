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

// One build of a CUDA module: machine code for an architecture, or PTX for it and all later ones.
struct GpuBinary {
  std::string filename;  // in the bundle
  bool is_ptx = false;
  int arch = 0;  // 90 for compute capability 9.0
};

// A CUDA module under the name that the recording has for it, with its builds.
struct GpuModule {
  std::string filename;
  std::vector<GpuBinary> binaries;
};

// What a GPU that no build fits gets: the modules' generated source, and a second recording, which
// names it. All files are in the bundle.
struct GpuSource {
  std::string recording;
  std::vector<std::string> files;
};

// The exporter's word that boundary memory is reached through kernel arguments, copies and fills
// alone, never through an address that lies in memory or in a mesh.
struct DirectAccess {
  std::vector<size_t> written_inputs;  // positions of the inputs that the segment writes
};

// The producer's record, absent in artifacts that LEAPP itself wrote.
struct Record {
  Device device;
  std::string warp_version;
  uint32_t wrp_format = 0;
  std::optional<CpuTarget> cpu;
  std::vector<GpuModule> gpu_modules;  // empty: each module has the one build of its name
  std::optional<GpuSource> gpu_source;
  std::optional<DirectAccess> direct;
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
