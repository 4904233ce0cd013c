// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onboard/deployment.h"
#include "onboard/model_memory.h"
#include "onboard/session.h"

namespace leapp_policy::onboard {

// All models of a deployment, wired, with their state. Owns every tensor, in one block: what
// signals feed comes first and goes to the models in one copy, the targets come back in another,
// all else stays where the models run. Nothing is allocated after construction.
class Pipeline {
 public:
  // `sessions` are in the order of `deployment.models`, which is borrowed and outlives the object.
  // Throws Error: a model has other inputs or outputs than deploy.json says, or the device cannot
  // be used.
  Pipeline(const Deployment& deployment, std::vector<std::unique_ptr<ModelSession>> sessions,
           const MakeMemory& make_memory = &MakeModelMemory);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Memory of an input that signals feed, in elements of float32.
  float* signal_input(size_t model, size_t input) { return Host(inputs_[model][input], 0); }
  // The policy's output for the robot after the last Run().
  const float* targets() const noexcept;

  // Runs each model once; state has its next value afterwards. False: error() says why, and the
  // state is as it was before.
  bool Run() noexcept;
  const char* error() const noexcept { return error_; }

  // State becomes what it was at first; `all`: also that which is kept over starts.
  void Reset(bool all) noexcept;
  bool keeps_state() const { return keeps_state_; }

  // What a person should know of how the models run, one sentence each.
  std::vector<std::string> notes() const;

 private:
  // Where a tensor lies in the block. State has two sides: a step reads one and writes the other.
  struct Place {
    size_t side[2] = {0, 0};
  };
  struct Copy {
    Place from, to;
    size_t bytes;
  };

  void PlaceInputs();
  void PlaceOutputs();
  void PlaceStates();
  size_t Reserve(size_t bytes);
  void BindAll();
  bool Fail(const char* reason) noexcept;  // false
  const Place& InputPlace(size_t model, size_t input) const;
  float* Host(const Place& place, int side) const {
    return reinterpret_cast<float*>(memory_->host() + place.side[side]);
  }

  const Deployment& deployment_;
  std::unique_ptr<ModelMemory> memory_;  // outlives the sessions
  std::vector<std::unique_ptr<ModelSession>> sessions_;
  std::vector<std::vector<Place>> inputs_, outputs_;  // as in deploy.json; inputs of signals and dt
  std::vector<Place> states_;
  std::vector<Copy> copies_;  // states that share an output with another
  size_t reserved_ = 0;
  size_t sent_ = 0;  // bytes at the front that go to the models in each step
  bool keeps_state_ = false;
  bool is_stuck_ = false;  // state could not be put back
  int parity_ = 0;
  const char* error_ = "";
};

}  // namespace leapp_policy::onboard
