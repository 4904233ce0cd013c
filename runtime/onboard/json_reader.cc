// SPDX-License-Identifier: Apache-2.0
#include "onboard/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace leapp_policy::onboard {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kLongestSeconds = 1e6;

bool IsControl(char each) { return static_cast<unsigned char>(each) < 0x20 || each == 0x7f; }

}  // namespace

std::string Shown(const Json& json) {
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

JsonReader::JsonReader(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) Refuse("", "must be an object, got " + Shown(json));
}

std::string JsonReader::Path(const std::string& key) const {
  if (key.empty()) return where_.empty() ? "the document" : where_;
  return where_.empty() ? key : where_ + "." + key;
}

void JsonReader::Refuse(const std::string& key, const std::string& what) const {
  std::string sentence = "'" + Path(key) + "' of deploy.json " + what + "; pack the policy again.";
  // A key may hold anything; a zero would cut off the rest.
  std::replace_if(sentence.begin(), sentence.end(), &IsControl, '?');
  throw Error(LP_BAD_METADATA, sentence);
}

const Json* JsonReader::Find(const std::string& key) {
  asked_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const Json& JsonReader::Need(const std::string& key) {
  const Json* found = Find(key);
  if (found == nullptr) Refuse(key, "is missing");
  return *found;
}

std::string JsonReader::Text(const std::string& key) {
  Need(key);
  const std::string text = TextOr(key, "");
  if (text.empty()) Refuse(key, "must be a text, got \"\"");
  return text;
}

std::string JsonReader::TextOr(const std::string& key, const std::string& fallback) {
  const Json* found = Find(key);
  if (found == nullptr) return fallback;
  if (!found->is_string()) Refuse(key, "must be a text, got " + Shown(*found));
  const std::string text = found->get<std::string>();
  // It goes into messages, and to ONNX Runtime and the system as a name that ends with a zero.
  if (std::any_of(text.begin(), text.end(), &IsControl)) {
    Refuse(key, "must be a text without control characters, got " + Shown(*found));
  }
  return text;
}

double JsonReader::Number(const std::string& key) {
  const Json& value = Need(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    Refuse(key, "must be a number, got " + Shown(value));
  }
  return value.get<double>();
}

double JsonReader::NumberOr(const std::string& key, double fallback) {
  return Find(key) == nullptr ? fallback : Number(key);
}

uint64_t JsonReader::Count(const std::string& key, uint64_t limit) {
  const Json& value = Need(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > limit) {
    Refuse(key, "must be an integer from 0 to " + std::to_string(limit) + ", got " + Shown(value));
  }
  return value.get<uint64_t>();
}

uint64_t JsonReader::CountOr(const std::string& key, uint64_t limit, uint64_t fallback) {
  return Find(key) == nullptr ? fallback : Count(key, limit);
}

int64_t JsonReader::Nanoseconds(const std::string& key, double fallback) {
  const double seconds = NumberOr(key, fallback);
  if (seconds < 0.0 || seconds > kLongestSeconds) {
    Refuse(key, "must be seconds from 0 to 1e6, got " + Shown(Json(seconds)));
  }
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

std::vector<float> JsonReader::Numbers(const std::string& key, size_t dim, float open) {
  const Json* found = Find(key);
  if (found == nullptr) return std::vector<float>(dim, open);
  const auto one = [&](const Json& value) {
    if (value.is_null()) return open;
    // Infinity would be no limit and no scale; what is open is written as null.
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kLargestFloat)) {
      Refuse(key, "must hold numbers of float32, got " + Shown(value));
    }
    return value.get<float>();
  };
  if (!found->is_array()) return std::vector<float>(dim, one(*found));
  if (found->size() != dim) {
    Refuse(key,
           "must have " + std::to_string(dim) + " values, got " + std::to_string(found->size()));
  }
  std::vector<float> values;
  for (const Json& each : *found) values.push_back(one(each));
  return values;
}

Bounds JsonReader::ReadBounds(const std::string& key, size_t dim) {
  const Json* found = Find(key);
  if (found == nullptr) return {};
  if (!found->is_array() || found->size() != 2) {
    Refuse(key, "must be [low, high], got " + Shown(*found));
  }
  const Json sides = {{"low", (*found)[0]}, {"high", (*found)[1]}};
  JsonReader reader(sides, Path(key));
  Bounds bounds{reader.Numbers("low", dim, -kInfinity), reader.Numbers("high", dim, kInfinity)};
  for (size_t i = 0; i < dim; ++i) {
    if (!(bounds.low[i] <= bounds.high[i])) {
      Refuse(key, "must have low at or below high, got " + Shown(*found));
    }
  }
  return bounds;
}

std::vector<uint32_t> JsonReader::Order(const std::string& key, size_t dim, uint64_t limit) {
  std::vector<uint32_t> order;
  const Json* found = Find(key);
  if (found == nullptr) {
    for (size_t i = 0; i < dim; ++i) order.push_back(static_cast<uint32_t>(i));
  } else if (!found->is_array() || found->size() != dim) {
    Refuse(key, "must be a list of " + std::to_string(dim) + " integers, got " + Shown(*found));
  } else {
    for (const Json& each : *found) {
      if (!each.is_number_unsigned() || each.get<uint64_t>() >= limit) {
        Refuse(key, "must have integers below " + std::to_string(limit) + ", got " + Shown(each));
      }
      order.push_back(each.get<uint32_t>());
    }
  }
  for (const uint32_t each : order) {
    if (each >= limit) Refuse(key, "reaches past the " + std::to_string(limit) + " elements");
  }
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    Refuse(key, "must have each element once, got " + Shown(*found));
  }
  return order;
}

JsonReader JsonReader::Object(const std::string& key) { return {Need(key), Path(key)}; }

void JsonReader::Each(const std::string& key, bool required,
                      const std::function<void(JsonReader*)>& body) {
  const Json* found = required ? &Need(key) : Find(key);
  if (found == nullptr) return;
  if (!found->is_array() || (required && found->empty())) {
    Refuse(key, "must be a list" + std::string(required ? " with at least one entry" : ""));
  }
  for (size_t i = 0; i < found->size(); ++i) {
    JsonReader reader((*found)[i], Path(key) + "[" + std::to_string(i) + "]");
    body(&reader);
    reader.Done();
  }
}

void JsonReader::Done() const {
  for (const auto& [key, value] : json_.items()) {
    if (asked_.count(key) == 0) Refuse(key, "is no known key; a typo may hide a limit");
  }
}

}  // namespace leapp_policy::onboard
