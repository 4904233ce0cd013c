// SPDX-License-Identifier: Apache-2.0
//
// What a deployment folder says: deploy.json (docs/onboard-formats.md) as checked, plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace leapp_policy::onboard {

// Lower and upper bound of each element; an open side is infinite. Empty: no bounds.
struct Bounds {
  std::vector<float> low, high;
  bool empty() const { return low.empty(); }
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  size_t elements() const;
  size_t bytes() const { return elements() * DTypeSize(dtype); }
};

// A signal's share of a model input.
struct Part {
  size_t signal = 0;         // index into Deployment::signals
  Bounds clip;               // before the scale
  std::vector<float> scale;  // one for each element, or empty
};

enum class SourceKind { kSignal, kState, kModel, kDt };

struct InputSpec {
  TensorSpec tensor;
  SourceKind kind = SourceKind::kSignal;
  std::vector<Part> parts;  // kSignal
  size_t state = 0;         // kState: index into Deployment::states
  size_t model = 0;         // kModel: index into Deployment::models
  size_t output = 0;        // kModel: index into that model's outputs
};

struct ModelSpec {
  std::string name;
  std::string file;  // full path
  std::vector<InputSpec> inputs;
  std::vector<TensorSpec> outputs;
};

struct StateSpec {
  TensorSpec tensor;
  size_t model = 0;   // whose output gives the next value
  size_t output = 0;  // index into that model's outputs
  bool keep = false;  // not reset by a start
  std::vector<uint8_t> initial;
};

struct SignalSpec {
  std::string name;
  std::string unit;
  bool is_command = false;
  std::vector<uint32_t> index;  // payload element of each policy element
  int64_t stale_after_ns = 0;
  std::optional<uint32_t> age_index;  // payload element that holds the signal's own age [s]
  Bounds range;
  Bounds start;  // the start envelope
};

struct TargetSpec {
  size_t model = 0;
  size_t output = 0;
  std::string unit;
  std::vector<uint32_t> order;      // policy element of each sent element
  std::vector<float> lower, upper;  // infinite where open
  std::vector<float> max_rate;      // [unit/s], infinite where open
  std::vector<uint32_t> measured;   // payload element of each sent element; empty: unknown
  size_t dim() const { return order.size(); }
};

enum class MissPolicy { kContinue, kHold, kFault };
enum class RangePolicy { kOff, kHold, kFault };

struct SafetySpec {
  int64_t blend_in_ns = 500'000'000;
  int64_t hold_ns = 500'000'000;
  std::optional<int64_t> damped_ns = 2'000'000'000;  // nothing: damped for ever
  std::optional<int64_t> recover_ns;                 // nothing: no way back by itself
  RangePolicy on_range = RangePolicy::kHold;
  MissPolicy on_miss = MissPolicy::kContinue;
  uint32_t max_misses = 3;
};

struct LibrarySpec {
  std::string onnxruntime;  // full path
  std::string op;           // full path of the operator library, or empty
  std::string warp_dir;     // full path, or empty
};

struct Deployment {
  std::string folder;
  std::string digest;  // SHA-256 of deploy.json, hexadecimal
  std::string name;
  double rate_hz = 0.0;
  int64_t period_ns = 0;
  std::string device;
  size_t sensor_floats = 0;
  std::vector<ModelSpec> models;
  std::vector<StateSpec> states;
  std::vector<SignalSpec> signals;
  TargetSpec targets;
  SafetySpec safety;
  LibrarySpec libraries;
};

// Reads deploy.json and checks every digest before it returns. Throws Error with one sentence.
Deployment LoadDeployment(const std::string& folder);

// The part of it that looks at no other file: `text` is deploy.json. State has no initial values
// yet; `digests` receives path as written and SHA-256, `initials` file and offset of each state.
struct InitialFile {
  std::string file;
  uint64_t offset = 0;
};
struct DeployText {
  Deployment deployment;
  std::vector<std::pair<std::string, std::string>> digests;
  std::vector<InitialFile> initials;
  std::vector<std::string> needed;  // files that must have a digest, as written
};
DeployText ParseDeployment(const std::string& text, const std::string& folder);

}  // namespace leapp_policy::onboard
