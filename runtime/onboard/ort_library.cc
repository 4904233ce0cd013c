// SPDX-License-Identifier: Apache-2.0
#include "onboard/ort_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/error.h"

namespace leapp_policy::onboard {

OrtLibrary::OrtLibrary(const LibrarySpec& libraries) : op_(libraries.op) {
  // The operator library looks for Warp when the first segment is opened.
  if (!libraries.warp_dir.empty()) {
    ::setenv("LEAPP_POLICY_WARP_LIBRARY_DIR", libraries.warp_dir.c_str(), 1);
  }
  void* handle = ::dlopen(libraries.onnxruntime.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error(LP_LOAD_FAILED, "ONNX Runtime '" + libraries.onnxruntime + "' cannot be loaded (" +
                                    ::dlerror() + "); pack the policy for this machine.");
  }
  using GetBase = const ort::ApiBase* (*)();
  const auto get = reinterpret_cast<GetBase>(::dlsym(handle, "OrtGetApiBase"));
  const ort::ApiBase* base = get == nullptr ? nullptr : get();
  version_ = base == nullptr ? "unknown" : base->GetVersionString();
  const ort::Api* api = base == nullptr ? nullptr : base->GetApi(ort::kApiVersion);
  if (api == nullptr) {
    throw Error(LP_LOAD_FAILED, "'" + libraries.onnxruntime +
                                    "' must be ONNX Runtime 1.17 or newer, got version " +
                                    version_ + "; pack the policy with a newer one.");
  }
  api_ = static_cast<const ort::HostApi*>(api);
  Check(api_->CreateEnv(ort::kLogFatal, "leapp-run", &env_), "ONNX Runtime's environment");
}

OrtLibrary::~OrtLibrary() {
  if (env_ != nullptr) api_->ReleaseEnv(env_);
}

void OrtLibrary::Check(ort::Status* status, const std::string& what) const {
  if (status == nullptr) return;
  std::string reason = api_->GetErrorMessage(status);
  api_->ReleaseStatus(status);
  for (char& each : reason) {
    if (each == '\n') each = ' ';
  }
  throw Error(LP_LOAD_FAILED, what + " was refused by ONNX Runtime " + version_ + ": " + reason);
}

}  // namespace leapp_policy::onboard
