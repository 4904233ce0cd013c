// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/byte_span.h"

namespace leapp_policy {

// A temporary folder that only this user can enter (mode 0700), for what Warp loads from files
// alone. It lies below TMPDIR, or /tmp, and is removed with all that it holds by the
// destructor, so on every error too.
class PrivateFolder {
 public:
  // Throws Error(LP_LOAD_FAILED) when it cannot be made.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

  // Makes a folder below it. `name` is plain, without a slash.
  void MakeFolder(const std::string& name) const;

  // Writes a new file and returns its path. `name` is relative, its folder exists.
  //
  // Throws Error(LP_LOAD_FAILED) with the system's reason; a file that is there already is one.
  std::string Write(const std::string& name, ByteSpan bytes) const;

 private:
  std::string path_;
};

}  // namespace leapp_policy
