// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace leapp_policy {

// Handle of a graph inside Warp.
struct WarpGraph;

// Warp's record of one module, as its loader wants it.
struct WarpModuleBytes {
  const char* filename;
  const void* data;
  size_t size;
};

// The functions of warp.so and warp-clang.so that the runtime calls, by Warp's own names without
// the "wp_" prefix. Declared here from their documented signatures; no Warp header is needed. What
// a release may lack is null there.
struct WarpFunctions {
  const char* (*version)();
  const char* (*get_error_string)();
  const void* (*cpu_block_runtime_get_api)();  // since 1.18
  WarpGraph* (*apic_load_graph_from_bytes)(void* context, const void* data, size_t size,
                                           const WarpModuleBytes* modules, uint32_t num_modules,
                                           int device_type);  // since 1.19
  // Resolved where there is no loading from bytes, as load_obj below.
  WarpGraph* (*apic_load_graph)(void* context, const char* path, int device_type);
  void (*apic_destroy_graph)(WarpGraph* graph);
  int (*apic_get_num_params)(WarpGraph* graph);
  const char* (*apic_get_param_name)(WarpGraph* graph, int index);
  size_t (*apic_get_param_size)(WarpGraph* graph, const char* name);
  void* (*apic_get_param_ptr)(WarpGraph* graph, const char* name);
  int (*apic_get_num_kernels)(WarpGraph* graph);
  const char* (*apic_get_kernel_key)(WarpGraph* graph, int index);
  const char* (*apic_get_kernel_module_hash)(WarpGraph* graph, int index);
  const char* (*apic_get_kernel_module_binary_filename)(WarpGraph* graph, int index);
  const char* (*apic_get_kernel_forward_name)(WarpGraph* graph, int index);
  const char* (*apic_get_kernel_backward_name)(WarpGraph* graph, int index);
  void (*apic_register_loaded_cpu_kernel)(WarpGraph* graph, const char* key, const char* hash,
                                          void* forward, void* backward);
  bool (*apic_cpu_replay_graph)(WarpGraph* graph);
  const void* (*apic_get_recording_state)();

  const char* (*warp_clang_version)();
  int (*llvm_set_cpu_block_runtime)(const void* api);  // since 1.18
  int (*load_obj_from_bytes)(const void* data, size_t size, const char* name,
                             bool legacy_linker);  // since 1.19
  int (*load_obj)(const char* path, const char* name, bool legacy_linker);
  int (*unload_obj)(const char* name);
  uint64_t (*lookup)(const char* name, const char* function);
};

// What a GPU needs beside them.
struct WarpCudaFunctions {
  // Since 1.19: compiles the source of modules whose image is missing.
  WarpGraph* (*apic_load_graph_ex)(void* context, const char* path, int device_type,
                                   const char* include_folder);
  int (*device_get_arch)(int device);
  void* (*device_get_primary_context)(int device);
  void* (*apic_get_cuda_graph)(WarpGraph* graph);
  void* (*apic_get_cuda_graph_exec)(WarpGraph* graph);
  bool (*apic_launch)(WarpGraph* graph, void* stream);
};

// Warp's native libraries, opened once per process and never closed: they own threads' fibers and
// JIT-compiled code that may be referred to until the process ends. When the process already has
// them (Python's warp), those are used.
class WarpLibrary {
 public:
  // Finds, opens and binds the libraries on the first call. Thread-safe.
  //
  // Throws Error(LP_NO_WARP) that lists every place looked at; a later call looks again.
  static const WarpLibrary& Get();

  const WarpFunctions& functions() const { return functions_; }
  // Lets Warp start CUDA, once; a CPU segment does without. The driver must have been opened before
  // (cuda::Driver), so that a machine without one gets our sentence.
  //
  // Throws Error(LP_WRONG_DEVICE) when this Warp was built without CUDA or cannot use the GPU.
  const WarpCudaFunctions& EnableCuda() const;

  // The headers that the source of a CUDA module includes: LEAPP_POLICY_WARP_INCLUDE_DIR, else
  // "native" beside folder().
  //
  // Throws Error(LP_NO_WARP) where they are not.
  std::string FindHeaders() const;

  const std::string& version() const { return version_; }  // "1.19.0"
  const std::string& folder() const { return folder_; }    // where both libraries lie

  // Held while a graph is loaded: Warp keeps one error text for the whole process.
  std::mutex& load_mutex() const { return load_mutex_; }

 private:
  WarpLibrary();
  void BindBlockRuntime(const std::string& core, const std::string& clang) const;

  WarpFunctions functions_{};
  void* core_ = nullptr;  // handle of warp.so
  std::string version_;
  std::string folder_;
  mutable std::mutex load_mutex_;
};

}  // namespace leapp_policy
