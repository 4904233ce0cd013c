// SPDX-License-Identifier: Apache-2.0
#include "core/warp_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/fork_watch.h"
#include "core/library_file.h"

namespace leapp_policy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderVariable = "LEAPP_POLICY_WARP_LIBRARY_DIR";
constexpr const char* kHeadersVariable = "LEAPP_POLICY_WARP_INCLUDE_DIR";
constexpr const char* kHeaderName = "builtin.h";
constexpr const char* kCoreName = "warp.so";
constexpr const char* kClangName = "warp-clang.so";
constexpr const char* kRemedy =
    "; install warp-lang beside leapp-policy, or set LEAPP_POLICY_WARP_LIBRARY_DIR to the folder "
    "'warp/bin' of a Warp installation.";

std::string LastDlError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// The folder of the shared library that holds this code.
fs::path OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path();
}

int FindLoadedCore(dl_phdr_info* info, size_t, void* found) {
  const fs::path path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (path.filename() != kCoreName) return 0;
  *static_cast<fs::path*>(found) = path.parent_path();
  return 1;
}

// The folder of a warp.so that this process has loaded already.
std::optional<fs::path> LoadedFolder() {
  fs::path folder;
  if (dl_iterate_phdr(&FindLoadedCore, &folder) == 0) return std::nullopt;
  return folder;
}

struct Place {
  std::string why;
  fs::path folder;
};

// Folders to look in, best first. A folder that the user names is the only one: falling back from
// it would run another Warp than the one asked for.
std::vector<Place> Places() {
  const char* named = std::getenv(kFolderVariable);
  if (named != nullptr && named[0] != '\0') return {{kFolderVariable, named}};

  std::vector<Place> places;
  if (const auto loaded = LoadedFolder()) places.push_back({"loaded in this process", *loaded});
  const fs::path own = OwnFolder();
  if (!own.empty()) {
    places.push_back({"beside this library", own});
    places.push_back({"the Python package beside leapp_policy",
                      (own / ".." / ".." / "warp" / "bin").lexically_normal()});
  }
  return places;
}

void* Open(const fs::path& path) {
  const std::string damage = FindMissingEnd(path.string());
  if (!damage.empty()) {
    throw Error(LP_NO_WARP, "Warp's library '" + path.string() + "' is cut off: " + damage +
                                "; reinstall warp-lang.");
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error(LP_NO_WARP, "Warp's library '" + path.string() + "' could not be loaded (" +
                                LastDlError() + ")" + kRemedy);
  }
  return handle;
}

fs::path FindFolder() {
  std::string looked_at;
  for (const Place& place : Places()) {
    std::error_code ignored;
    if (fs::exists(place.folder / kCoreName, ignored)) return place.folder;
    if (!looked_at.empty()) looked_at += ", ";
    looked_at += "'" + (place.folder / kCoreName).string() + "' (" + place.why + ")";
  }
  throw Error(LP_NO_WARP, "Warp's library 'warp.so' was not found; looked at " + looked_at +
                              std::string(kRemedy));
}

// Resolves one function into a typed slot.
class Resolver {
 public:
  Resolver(void* handle, fs::path path) : handle_(handle), path_(std::move(path)) {}

  template <typename Function>
  void operator()(const char* name, Function** slot) const {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) {
      throw Error(LP_NO_WARP, "Warp's library '" + path_.string() + "' has no function '" + name +
                                  "' (" + LastDlError() +
                                  "); leapp-policy needs warp-lang 1.17, 1.18, 1.19 or a later "
                                  "release with the same functions.");
    }
    *slot = reinterpret_cast<Function*>(symbol);
  }

  // The slot of a function that some releases lack stays null.
  template <typename Function>
  void Optional(const char* name, Function** slot) const {
    *slot = reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
  fs::path path_;
};

void ResolveCore(const Resolver& resolve, WarpFunctions* f) {
  resolve("wp_version", &f->version);
  resolve("wp_get_error_string", &f->get_error_string);
  resolve.Optional("wp_cpu_block_runtime_get_api", &f->cpu_block_runtime_get_api);
  resolve.Optional("wp_apic_load_graph_from_bytes", &f->apic_load_graph_from_bytes);
  if (f->apic_load_graph_from_bytes == nullptr) {
    resolve("wp_apic_load_graph", &f->apic_load_graph);
  }
  resolve("wp_apic_destroy_graph", &f->apic_destroy_graph);
  resolve("wp_apic_get_num_params", &f->apic_get_num_params);
  resolve("wp_apic_get_param_name", &f->apic_get_param_name);
  resolve("wp_apic_get_param_size", &f->apic_get_param_size);
  resolve("wp_apic_get_param_ptr", &f->apic_get_param_ptr);
  resolve("wp_apic_get_num_kernels", &f->apic_get_num_kernels);
  resolve("wp_apic_get_kernel_key", &f->apic_get_kernel_key);
  resolve("wp_apic_get_kernel_module_hash", &f->apic_get_kernel_module_hash);
  resolve("wp_apic_get_kernel_module_binary_filename", &f->apic_get_kernel_module_binary_filename);
  resolve("wp_apic_get_kernel_forward_name", &f->apic_get_kernel_forward_name);
  resolve("wp_apic_get_kernel_backward_name", &f->apic_get_kernel_backward_name);
  resolve("wp_apic_register_loaded_cpu_kernel", &f->apic_register_loaded_cpu_kernel);
  resolve("wp_apic_cpu_replay_graph", &f->apic_cpu_replay_graph);
  resolve("wp_apic_get_recording_state", &f->apic_get_recording_state);
}

