// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "leapp_policy/runtime.h"

namespace leapp_policy {

// The one exception of the core: what went wrong, as a status for the C interface and as a full
// sentence (subject in quotes, expected, got, remedy). Adapters catch it at their ABI edge.
class Error : public std::runtime_error {
 public:
  Error(lp_status status, const std::string& sentence)
      : std::runtime_error(sentence), status_(status) {}

  lp_status status() const { return status_; }

 private:
  lp_status status_;
};

}  // namespace leapp_policy
