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

std::string WarpErrorText(const WarpFunctions& warp) {
  const char* text = warp.get_error_string();
  return text == nullptr ? "" : text;
}

std::string WarpReason(const WarpFunctions& warp, const std::string& before) {
  const std::string now = WarpErrorText(warp);
  if (now.empty() || now == before) return "Warp gave no reason; see its lines on stderr";
  return "Warp says: " + now;
}

std::string LoadRefusal(const Metadata& metadata, const WrpHeader& header,
                        const WarpFunctions& warp, const std::string& before) {
  return metadata.Subject() + " (.wrp format " + std::to_string(header.format) +
         ") could not be loaded by Warp " + warp.version() + "; " + WarpReason(warp, before);
}

bool LoadObject(const WarpFunctions& warp, ByteSpan object, const std::string& name) {
  if (warp.load_obj_from_bytes != nullptr) {
    return warp.load_obj_from_bytes(object.data, object.size, name.c_str(), false) == 0;
  }
  const PrivateFolder folder;
  return warp.load_obj(folder.Write("module.o", object).c_str(), name.c_str(), false) == 0;
}

}  // namespace leapp_policy
