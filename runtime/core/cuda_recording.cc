// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_recording.h"

#include <utility>

#include "core/error.h"
#include "core/warp_loading.h"

namespace leapp_policy {

CudaRecording::CudaRecording(const WarpFunctions& warp, const Metadata& metadata,
                             const Bundle& bundle, const WrpHeader& header, void* context, int arch,
                             LoadSource load_source)
    : warp_(warp),
      metadata_(metadata),
      bundle_(bundle),
      header_(header),
      context_(context),
      arch_(arch),
      load_source_(std::move(load_source)),
      builds_(SelectGpuModules(metadata, bundle, arch)) {}

WarpGraph* CudaRecording::Load() {
  if (source_) return LoadFromSource("");
  const bool has_source = metadata_.record && metadata_.record->gpu_source;
  const std::string compile = "with device.source_fallback=true, which compiles it where it runs.";
  if (!builds_.misfit.empty()) {
    if (has_source) return LoadFromSource(builds_.misfit);
    throw Error(LP_WRONG_DEVICE,
                builds_.misfit +
                    "; export it again with this architecture in device.archs, with a "
                    "device.ptx_arch of at most " +
                    std::to_string(arch_) + ", or " + compile);
  }
  const std::string before = WarpErrorText(warp_);
  WarpGraph* graph = LoadRecording(warp_, context_, bundle_.wrp, builds_.modules, kWrpDeviceCuda);
  if (graph != nullptr) return graph;
  const std::string refusal = LoadRefusal(metadata_, header_, warp_, before);
  if (!builds_.has_ptx) {
    throw Error(LP_LOAD_FAILED, refusal + "; export it again with this Warp.");
  }
  // A driver refuses PTX of a compiler that is newer than itself.
  if (has_source) return LoadFromSource(refusal);
  throw Error(LP_LOAD_FAILED, refusal + "; for this GPU it has PTX alone, export it again with " +
                                  std::to_string(arch_) + " in device.archs, or " + compile);
}

WarpGraph* CudaRecording::LoadFromSource(const std::string& why) {
  if (!source_) WriteSource();
  const std::string before = WarpErrorText(warp_);
  WarpGraph* graph = load_source_(source_->path);
  if (graph != nullptr) return graph;
  const std::string reason = WarpReason(warp_, before);
  source_.reset();
  throw Error(LP_LOAD_FAILED, metadata_.Subject() + " could not be compiled for 'sm_" +
                                  std::to_string(arch_) + "' by Warp " + warp_.version() + ": " +
                                  reason + (why.empty() ? "" : "; it was tried since " + why) +
                                  "; export it again with " + std::to_string(arch_) +
                                  " in device.archs.");
}

// Warp looks for the source of 'segment.wrp' in 'segment_modules'.
void CudaRecording::WriteSource() {
  const GpuSource& source = *metadata_.record->gpu_source;
  const ByteSpan recording = BundleFile(metadata_, bundle_, source.recording);
  const WrpHeader header = ReadWrpHeader(recording);
  CheckDevice(metadata_, header, {DeviceFamily::kCuda, 0});
  CheckWarpVersion(metadata_, header, warp_.version());
  source_.emplace();
  source_->path = source_->folder.Write("segment.wrp", recording);
  source_->folder.MakeFolder("segment_modules");
  for (const std::string& file : source.files) {
    source_->folder.Write("segment_modules/" + file, BundleFile(metadata_, bundle_, file));
  }
}

}  // namespace leapp_policy
