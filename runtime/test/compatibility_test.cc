// SPDX-License-Identifier: Apache-2.0
// Without these a bundle for another machine, device or release would be run.
#include "core/compatibility.h"

#include "core/cpu_features.h"
#include "core/device.h"
#include "core/sha256.h"
#include "test/check.h"

namespace {

using namespace leapp_policy;  // NOLINT: a test of the whole namespace

const Device kCpu{DeviceFamily::kCpu, 0};
const Device kCuda{DeviceFamily::kCuda, 0};

Metadata Recorded() {
  Metadata m;
  m.segment = "arm/0";
  m.record = Record{};
  m.record->device = kCpu;
  m.record->warp_version = "1.19.2";
  m.record->wrp_format = 18;
  return m;
}

WrpHeader Header(uint32_t format = 18, uint8_t device = kWrpDeviceCpu) {
  WrpHeader header;
  header.format = format;
  header.device = device;
  header.warp_version = "1.18.0";
  return header;
}

void TestDigest() {
  const uint8_t bytes[] = {1, 2, 3};
  Metadata m = Recorded();
  CheckDigest(m, {bytes, 3});
  m.record->bundle = BundleDigest{Sha256Hex({bytes, 3}), 3};
  CheckDigest(m, {bytes, 3});
  CHECK_ERROR(LP_BAD_BUNDLE, "must have 3 bytes, got 2", CheckDigest(m, {bytes, 2}));
  const uint8_t other[] = {1, 2, 4};
  CHECK_ERROR(LP_BAD_BUNDLE, "must have SHA-256", CheckDigest(m, {other, 3}));
}

void TestDevice() {
  CheckDevice(Recorded(), Header(), kCpu);
  CHECK_ERROR(LP_WRONG_DEVICE, "exported for device 'cpu' but is opened on 'cuda'",
              CheckDevice(Recorded(), Header(), kCuda));
  CHECK_ERROR(LP_WRONG_DEVICE, "exported for device 'cuda' but is opened on 'cpu'",
              CheckDevice(Recorded(), Header(18, kWrpDeviceCuda), kCpu));
  for (const uint32_t format : {15u, 16u, 18u}) {  // of Warp 1.17, 1.18, 1.19; no record at all
    CheckDevice(Metadata{}, Header(format), kCpu);
    CHECK_ERROR(LP_WRONG_DEVICE, "exported for device 'cuda' but is opened on 'cpu'",
                CheckDevice(Metadata{}, Header(format, kWrpDeviceCuda), kCpu));
  }
  CHECK_ERROR(LP_BAD_BUNDLE, "unknown device type 7", CheckDevice(Recorded(), Header(18, 7), kCpu));
  CHECK_ERROR(LP_BAD_BUNDLE, "records .wrp format 18 but its bundle has format 16",
              CheckDevice(Recorded(), Header(16), kCpu));
}

void TestVersion() {
  CheckWarpVersion(Recorded(), Header(), "1.19.0");
  CHECK_ERROR(LP_WRONG_VERSION, "exported with Warp 1.19.2 (.wrp format 18) but Warp 1.20.0",
              CheckWarpVersion(Recorded(), Header(), "1.20.0"));
  Metadata foreign;
  CheckWarpVersion(foreign, Header(), "1.18.5");
  CHECK_ERROR(LP_WRONG_VERSION, "exported with Warp 1.18.0",
              CheckWarpVersion(foreign, Header(), "1.19.0"));
}

void TestCpu() {
  const std::string host = std::string(HostArchitecture()) + "-unknown-linux-gnu";
  Metadata m = Recorded();
  m.record->cpu = CpuTarget{host, "some-march", {}};
  CheckCpu(m, {});
  m.record->cpu->features = {"quantum"};
  CHECK_ERROR(LP_WRONG_CPU, "'some-march' and needs the instruction set 'quantum'",
              CheckCpu(m, {}));
  m.record->cpu = CpuTarget{"riscv64-unknown-linux-gnu", "rv64", {}};
  CHECK_ERROR(LP_WRONG_CPU, "compiled for 'riscv64-unknown-linux-gnu'", CheckCpu(m, {}));
  m.record->cpu = CpuTarget{std::string(HostArchitecture()) + "-pc-windows-msvc", "x", {}};
  CHECK_ERROR(LP_WRONG_CPU, "-linux'", CheckCpu(m, {}));
}

void TestElf() {
  uint8_t elf[64] = {0x7f, 'E', 'L', 'F', 2, 1};
  elf[18] = 8;  // MIPS
  CHECK_ERROR(LP_WRONG_CPU, "ELF machine 8", CheckCpu(Recorded(), {{"a.o", elf, sizeof(elf)}}));
  elf[18] = static_cast<uint8_t>(HostElfMachine());
  CHECK_ERROR(LP_BAD_BUNDLE, "module 'a.o' is damaged: it is no relocatable object",
              CheckCpu(Recorded(), {{"a.o", elf, sizeof(elf)}}));
  CHECK_ERROR(LP_BAD_BUNDLE, "module 'a.o' is no ELF object",
              CheckCpu(Recorded(), {{"a.o", elf, 63}}));
  CHECK_ERROR(LP_BAD_BUNDLE, "is no ELF object", CheckCpu(Recorded(), {{"a.o", nullptr, 0}}));
}

void TestGpuModules() {
  const uint8_t bytes[3] = {0, 1, 2};
  Bundle bundle;
  bundle.modules = {{"m.sm90.cubin", {bytes, 1}},
                    {"m.sm80.cubin", {bytes + 1, 1}},
                    {"m.sm75.ptx", {bytes + 2, 1}}};
  Metadata m = Recorded();
  CHECK(SelectGpuModules(m, bundle, 90).modules.size() ==
        3);  // no record of builds: all files as they are

  m.record->gpu_modules = {
      {"m.sm90.cubin",
       {{"m.sm90.cubin", false, 90}, {"m.sm80.cubin", false, 80}, {"m.sm75.ptx", true, 75}}}};
  const auto selected = [&](int arch) {
    const GpuSelection selected = SelectGpuModules(m, bundle, arch);
    const std::vector<WarpModuleBytes>& modules = selected.modules;
    CHECK(modules.size() == 1 && std::string(modules[0].filename) == "m.sm90.cubin");
    const auto index = static_cast<const uint8_t*>(modules[0].data) - bytes;
    CHECK(selected.misfit.empty() && selected.has_ptx == (index == 2));
    return index;
  };
  CHECK(selected(90) == 0);
  CHECK(selected(80) == 1 && selected(89) == 1);  // machine code runs within its major version
  CHECK(selected(100) == 2 && selected(75) == 2);
  CHECK(SelectGpuModules(m, bundle, 70).misfit ==
        "Segment 'arm/0' module 'm.sm90.cubin' was built for 'sm_90', 'sm_80', 'compute_75', this "
        "GPU is 'sm_70'");
  bundle.modules.pop_back();
  CHECK_ERROR(LP_BAD_BUNDLE, "records the module file 'm.sm75.ptx'",
              SelectGpuModules(m, bundle, 75));
}

void TestDeviceNames() {
  CHECK(ParseDevice("cpu").family == DeviceFamily::kCpu);
  CHECK(ParseDevice("cuda:3").family == DeviceFamily::kCuda && ParseDevice("cuda:3").index == 3);
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cpu:0"}) {
    CHECK_ERROR(LP_INVALID_ARGUMENT, "must be 'cpu', 'cuda' or", ParseDevice(text));
  }
}

}  // namespace

int main() {
  TestDigest();
  TestDevice();
  TestVersion();
  TestCpu();
  TestElf();
  TestGpuModules();
  TestDeviceNames();
  return leapp_policy::test::Result();
}
