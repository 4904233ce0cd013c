// SPDX-License-Identifier: Apache-2.0
#include "core/compatibility.h"

#include "core/cpu_features.h"
#include "core/elf_object.h"
#include "core/error.h"
#include "core/sha256.h"

namespace leapp_policy {
namespace {

// The first format, that of Warp 1.17, whose header is known to be laid out as wrp_header.cc reads
// it; older ones are left to Warp's own refusal.
constexpr uint32_t kFirstKnownFormat = 15;

[[noreturn]] void FailDevice(const Metadata& metadata, const char* exported, Device device) {
  throw Error(LP_WRONG_DEVICE, metadata.Subject() + " was exported for device '" + exported +
                                   "' but is opened on '" + DeviceFamilyName(device.family) +
                                   "'; export it with device=" + DeviceFamilyName(device.family) +
                                   " or run it on its own device.");
}

// "1.19" of "1.19.0"; the whole text when it has no two dots' worth of it.
std::string Release(const std::string& version) {
  const size_t first = version.find('.');
  if (first == std::string::npos) return version;
  return version.substr(0, version.find('.', first + 1));
}

std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += "'" + name + "'";
  }
  return text;
}

// How well a build suits a GPU: 0 not at all; machine code before PTX, newer before older.
int Suitability(const GpuBinary& binary, int arch) {
  if (binary.arch > arch) return 0;
  if (binary.is_ptx) return 1 + binary.arch;
  return binary.arch / 10 == arch / 10 ? 10000 + binary.arch : 0;
}

std::string BuildNames(const GpuModule& module) {
  std::vector<std::string> names;
  for (const GpuBinary& binary : module.binaries) {
    names.push_back((binary.is_ptx ? "compute_" : "sm_") + std::to_string(binary.arch));
  }
  return Join(names);
}

void CheckElf(const Metadata& metadata, const WarpModuleBytes& module) {
  const ByteSpan object{static_cast<const uint8_t*>(module.data), module.size};
  const std::string subject = metadata.Subject() + " module '" + module.filename + "'";
  const std::optional<unsigned> machine = ElfMachine(object);
  if (!machine) {
    throw Error(LP_BAD_BUNDLE, subject +
                                   " is no ELF object; the bundle is damaged or was exported on "
                                   "another operating system, export it again on Linux.");
  }
  if (*machine != HostElfMachine()) {
    throw Error(LP_WRONG_CPU, subject + " is machine code for ELF machine " +
                                  std::to_string(*machine) + ", this machine is " +
                                  std::to_string(HostElfMachine()) + " (" + HostArchitecture() +
                                  "); export it for this architecture.");
  }
  const std::string damage = FindElfDamage(object);
  if (!damage.empty()) {
    throw Error(LP_BAD_BUNDLE, subject + " is damaged: " + damage + "; export it again.");
  }
}

}  // namespace

void CheckDigest(const Metadata& metadata, ByteSpan bundle) {
  if (!metadata.record || !metadata.record->bundle) return;
  const BundleDigest& digest = *metadata.record->bundle;
  if (bundle.size != digest.size) {
    throw Error(LP_BAD_BUNDLE, metadata.Subject() + " bundle must have " +
                                   std::to_string(digest.size) + " bytes, got " +
                                   std::to_string(bundle.size) +
                                   "; the file is damaged, export it again.");
  }
  const std::string sha256 = Sha256Hex(bundle);
  if (sha256 != digest.sha256) {
    throw Error(LP_BAD_BUNDLE, metadata.Subject() + " bundle must have SHA-256 " + digest.sha256 +
                                   ", got " + sha256 + "; the file is damaged, export it again.");
  }
}

