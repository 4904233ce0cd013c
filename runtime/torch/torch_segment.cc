// SPDX-License-Identifier: Apache-2.0
#include "torch/torch_segment.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <nlohmann/json.hpp>

namespace leapp_policy {
namespace {

using Json = nlohmann::json;

struct DTypeName {
  const char* name;
  at::ScalarType dtype;
};

constexpr DTypeName kDTypes[] = {
    {"bool", at::kBool},      {"int8", at::kChar},         {"uint8", at::kByte},
    {"int16", at::kShort},    {"uint16", at::kUInt16},     {"int32", at::kInt},
    {"uint32", at::kUInt32},  {"int64", at::kLong},        {"uint64", at::kUInt64},
    {"float16", at::kHalf},   {"bfloat16", at::kBFloat16}, {"float32", at::kFloat},
    {"float64", at::kDouble},
};

at::ScalarType ParseDType(const std::string& name) {
  for (const DTypeName& each : kDTypes) {
    if (name == each.name) return each.dtype;
  }
  TORCH_CHECK(false, "A segment's metadata name dtype '", name,
              "', which torch has not; export the model again.");
}

std::string NameOf(at::ScalarType dtype) {
  for (const DTypeName& each : kDTypes) {
    if (dtype == each.dtype) return each.name;
  }
  return c10::toString(dtype);
}

std::vector<TensorLayout> ParseLayouts(const Json& specs, const char* name_key) {
  std::vector<TensorLayout> layouts;
  for (const Json& spec : specs) {
    layouts.push_back(
        {spec.at(name_key).get<std::string>(), ParseDType(spec.at("dtype").get<std::string>()),
         spec.at("shape").get<std::vector<int64_t>>(), spec.at("num_bytes").get<uint64_t>()});
  }
  return layouts;
}

void CheckStatus(lp_status status) { TORCH_CHECK(status == LP_OK, lp_last_error()); }

// The handle of torch's current stream. Through the device's guard, so that this file needs no CUDA
// headers and builds against any torch.
void* CurrentStream(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

}  // namespace

std::vector<TensorLayout> OutputLayouts(const std::string& runtime_metadata) {
  try {
    return ParseLayouts(Json::parse(runtime_metadata).at("outputs"), "param_name");
  } catch (const Json::exception& e) {
    TORCH_CHECK(false, "A segment's runtime metadata are damaged (", e.what(),
                "); export the model again.");
  }
}

TorchSegment::TorchSegment(const at::Tensor& bundle, const std::string& runtime_metadata,
                           at::Device device)
    : device_(device) {
  TORCH_CHECK(bundle.scalar_type() == at::kByte && bundle.dim() == 1,
              "The bundle of leapp::warp_runner must be uint8 [n], got ",
              NameOf(bundle.scalar_type()), " ", bundle.sizes(), "; export the model again.");
  const at::Tensor bytes = bundle.cpu().contiguous();
  CheckStatus(lp_segment_open(bytes.const_data_ptr(), static_cast<uint64_t>(bytes.numel()),
                              runtime_metadata.c_str(), device.str().c_str(), &segment_));
  const Json description = Json::parse(lp_segment_describe(segment_));
  name_ = description.at("segment").get<std::string>();
  inputs_ = ParseLayouts(description.at("inputs"), "name");
  outputs_ = ParseLayouts(description.at("outputs"), "name");
}

TorchSegment::~TorchSegment() { lp_segment_close(segment_); }

void TorchSegment::Check(const at::Tensor& input, const TensorLayout& layout) const {
  TORCH_CHECK(input.scalar_type() == layout.dtype && input.sizes() == layout.shape &&
                  input.device() == device_,
              "Segment '", name_, "' input '", layout.name, "' must be ", NameOf(layout.dtype), " ",
              at::IntArrayRef(layout.shape), " on ", device_, ", got ", NameOf(input.scalar_type()),
              " ", input.sizes(), " on ", input.device(),
              "; feed what the model was exported for.");
}

std::vector<at::Tensor> TorchSegment::Run(const std::vector<at::Tensor>& inputs) const {
  TORCH_CHECK(inputs.size() == inputs_.size(), "Segment '", name_, "' takes ", inputs_.size(),
              " inputs, got ", inputs.size(), ".");
  std::vector<at::Tensor> dense;
  std::vector<lp_const_buffer> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Check(inputs[i], inputs_[i]);
    dense.push_back(inputs[i].contiguous());
    in.push_back({dense.back().const_data_ptr(), inputs_[i].num_bytes});
  }
  std::vector<at::Tensor> results;
  std::vector<lp_buffer> out;
  for (const TensorLayout& layout : outputs_) {
    results.push_back(at::empty(layout.shape, at::TensorOptions(layout.dtype).device(device_)));
    out.push_back({results.back().data_ptr(), layout.num_bytes});
  }
  CheckStatus(lp_segment_run(segment_, in.data(), in.size(), out.data(), out.size(),
                             CurrentStream(device_)));
  return results;
}

}  // namespace leapp_policy
