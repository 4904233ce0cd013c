// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/byte_span.h"
#include "core/device.h"
#include "core/metadata.h"
#include "core/warp_library.h"
#include "leapp_policy/runtime.h"

namespace leapp_policy {

// CPU machine code that this process loaded for one segment. Owns the objects in Warp's JIT and
// unloads them; must outlive every use of a function that was looked up in it.
class CpuObjects {
 public:
  explicit CpuObjects(const WarpFunctions& warp) : warp_(warp) {}
  ~CpuObjects();
  CpuObjects(const CpuObjects&) = delete;
  CpuObjects& operator=(const CpuObjects&) = delete;

  // Loads an object and returns its process-wide unique name, or an empty string when Warp refuses.
  std::string Load(const std::string& filename, ByteSpan object);

 private:
  const WarpFunctions& warp_;
  std::vector<std::string> names_;
};

// An open segment: a graph in Warp's runtime, its machine code, and the addresses of its boundary
// arrays, resolved once. Run() allocates nothing and looks nothing up by name.
class Segment {
 public:
  // Opens a segment on `device`. Nothing of the bundle is executed before every check has passed;
  // they run in this order: metadata, digest, archive, device family, Warp release, CPU.
  // `bundle` is borrowed for the call only.
  //
  // Throws Error.
  static std::unique_ptr<Segment> Open(ByteSpan bundle, const std::string& runtime_metadata,
                                       const std::string& device);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Copies `inputs` in, replays, copies `outputs` out; blocks until done. Buffers are host memory
  // in metadata order, dense, of exactly the recorded size. Serialised per segment; any thread.
  //
  // Throws Error(LP_INVALID_ARGUMENT) before anything ran, Error(LP_RUN_FAILED) when the replay
  // failed.
  void Run(const lp_const_buffer* inputs, size_t num_inputs, const lp_buffer* outputs,
           size_t num_outputs);

  const Metadata& metadata() const { return metadata_; }
  const std::string& description() const { return description_; }  // JSON

 private:
  struct GraphDeleter {
    const WarpFunctions* warp;
    void operator()(WarpGraph* graph) const { warp->apic_destroy_graph(graph); }
  };

  Segment(const WarpLibrary& library, Metadata metadata);
  void LoadGraph(ByteSpan wrp, const std::vector<WarpModuleBytes>& modules, uint32_t wrp_format);
  void BindKernels(const std::vector<WarpModuleBytes>& modules);
  void BindParameters();
  std::vector<void*> ResolvePorts(const std::vector<TensorSpec>& specs, const char* kind) const;
  std::string Describe(uint32_t wrp_format, size_t num_modules, size_t bundle_size) const;

  const WarpLibrary& library_;
  const WarpFunctions& warp_;
  Metadata metadata_;
  CpuObjects objects_;  // the graph calls into it: destroyed after it
  std::unique_ptr<WarpGraph, GraphDeleter> graph_;
  std::vector<void*> input_ports_;  // null where no byte crosses
  std::vector<void*> output_ports_;
  std::string description_;
  std::mutex mutex_;
};

}  // namespace leapp_policy
