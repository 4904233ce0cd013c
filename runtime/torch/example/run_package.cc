// SPDX-License-Identifier: Apache-2.0
//
// A robot program without Python: loads an AOTInductor package, feeds it float32 numbers, prints
// what comes out. Link it with libtorch and libleapp_policy_torch.so, which brings the operator.
//
//   run_package policy.pt2 2,3 0.5     // one input [2, 3], each element 0.5
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<int64_t> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, ',');) shape.push_back(std::stoll(size));
  return shape;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc % 2 != 0) {
    std::cerr << "usage: run_package PACKAGE (SHAPE VALUE)…\n";
    return 2;
  }
  try {
    torch::inductor::AOTIModelPackageLoader loader(argv[1]);
    std::vector<at::Tensor> inputs;
    for (int i = 2; i < argc; i += 2) {
      inputs.push_back(torch::full(ParseShape(argv[i]), std::stod(argv[i + 1]), torch::kFloat32));
    }
    for (const at::Tensor& output : loader.run(inputs)) {
      const at::Tensor flat = output.contiguous().view(-1);
      for (int64_t i = 0; i < flat.numel(); ++i) std::cout << flat[i].item<float>() << '\n';
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
  return 0;
}
