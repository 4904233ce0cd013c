// SPDX-License-Identifier: Apache-2.0
// Without these a release of Warp that loads from files would get other bytes, or leave machine
// code in a folder that others can read.
#include "core/warp_loading.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/private_folder.h"
#include "test/check.h"

namespace {

namespace fs = std::filesystem;
using leapp_policy::ByteSpan;
using leapp_policy::PrivateFolder;
using leapp_policy::WarpFunctions;
using leapp_policy::WarpGraph;

// What the stand-ins for Warp's functions saw.
std::string seen_path;
std::string seen_recording;
std::string seen_module;
std::string seen_name;
bool accept = true;

ByteSpan Span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

unsigned Mode(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

WarpGraph* LoadGraph(void*, const char* path, int) {
  seen_path = path;
  seen_recording = ReadFile(path);
  const fs::path modules = fs::path(path).replace_extension().string() + "_modules";
  seen_module = ReadFile((modules / "a.o").string());
  CHECK(Mode(fs::path(path).parent_path().string()) == 0700);
  CHECK(Mode(modules.string()) == 0700);
  CHECK(Mode(path) == 0600);
  return accept ? reinterpret_cast<WarpGraph*>(&accept) : nullptr;
}

WarpGraph* LoadGraphFromBytes(void*, const void* data, size_t size,
                              const leapp_policy::WarpModuleBytes*, uint32_t, int) {
  seen_recording.assign(static_cast<const char*>(data), size);
  return reinterpret_cast<WarpGraph*>(&accept);
}

int LoadObj(const char* path, const char* name, bool) {
  seen_path = path;
  seen_module = ReadFile(path);
  seen_name = name;
  return accept ? 0 : 1;
}

int LoadObjFromBytes(const void* data, size_t size, const char*, bool) {
  seen_module.assign(static_cast<const char*>(data), size);
  return 0;
}

size_t Entries(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void TestRecording(const std::string& temporary) {
  const std::string wrp("rec\0ording", 10);
  const std::string object("ob\0ject", 7);
  WarpFunctions warp{};
  warp.apic_load_graph = &LoadGraph;
  for (const bool answer : {true, false}) {
    accept = answer;
    seen_path.clear();
    const auto* graph = leapp_policy::LoadRecording(warp, nullptr, Span(wrp),
                                                    {{"a.o", object.data(), object.size()}}, 1);
    CHECK((graph != nullptr) == answer);
    CHECK(seen_recording == wrp && seen_module == object);
    CHECK(seen_path.compare(0, temporary.size(), temporary) == 0);
    CHECK(Entries(temporary) == 0);
  }
  // A name that cannot be a file ends in an error that leaves nothing behind.
  CHECK_ERROR(
      LP_LOAD_FAILED, "could not be written",
      leapp_policy::LoadRecording(
          warp, nullptr, Span(wrp),
          {{"a.o", object.data(), object.size()}, {"a.o", object.data(), object.size()}}, 1));
  CHECK(Entries(temporary) == 0);

  warp.apic_load_graph_from_bytes = &LoadGraphFromBytes;
  seen_path.clear();
  seen_recording.clear();
  CHECK(leapp_policy::LoadRecording(warp, nullptr, Span(wrp), {}, 1) != nullptr);
  CHECK(seen_recording == wrp && seen_path.empty());
}

void TestObject(const std::string& temporary) {
  const std::string object("ob\0ject", 7);
  WarpFunctions warp{};
  warp.load_obj = &LoadObj;
  for (const bool answer : {true, false}) {
    accept = answer;
    CHECK(leapp_policy::LoadObject(warp, Span(object), "name") == answer);
    CHECK(seen_module == object && seen_name == "name");
    CHECK(!fs::exists(seen_path) && Entries(temporary) == 0);
  }
  warp.load_obj_from_bytes = &LoadObjFromBytes;
  seen_path.clear();
  CHECK(leapp_policy::LoadObject(warp, Span(object), "name"));
  CHECK(seen_module == object && seen_path.empty());
}

void TestFolder(const std::string& temporary) {
  std::string path;
  {
    const PrivateFolder folder;
    const PrivateFolder other;
    path = folder.path();
    CHECK(path != other.path() && Mode(path) == 0700);
    CHECK(ReadFile(folder.Write("empty", Span(""))).empty());
    folder.Write("file", Span("x"));
    CHECK_ERROR(LP_LOAD_FAILED, "File exists", folder.Write("file", Span("y")));
    CHECK_ERROR(LP_LOAD_FAILED, "No such file or directory", folder.Write("none/file", Span("y")));
  }
  CHECK(!fs::exists(path) && Entries(temporary) == 0);
  setenv("TMPDIR", "/nonexistent", 1);
  CHECK_ERROR(LP_LOAD_FAILED, "set TMPDIR to a folder with room", PrivateFolder{});
}

}  // namespace

int main() {
  char temporary[] = "/tmp/leapp-policy-test-XXXXXX";
  CHECK(mkdtemp(temporary) != nullptr);
  setenv("TMPDIR", temporary, 1);
  TestRecording(temporary);
  TestObject(temporary);
  TestFolder(temporary);
  fs::remove_all(temporary);
  return leapp_policy::test::Result();
}
