// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace leapp_policy {

enum class DType {
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

// The dtype of that name ("float32"), or nothing.
std::optional<DType> ParseDType(const std::string& name);

const char* DTypeName(DType dtype);

// Bytes per element.
size_t DTypeSize(DType dtype);

// "bool, int8, …": the valid names, for messages.
std::string DTypeNames();

}  // namespace leapp_policy
