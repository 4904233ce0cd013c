// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

namespace leapp_policy {
namespace {

struct Row {
  DType dtype;
  const char* name;
  size_t size;
};

constexpr Row kRows[] = {
    {DType::kBool, "bool", 1},         {DType::kInt8, "int8", 1},
    {DType::kUInt8, "uint8", 1},       {DType::kInt16, "int16", 2},
    {DType::kUInt16, "uint16", 2},     {DType::kInt32, "int32", 4},
    {DType::kUInt32, "uint32", 4},     {DType::kInt64, "int64", 8},
    {DType::kUInt64, "uint64", 8},     {DType::kFloat16, "float16", 2},
    {DType::kBFloat16, "bfloat16", 2}, {DType::kFloat32, "float32", 4},
    {DType::kFloat64, "float64", 8},
};

const Row& Find(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

std::optional<DType> ParseDType(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

const char* DTypeName(DType dtype) { return Find(dtype).name; }

size_t DTypeSize(DType dtype) { return Find(dtype).size; }

std::string DTypeNames() {
  std::string names;
  for (const Row& row : kRows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace leapp_policy
