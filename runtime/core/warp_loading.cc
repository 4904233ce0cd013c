// SPDX-License-Identifier: Apache-2.0
#include "core/warp_loading.h"

#include "core/private_folder.h"

namespace leapp_policy {

WarpGraph* LoadRecording(const WarpFunctions& warp, void* context, ByteSpan wrp,
                         const std::vector<WarpModuleBytes>& modules, int device_type) {
  if (warp.apic_load_graph_from_bytes != nullptr) {
    return warp.apic_load_graph_from_bytes(context, wrp.data, wrp.size, modules.data(),
                                           static_cast<uint32_t>(modules.size()), device_type);
  }
  // Warp looks for the modules of 'x.wrp' in 'x_modules'.
  const PrivateFolder folder;
  const std::string path = folder.Write("segment.wrp", wrp);
  folder.MakeFolder("segment_modules");
  for (const WarpModuleBytes& module : modules) {
    folder.Write(std::string("segment_modules/") + module.filename,
                 {static_cast<const uint8_t*>(module.data), module.size});
  }
  return warp.apic_load_graph(context, path.c_str(), device_type);
}

bool LoadObject(const WarpFunctions& warp, ByteSpan object, const std::string& name) {
  if (warp.load_obj_from_bytes != nullptr) {
    return warp.load_obj_from_bytes(object.data, object.size, name.c_str(), false) == 0;
  }
  const PrivateFolder folder;
  return warp.load_obj(folder.Write("module.o", object).c_str(), name.c_str(), false) == 0;
}

}  // namespace leapp_policy
