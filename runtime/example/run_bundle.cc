// SPDX-License-Identifier: Apache-2.0
//
// Runs one segment of an exported policy with neither Python nor ONNX Runtime in the process.
//
//   run_bundle BUNDLE METADATA                      shows what the segment takes and gives
//   run_bundle BUNDLE METADATA OUT_DIR INPUT...     runs it once
//
// BUNDLE and METADATA come from leapp-policy-extract-segment. An INPUT is a file of raw numbers,
// dense, row major, in the machine's byte order (numpy.ndarray.tofile). Outputs are written to
// OUT_DIR/<name>.bin in the same form.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "leapp_policy/runtime.h"

namespace {

using Bytes = std::vector<char>;

Bytes ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("The file '" + path + "' could not be read.");
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void WriteFile(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("The file '" + path + "' could not be written.");
}

// Turns a status into an exception that carries the runtime's sentence.
void Check(lp_status status) {
  if (status != LP_OK) throw std::runtime_error(lp_last_error());
}

struct Close {
  void operator()(lp_segment* segment) const { lp_segment_close(segment); }
};
using Segment = std::unique_ptr<lp_segment, Close>;

Segment Open(const std::string& bundle_path, const std::string& metadata_path) {
  const Bytes bundle = ReadFile(bundle_path);
  Bytes metadata = ReadFile(metadata_path);
  metadata.push_back('\0');
  lp_segment* segment = nullptr;
  Check(lp_segment_open(bundle.data(), bundle.size(), metadata.data(), "cpu", &segment));
  return Segment(segment);  // the runtime keeps nothing of the two files
}

void Show(const nlohmann::json& description) {
  std::printf("segment %s, Warp %s\n", description["segment"].dump().c_str(),
              description["warp"]["version"].dump().c_str());
  for (const char* kind : {"inputs", "outputs"}) {
    for (const nlohmann::json& spec : description[kind]) {
      std::printf("%s %s %s %s\n", kind, spec["name"].dump().c_str(), spec["dtype"].dump().c_str(),
                  spec["shape"].dump().c_str());
    }
  }
}

// A loop would keep segment and buffers and repeat lp_segment_run() alone: it allocates nothing.
void Run(lp_segment* segment, const nlohmann::json& description, const std::string& out_dir,
         const std::vector<std::string>& input_paths) {
  std::vector<Bytes> inputs;
  std::vector<lp_const_buffer> input_buffers;
  for (const std::string& path : input_paths) inputs.push_back(ReadFile(path));
  for (const Bytes& input : inputs) input_buffers.push_back({input.data(), input.size()});

  std::vector<Bytes> outputs;
  std::vector<lp_buffer> output_buffers;
  for (const nlohmann::json& spec : description["outputs"]) {
    outputs.emplace_back(spec["num_bytes"].get<size_t>());
  }
  for (Bytes& output : outputs) output_buffers.push_back({output.data(), output.size()});

  // Counts and sizes are checked by the runtime; its sentence names the array that does not fit.
  Check(lp_segment_run(segment, input_buffers.data(), input_buffers.size(), output_buffers.data(),
                       output_buffers.size(), nullptr));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const nlohmann::json& name = description["outputs"][i]["name"];
    if (name.is_null()) continue;  // nobody reads it
    WriteFile(out_dir + "/" + name.get<std::string>() + ".bin", outputs[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::fprintf(stderr, "usage: run_bundle BUNDLE METADATA [OUT_DIR INPUT...]\n");
    return 2;
  }
  try {
    const Segment segment = Open(arguments[0], arguments[1]);
    const auto description = nlohmann::json::parse(lp_segment_describe(segment.get()));
    if (arguments.size() == 2) {
      Show(description);
    } else {
      Run(segment.get(), description, arguments[2], {arguments.begin() + 3, arguments.end()});
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
