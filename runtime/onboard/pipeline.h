// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onboard/deployment.h"
#include "onboard/session.h"

namespace leapp_policy::onboard {

// All models of a deployment, wired, with their state. Owns every buffer; nothing is allocated
// after construction.
class Pipeline {
 public:
  // `sessions` are in the order of `deployment.models`, which is borrowed and outlives the object.
  // Throws Error: a model has other inputs or outputs than deploy.json says.
  Pipeline(const Deployment& deployment, std::vector<std::unique_ptr<ModelSession>> sessions);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Memory of an input that signals feed, in elements of float32.
  float* signal_input(size_t model, size_t input) { return inputs_[model][input].As<float>(0); }
  // The policy's output for the robot after the last Run().
  const float* targets() const noexcept;

  // Runs each model once; state has its next value afterwards. False: error() says why, and the
  // state is as it was before.
  bool Run() noexcept;
  const char* error() const noexcept { return error_; }

  // State becomes what it was at first; `all`: also that which is kept over starts.
  void Reset(bool all) noexcept;
  bool keeps_state() const { return keeps_state_; }

 private:
  // One tensor; state has another buffer for each parity.
  struct Buffer {
    std::vector<uint64_t> memory[2];  // 8-byte aligned; [1] is empty unless it is state
    template <typename T>
    T* As(int parity) {
      return reinterpret_cast<T*>(memory[memory[1].empty() ? 0 : parity].data());
    }
  };
  struct Copy {
    Buffer* from;
    Buffer* to;
    size_t bytes;
  };

  void MakeBuffers();
  void BindAll();
  Buffer* InputBuffer(size_t model, size_t input);

  const Deployment& deployment_;
  std::vector<std::unique_ptr<ModelSession>> sessions_;
  std::vector<std::vector<Buffer>> inputs_, outputs_;  // as in deploy.json
  std::vector<Buffer> states_;
  std::vector<std::vector<Buffer*>> output_of_;  // where an output really goes
  std::vector<Copy> copies_;                     // states that share an output with another
  bool keeps_state_ = false;
  int parity_ = 0;
  const char* error_ = "";
};

}  // namespace leapp_policy::onboard
