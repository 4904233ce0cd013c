// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "onboard/deployment.h"

namespace leapp_policy::onboard {

using Json = nlohmann::json;

// A value as text for a message, shortened.
std::string Shown(const Json& json);

// One object of deploy.json: typed reads that throw Error with a sentence naming the key, and a
// check that nothing was left unread. Borrows the JSON.
class JsonReader {
 public:
  JsonReader(const Json& json, std::string where);

  // The value, or nullptr where the key is not there or null.
  const Json* Find(const std::string& key);
  const Json& Need(const std::string& key);

  std::string Text(const std::string& key);
  std::string TextOr(const std::string& key, const std::string& fallback);
  double Number(const std::string& key);
  double NumberOr(const std::string& key, double fallback);
  uint64_t Count(const std::string& key, uint64_t limit);
  uint64_t CountOr(const std::string& key, uint64_t limit, uint64_t fallback);
  // Seconds as nanoseconds.
  int64_t Nanoseconds(const std::string& key, double fallback);

  // One number for all or a list of `dim`; null or a null within is `open`.
  std::vector<float> Numbers(const std::string& key, size_t dim, float open);
  // [low, high]; empty where the key is not there.
  Bounds ReadBounds(const std::string& key, size_t dim);
  // A list of `dim` integers below `limit`; 0 … dim-1 where the key is not there.
  std::vector<uint32_t> Order(const std::string& key, size_t dim, uint64_t limit);

  JsonReader Object(const std::string& key);
  // Calls `body` with a reader for each element of a list of objects.
  void Each(const std::string& key, bool required, const std::function<void(JsonReader*)>& body);

  // Refuses keys that nobody asked for.
  void Done() const;

  [[noreturn]] void Refuse(const std::string& key, const std::string& what) const;
  const std::string& where() const { return where_; }

 private:
  std::string Path(const std::string& key) const;

  const Json& json_;
  std::string where_;
  std::set<std::string> asked_;
};

}  // namespace leapp_policy::onboard
