// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "onboard/ort_library.h"
#include "onboard/session.h"

namespace leapp_policy::onboard {

// A model in ONNX Runtime: one thread, no spinning, each of the two sets of buffers bound
// beforehand. On CUDA a run is one graph launch on buffers of the GPU, one graph for each set; a
// model that cannot be captured as a whole runs without, and note() says why.
std::unique_ptr<ModelSession> OpenOrtSession(std::shared_ptr<OrtLibrary> library,
                                             const ModelSpec& model, const std::string& device);

}  // namespace leapp_policy::onboard
