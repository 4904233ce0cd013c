// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_commands.h"
#include "core/cuda_driver.h"
#include "core/cuda_recording.h"
#include "core/segment.h"

namespace leapp_policy {

// A segment on a GPU. Everything it does goes on the caller's stream, nothing waits.
//
// Two ways to run. Direct: the kernels are enqueued one by one on the caller's buffers, no byte is
// copied, and a stream that is being captured takes them as nodes of its own. As a whole: buffers
// are copied to and from the graph's own memory, and the graph is launched, or becomes a child of
// the graph that is being captured. Direct needs the exporter's word that boundary memory is
// reached through kernel arguments alone (the metadata key "direct"), and a graph that is a chain
// of plain launches, copies and fills.
class CudaSegment : public Segment {
 public:
  // All checks but those of the GPU have passed.
  //
  // Throws Error.
  static std::unique_ptr<CudaSegment> Load(const WarpLibrary& library, Metadata metadata,
                                           const Bundle& bundle, const WrpHeader& header,
                                           Device device);
  ~CudaSegment() override;

 private:
  // A boundary allocation: which buffers stand for it.
  struct Boundary {
    cuda::Region region;
    int input = -1;   // position, -1 for none
    int output = -1;  // position, -1 for none
    bool is_written = false;
  };

  CudaSegment(const WarpLibrary& library, Metadata metadata, Device device,
              const cuda::Driver& driver, cuda::Context context)
      : Segment(library, std::move(metadata), device), driver_(driver), context_(context) {}

  void RunChecked(const lp_const_buffer* inputs, const lp_buffer* outputs, void* stream) override;
  std::string Mode() const override { return commands_ ? "direct" : "graph"; }
  bool IsCompiledHere() const override { return is_compiled_here_; }

  void FindBoundaries();
  void ReadCommands(CudaRecording* recording);
  std::vector<cuda::Region> RegionsOf(WarpGraph* graph) const;
  bool IsCapturing(cuda::Stream stream) const;
  bool PrefersDirect(const lp_const_buffer* inputs, const lp_buffer* outputs,
                     bool is_capturing) const;
  void RunDirect(const lp_const_buffer* inputs, const lp_buffer* outputs, cuda::Stream stream);
  void RunGraph(const lp_const_buffer* inputs, const lp_buffer* outputs, cuda::Stream stream,
                bool is_capturing);
  void JoinCapture(cuda::Stream stream);
  void ZeroMasked(const lp_buffer* outputs, cuda::Stream stream);
  void Check(cuda::Result result, const char* what) const;

  const cuda::Driver& driver_;
  const cuda::Context context_;
  std::vector<Boundary> boundaries_;
  std::optional<cuda::CommandList> commands_;
  std::vector<cuda::DevicePtr> buffers_;  // of one run, by boundary
  cuda::Event done_ = nullptr;            // after the last run that was not captured
  cuda::Stream last_stream_ = nullptr;
  bool has_run_ = false;
  bool is_compiled_here_ = false;
  std::mutex mutex_;
};

}  // namespace leapp_policy
