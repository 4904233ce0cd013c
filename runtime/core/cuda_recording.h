// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/bundle.h"
#include "core/compatibility.h"
#include "core/metadata.h"
#include "core/private_folder.h"
#include "core/warp_library.h"
#include "core/wrp_header.h"

namespace leapp_policy {

// A recording on its way onto a GPU: from the builds that the bundle has for that GPU or, when it
// has none that loads, and only then, from its source, which Warp compiles. Borrows all that it is
// given.
class CudaRecording {
 public:
  // Loads the recording at a path, compiling what it finds beside it; null where Warp refuses.
  using LoadSource = std::function<WarpGraph*(const std::string& path)>;

  // `context` is Warp's of the GPU, `arch` its compute capability, 90 for 9.0.
  CudaRecording(const WarpFunctions& warp, const Metadata& metadata, const Bundle& bundle,
                const WrpHeader& header, void* context, int arch, LoadSource load_source);

  // Loads it, each time at other addresses; the source is compiled the first time alone. The caller
  // owns the graph.
  //
  // Throws Error(LP_WRONG_DEVICE) when nothing in the bundle fits the GPU, Error(LP_LOAD_FAILED)
  // when Warp refuses.
  WarpGraph* Load();

  bool is_compiled_here() const { return source_.has_value(); }

 private:
  // The recording that names the source, in files. Warp keeps what it compiles beside them.
  struct Source {
    PrivateFolder folder;
    std::string path;
  };

  WarpGraph* LoadFromSource(const std::string& why);
  void WriteSource();

  const WarpFunctions& warp_;
  const Metadata& metadata_;
  const Bundle& bundle_;
  const WrpHeader& header_;
  void* const context_;
  const int arch_;
  const LoadSource load_source_;
  const GpuSelection builds_;
  std::optional<Source> source_;
};

}  // namespace leapp_policy
