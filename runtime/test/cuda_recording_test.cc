// SPDX-License-Identifier: Apache-2.0
// Without these a GPU would compile source although machine code fits, get none although it needs
// it, or leave sources behind in the file system.
#include "core/cuda_recording.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "test/check.h"

namespace {

namespace fs = std::filesystem;
using namespace leapp_policy;  // NOLINT: a test of the whole namespace

int graph;
bool accepts_images = true;
bool accepts_source = true;
std::string seen_image;
std::string seen_folder;
std::string seen_source;
const char* said = "";

WarpGraph* Graph() { return reinterpret_cast<WarpGraph*>(&graph); }

WarpGraph* LoadImages(void*, const void*, size_t, const WarpModuleBytes* modules, uint32_t count,
                      int) {
  CHECK(count == 1);
  seen_image.assign(static_cast<const char*>(modules[0].data), modules[0].size);
  if (!accepts_images) said = "PTX was refused";
  return accepts_images ? Graph() : nullptr;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

WarpGraph* LoadSource(const std::string& path) {
  seen_folder = fs::path(path).parent_path().string();
  CHECK(ReadFile(path).size() == 64);
  seen_source = ReadFile(fs::path(seen_folder) / "segment_modules" / "m.cu");
  if (!accepts_source) said = "no compiler";
  return accepts_source ? Graph() : nullptr;
}

ByteSpan Span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The front of a recording of format 16, which does not name its producer.
std::string Recording(uint8_t device) {
  std::string wrp(64, '\0');
  wrp.replace(0, 4, "WRP1");
  wrp[4] = 16;
  wrp[24] = static_cast<char>(device);
  return wrp;
}

struct Case {
  Case() {
    warp.version = [] { return "1.19.0"; };
    warp.get_error_string = [] { return said; };
    warp.apic_load_graph_from_bytes = &LoadImages;
    metadata.segment = "arm/0";
    metadata.record = Record{};
    metadata.record->device = {DeviceFamily::kCuda, 0};
    metadata.record->warp_version = "1.19.0";
    metadata.record->wrp_format = 16;
    metadata.record->gpu_modules = {{"m.cubin", {{"m.cubin", false, 80}, {"m.ptx", true, 75}}}};
    metadata.record->gpu_source = GpuSource{"source.wrp", {"m.cu"}};
    bundle.wrp = Span(wrp);
    bundle.modules = {{"m.cubin", Span(cubin)},
                      {"m.ptx", Span(ptx)},
                      {"source.wrp", Span(wrp)},
                      {"m.cu", Span(source)}};
    header = ReadWrpHeader(bundle.wrp);
    accepts_images = accepts_source = true;
    said = "";
    seen_image = seen_folder = seen_source = "";
  }

  CudaRecording On(int arch) {
    return {warp, metadata, bundle, header, nullptr, arch, &LoadSource};
  }

  const std::string wrp = Recording(kWrpDeviceCuda);
  const std::string cubin = "cubin", ptx = "ptx", source = "source";
  WarpFunctions warp{};
  Metadata metadata;
  Bundle bundle;
  WrpHeader header;
};

size_t Entries(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void TestBuildsComeFirst(const std::string& temporary) {
  Case c;
  for (const int arch : {80, 89, 90}) {
    CudaRecording recording = c.On(arch);
    CHECK(recording.Load() == Graph() && !recording.is_compiled_here());
    CHECK(seen_image == (arch == 90 ? "ptx" : "cubin") && seen_source.empty());
  }
  CHECK(Entries(temporary) == 0);
}

// Machine code that fits and is refused is damaged: nothing that a compiler could mend.
void TestRefusedMachineCode() {
  Case c;
  accepts_images = false;
  CHECK_ERROR(LP_LOAD_FAILED, "Warp says: PTX was refused; export it again with this Warp.",
              c.On(80).Load());
  CHECK(seen_source.empty());
}

void TestSource(const std::string& temporary) {
  for (const int arch : {70, 90}) {  // no build at all; PTX that the driver refuses
    Case c;
    accepts_images = false;
    {
      CudaRecording recording = c.On(arch);
      CHECK(recording.Load() == Graph() && recording.is_compiled_here());
      CHECK(seen_source == "source" && seen_image == (arch == 90 ? "ptx" : ""));
      const std::string folder = seen_folder;
      seen_image.clear();
      // A second graph takes what was compiled for the first, in the same folder.
      CHECK(recording.Load() == Graph() && seen_folder == folder && seen_image.empty());
      CHECK(Entries(temporary) == 1);
    }
    CHECK(Entries(temporary) == 0);
    accepts_source = false;
    CHECK_ERROR(LP_LOAD_FAILED, "could not be compiled for 'sm_" + std::to_string(arch) + "'",
                c.On(arch).Load());
    CHECK(Entries(temporary) == 0);
  }
}

void TestWithoutSource() {
  Case c;
  c.metadata.record->gpu_source.reset();
  CHECK_ERROR(LP_WRONG_DEVICE, "was built for 'sm_80', 'compute_75', this GPU is 'sm_70'",
              c.On(70).Load());
  CHECK_ERROR(LP_WRONG_DEVICE, "device.source_fallback=true", c.On(70).Load());
  accepts_images = false;
  CHECK_ERROR(LP_LOAD_FAILED, "Warp says: PTX was refused; for this GPU it has PTX alone",
              c.On(90).Load());
  said = "";
  CHECK_ERROR(LP_LOAD_FAILED, "device.source_fallback=true", c.On(90).Load());
  CHECK(seen_source.empty());
}

void TestDamage(const std::string& temporary) {
  Case c;
  c.metadata.record->gpu_source->files = {"other.cu"};
  CHECK_ERROR(LP_BAD_BUNDLE, "records the module file 'other.cu'", c.On(70).Load());
  c.metadata.record->gpu_source->recording = "none.wrp";
  CHECK_ERROR(LP_BAD_BUNDLE, "records the module file 'none.wrp'", c.On(70).Load());
  // A recording for another device, or none at all, does not reach Warp.
  const std::string other = Recording(kWrpDeviceCpu);
  c.metadata.record->gpu_source = GpuSource{"source.wrp", {"m.cu"}};
  c.bundle.modules[2].data = Span(other);
  CHECK_ERROR(LP_WRONG_DEVICE, "was exported for device 'cpu'", c.On(70).Load());
  c.bundle.modules[2].data = Span(c.source);
  CHECK_ERROR(LP_BAD_BUNDLE, "", c.On(70).Load());
  CHECK(seen_source.empty() && Entries(temporary) == 0);
}

}  // namespace

int main() {
  char temporary[] = "/tmp/leapp-policy-test-XXXXXX";
  CHECK(mkdtemp(temporary) != nullptr);
  setenv("TMPDIR", temporary, 1);
  TestBuildsComeFirst(temporary);
  TestRefusedMachineCode();
  TestSource(temporary);
  TestWithoutSource();
  TestDamage(temporary);
  fs::remove_all(temporary);
  return leapp_policy::test::Result();
}