void CheckDevice(const Metadata& metadata, const WrpHeader& header, Device device) {
  if (metadata.record && metadata.record->device.family != device.family) {
    FailDevice(metadata, DeviceFamilyName(metadata.record->device.family), device);
  }
  if (header.format >= kFirstKnownFormat) {
    const bool is_cpu = header.device == kWrpDeviceCpu;
    if (!is_cpu && header.device != kWrpDeviceCuda) {
      throw Error(LP_BAD_BUNDLE, metadata.Subject() + " recording has the unknown device type " +
                                     std::to_string(header.device) +
                                     "; the file is damaged, export it again.");
    }
    if (is_cpu != (device.family == DeviceFamily::kCpu)) {
      FailDevice(metadata, is_cpu ? "cpu" : "cuda", device);
    }
  }
  if (metadata.record && metadata.record->wrp_format != header.format) {
    throw Error(LP_BAD_BUNDLE, metadata.Subject() + " records .wrp format " +
                                   std::to_string(metadata.record->wrp_format) +
                                   " but its bundle has format " + std::to_string(header.format) +
                                   "; they do not belong together, export it again.");
  }
}

void CheckWarpVersion(const Metadata& metadata, const WrpHeader& header,
                      const std::string& running) {
  const std::optional<std::string> producer =
      metadata.record ? std::optional<std::string>(metadata.record->warp_version)
                      : header.warp_version;
  if (!producer || Release(*producer) == Release(running)) return;
  throw Error(LP_WRONG_VERSION, metadata.Subject() + " was exported with Warp " + *producer +
                                    " (.wrp format " + std::to_string(header.format) +
                                    ") but Warp " + running + " is running; install warp-lang " +
                                    Release(*producer) + " or export it again with Warp " +
                                    Release(running) + ".");
}

void CheckCpu(const Metadata& metadata, const std::vector<WarpModuleBytes>& modules) {
  if (metadata.record && metadata.record->cpu) {
    const CpuTarget& cpu = *metadata.record->cpu;
    const bool is_host = TripleArchitecture(cpu.triple) == HostArchitecture() &&
                         cpu.triple.find("linux") != std::string::npos;
    if (!is_host) {
      throw Error(LP_WRONG_CPU, metadata.Subject() + " was compiled for '" + cpu.triple +
                                    "' but this machine is '" + HostArchitecture() +
                                    "-linux'; export it for this architecture.");
    }
    const std::vector<std::string> missing = MissingCpuFeatures(cpu.features);
    if (!missing.empty()) {
      throw Error(LP_WRONG_CPU, metadata.Subject() + " was compiled for '" + cpu.march +
                                    "' and needs the instruction set " + Join(missing) +
                                    " that this machine does not offer; export it for an older "
                                    "portable target.");
    }
  }
  for (const WarpModuleBytes& module : modules) CheckElf(metadata, module);
}

ByteSpan BundleFile(const Metadata& metadata, const Bundle& bundle, const std::string& filename) {
  for (const BundleModule& module : bundle.modules) {
    if (module.filename == filename) return module.data;
  }
  throw Error(LP_BAD_BUNDLE, metadata.Subject() + " records the module file '" + filename +
                                 "' that its bundle does not hold; export it again.");
}

GpuSelection SelectGpuModules(const Metadata& metadata, const Bundle& bundle, int arch) {
  GpuSelection selected;
  if (!metadata.record || metadata.record->gpu_modules.empty()) {
    for (const BundleModule& module : bundle.modules) {
      selected.modules.push_back({module.filename.c_str(), module.data.data, module.data.size});
    }
    return selected;
  }
  for (const GpuModule& module : metadata.record->gpu_modules) {
    const GpuBinary* best = nullptr;
    for (const GpuBinary& binary : module.binaries) {
      const int suits = Suitability(binary, arch);
      if (suits > 0 && (best == nullptr || suits > Suitability(*best, arch))) best = &binary;
    }
    if (best == nullptr) {
      selected.misfit = metadata.Subject() + " module '" + module.filename + "' was built for " +
                        BuildNames(module) + ", this GPU is 'sm_" + std::to_string(arch) + "'";
      return selected;
    }
    const ByteSpan data = BundleFile(metadata, bundle, best->filename);
    selected.modules.push_back({module.filename.c_str(), data.data, data.size});
    selected.has_ptx = selected.has_ptx || best->is_ptx;
  }
  return selected;
}

}  // namespace leapp_policy
