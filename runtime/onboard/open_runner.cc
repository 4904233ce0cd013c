// SPDX-License-Identifier: Apache-2.0
#include "onboard/open_runner.h"

namespace leapp_policy::onboard {

OpenedRunner OpenRunner(const std::vector<std::string>& folders, bool auto_start) {
  std::vector<Deployment> deployments;
  for (const std::string& each : folders) deployments.push_back(LoadDeployment(each));
  OpenedRunner opened;
  // Both policies run in one ONNX Runtime, that of the first; Warp is of the first that has any.
  LibrarySpec libraries = deployments.at(0).libraries;
  for (const Deployment& each : deployments) {
    if (!libraries.op.empty()) break;
    libraries.op = each.libraries.op;
    libraries.warp_dir = each.libraries.warp_dir;
  }
  opened.library = std::make_shared<OrtLibrary>(libraries);
  const auto open = [&](const Deployment& deployment, size_t model) {
    return OpenOrtSession(opened.library, deployment.models[model], deployment.device);
  };
  opened.runner = std::make_unique<Runner>(std::move(deployments), open, auto_start);
  return opened;
}

}  // namespace leapp_policy::onboard
