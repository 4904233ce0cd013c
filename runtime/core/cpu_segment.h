// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/segment.h"

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

// A segment on the CPU: copies its inputs in, replays, copies its outputs out.
class CpuSegment : public Segment {
 public:
  // All checks but those of the CPU have passed.
  //
  // Throws Error.
  static std::unique_ptr<CpuSegment> Load(const WarpLibrary& library, Metadata metadata,
                                          const Bundle& bundle, const WrpHeader& header);
  ~CpuSegment() override;

 private:
  CpuSegment(const WarpLibrary& library, Metadata metadata)
      : Segment(library, std::move(metadata), Device{DeviceFamily::kCpu, 0}), objects_(warp_) {}

  void RunChecked(const lp_const_buffer* inputs, const lp_buffer* outputs, void* stream) override;
  void BindKernels(const std::vector<WarpModuleBytes>& modules);

  CpuObjects objects_;
  std::mutex mutex_;
};

}  // namespace leapp_policy
