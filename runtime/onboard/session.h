// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "onboard/deployment.h"

namespace leapp_policy::onboard {

// A model that is ready to run between memory that stays where it is. There are two sets of
// buffers, because state swaps its two sides after each step instead of being copied.
class ModelSession {
 public:
  virtual ~ModelSession() = default;

  virtual const std::vector<TensorSpec>& inputs() const = 0;
  virtual const std::vector<TensorSpec>& outputs() const = 0;

  // Binds set `parity` (0 or 1): one pointer for each of inputs() and outputs(), in their order,
  // on the device that the model runs on. The memory is the caller's, outlives the session, and
  // may be written while it is bound. Throws Error.
  virtual void Bind(int parity, const std::vector<void*>& inputs,
                    const std::vector<void*>& outputs) = 0;

  // Runs on a bound set. False: failed, error() says why; the outputs are undefined.
  virtual bool Run(int parity) noexcept = 0;
  virtual const char* error() const noexcept = 0;

  // What a person should know of how it runs, one sentence, or nothing. Valid after Bind().
  virtual std::string note() const { return {}; }
};

}  // namespace leapp_policy::onboard