void ResolveClang(const Resolver& resolve, WarpFunctions* f) {
  resolve("wp_warp_clang_version", &f->warp_clang_version);
  resolve.Optional("wp_llvm_set_cpu_block_runtime", &f->llvm_set_cpu_block_runtime);
  resolve.Optional("wp_load_obj_from_bytes", &f->load_obj_from_bytes);
  if (f->load_obj_from_bytes == nullptr) resolve("wp_load_obj", &f->load_obj);
  resolve("wp_unload_obj", &f->unload_obj);
  resolve("wp_lookup", &f->lookup);
}

}  // namespace

// wp_init() is left to EnableCuda(): in Warp 1.19 it does nothing but start the CUDA driver, which
// a CPU segment does not need and which warns on a machine that has none.
WarpLibrary::WarpLibrary() {
  WatchForks();
  const fs::path folder = FindFolder();
  const fs::path core = folder / kCoreName;
  const fs::path clang = folder / kClangName;
  core_ = Open(core);
  ResolveCore(Resolver(core_, core), &functions_);
  ResolveClang(Resolver(Open(clang), clang), &functions_);

  folder_ = folder.string();
  version_ = functions_.version();
  const std::string clang_version = functions_.warp_clang_version();
  if (clang_version != version_) {
    throw Error(LP_NO_WARP, "Warp's libraries in '" + folder_ + "' do not belong together: '" +
                                kCoreName + "' is version " + version_ + ", '" + kClangName +
                                "' is version " + clang_version + "; reinstall warp-lang.");
  }
  BindBlockRuntime(core.string(), clang.string());
}

// Without this binding no object loads, in releases that have one. Python's warp binds the same
// table of the same library, under a lock, so that whoever comes second changes nothing.
void WarpLibrary::BindBlockRuntime(const std::string& core, const std::string& clang) const {
  if (functions_.cpu_block_runtime_get_api == nullptr &&
      functions_.llvm_set_cpu_block_runtime == nullptr) {
    return;
  }
  if (functions_.cpu_block_runtime_get_api == nullptr ||
      functions_.llvm_set_cpu_block_runtime == nullptr ||
      functions_.llvm_set_cpu_block_runtime(functions_.cpu_block_runtime_get_api()) == 0) {
    throw Error(LP_NO_WARP, "Warp's library '" + clang + "' refused the CPU block runtime of '" +
                                core + "'; reinstall warp-lang.");
  }
}

const WarpCudaFunctions& WarpLibrary::EnableCuda() const {
  static const WarpCudaFunctions functions = [this] {
    const Resolver resolve(core_, fs::path(folder_) / kCoreName);
    WarpCudaFunctions f{};
    int (*init)(const char* expected_version) = nullptr;
    int (*is_cuda_enabled)() = nullptr;
    int (*device_get_count)() = nullptr;
    resolve("wp_init", &init);
    resolve("wp_is_cuda_enabled", &is_cuda_enabled);
    resolve("wp_cuda_device_get_count", &device_get_count);
    resolve("wp_cuda_device_get_arch", &f.device_get_arch);
    resolve("wp_cuda_device_get_primary_context", &f.device_get_primary_context);
    resolve("wp_apic_get_cuda_graph", &f.apic_get_cuda_graph);
    resolve("wp_apic_get_cuda_graph_exec", &f.apic_get_cuda_graph_exec);
    resolve("wp_apic_launch", &f.apic_launch);
    resolve.Optional("wp_apic_load_graph_ex", &f.apic_load_graph_ex);
    if (is_cuda_enabled() == 0) {
      throw Error(LP_WRONG_DEVICE, "Warp " + version_ + " in '" + folder_ +
                                       "' was built without CUDA; install a warp-lang wheel that "
                                       "has it, or export the policy with device=cpu.");
    }
    if (init(nullptr) != 0 || device_get_count() == 0) {
      throw Error(LP_WRONG_DEVICE, "Warp " + version_ + " in '" + folder_ +
                                       "' finds no usable GPU, see its lines on stderr; update the "
                                       "NVIDIA driver to one that it supports.");
    }
    return f;
  }();
  return functions;
}

std::string WarpLibrary::FindHeaders() const {
  const char* named = std::getenv(kHeadersVariable);
  const bool is_named = named != nullptr && named[0] != '\0';
  const fs::path folder =
      is_named ? fs::path(named) : (fs::path(folder_) / ".." / "native").lexically_normal();
  std::error_code ignored;
  if (fs::exists(folder / kHeaderName, ignored)) return folder.string();
  throw Error(LP_NO_WARP,
              "Warp's headers, which compiling a segment's source takes, were not found: "
              "there is no '" +
                  (folder / kHeaderName).string() + "'" +
                  (is_named ? " (" + std::string(kHeadersVariable) + ")" : "") + "; set " +
                  kHeadersVariable + " to the folder 'warp/native' of the same Warp release.");
}

const WarpLibrary& WarpLibrary::Get() {
  ExpectNotForked(LP_NO_WARP, "Warp's runtime");
  static const WarpLibrary* const library = new WarpLibrary();
  return *library;
}

}  // namespace leapp_policy
