// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/bundle.h"
#include "core/byte_span.h"
#include "core/device.h"
#include "core/metadata.h"
#include "core/warp_library.h"
#include "core/wrp_header.h"
#include "leapp_policy/runtime.h"

namespace leapp_policy {

// An open segment: a graph in Warp's runtime, its machine code, and its boundary arrays, resolved
// once. Run() allocates nothing and looks nothing up by name. Each device family has its own kind.
class Segment {
 public:
  // Opens a segment on `device`. Nothing of the bundle is executed before every check has passed;
  // they run in this order: metadata, digest, archive, device family, Warp release, CPU or GPU.
  // `bundle` is borrowed for the call only.
  //
  // Throws Error.
  static std::unique_ptr<Segment> Open(ByteSpan bundle, const std::string& runtime_metadata,
                                       const std::string& device);

  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Runs the segment once. Buffers are memory of the segment's device in metadata order, dense, of
  // exactly the recorded size. On the CPU `stream` must be null and the call blocks until done; on
  // CUDA the work is put on `stream` and the call returns. Serialised per segment; any thread.
  //
  // Throws Error(LP_INVALID_ARGUMENT) before anything ran, Error(LP_RUN_FAILED) when the replay
  // failed.
  void Run(const lp_const_buffer* inputs, size_t num_inputs, const lp_buffer* outputs,
           size_t num_outputs, void* stream);

  const Metadata& metadata() const { return metadata_; }
  const std::string& description() const { return description_; }  // JSON

 protected:
  // A boundary array inside of the loaded graph; null where no byte crosses.
  struct Port {
    void* data = nullptr;
    size_t size = 0;
  };

  Segment(const WarpLibrary& library, Metadata metadata, Device device);

  // Runs with counts and sizes checked.
  virtual void RunChecked(const lp_const_buffer* inputs, const lp_buffer* outputs,
                          void* stream) = 0;

  // Takes over a recording that Warp has loaded.
  void TakeGraph(WarpGraph* graph) { graph_.reset(graph); }
  void BindParameters();
  virtual std::string Mode() const { return "replay"; }
  // Whether the machine code was compiled here, from source in the bundle.
  virtual bool IsCompiledHere() const { return false; }

  const WarpLibrary& library_;
  const WarpFunctions& warp_;
  const Metadata metadata_;
  const Device device_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;

  WarpGraph* graph() const { return graph_.get(); }
  void DestroyGraph() { graph_.reset(); }

 private:
  struct GraphDeleter {
    const WarpFunctions* warp;
    void operator()(WarpGraph* graph) const { warp->apic_destroy_graph(graph); }
  };

  std::vector<Port> ResolvePorts(const std::vector<TensorSpec>& specs, const char* kind) const;
  void Describe(uint32_t wrp_format, size_t num_modules, size_t bundle_size);

  std::unique_ptr<WarpGraph, GraphDeleter> graph_;
  std::string description_;
};

}  // namespace leapp_policy
