// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onboard/deployment.h"
#include "onnx/ort_host_abi.h"

namespace leapp_policy::onboard {

// ONNX Runtime, opened from a path. One object a process; it outlives its sessions, and the
// library stays loaded to the end of the process, as ONNX Runtime wants it.
class OrtLibrary {
 public:
  // Throws Error: no such library, or older than 1.17.
  explicit OrtLibrary(const LibrarySpec& libraries);
  ~OrtLibrary();
  OrtLibrary(const OrtLibrary&) = delete;
  OrtLibrary& operator=(const OrtLibrary&) = delete;

  const ort::HostApi& api() const { return *api_; }
  ort::Env* env() const { return env_; }
  const std::string& version() const { return version_; }
  const std::string& op() const { return op_; }

  // Throws Error with ONNX Runtime's sentence unless `status` is null; releases it.
  void Check(ort::Status* status, const std::string& what) const;

 private:
  const ort::HostApi* api_ = nullptr;
  ort::Env* env_ = nullptr;
  std::string version_;
  std::string op_;
};

}  // namespace leapp_policy::onboard
