// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for warp.so and warp-clang.so, one library under both names: it accepts every
// recording as one with two parameters ('q' of 56 bytes, 'tip' of 16) and one kernel in the module
// 'a.o', and counts what it was asked to load. So the fuzz target sees all of the runtime's own
// steps, and whether anything damaged came this far, without executing anything.
#include <cstddef>
#include <cstdint>
#include <cstring>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

struct Module {
  const char* filename;
  const void* data;
  size_t size;
};

uint64_t q[7];
uint64_t tip[2];
uint64_t loads = 0;
int graph;

bool IsQ(const char* name) { return std::strcmp(name, "q") == 0; }

}  // namespace

// Recordings and objects that were handed over so far.
FAKE_API uint64_t fake_warp_loads() { return loads; }

FAKE_API const char* wp_version() { return "1.19.0"; }
FAKE_API const char* wp_get_error_string() { return ""; }
FAKE_API const void* wp_cpu_block_runtime_get_api() { return &graph; }

FAKE_API void* wp_apic_load_graph_from_bytes(void*, const void*, size_t, const Module*, uint32_t,
                                             int) {
  ++loads;
  return &graph;
}

FAKE_API void wp_apic_destroy_graph(void*) {}
FAKE_API int wp_apic_get_num_params(void*) { return 2; }
FAKE_API const char* wp_apic_get_param_name(void*, int index) { return index == 0 ? "q" : "tip"; }
FAKE_API size_t wp_apic_get_param_size(void*, const char* name) {
  return IsQ(name) ? sizeof(q) : sizeof(tip);
}
FAKE_API void* wp_apic_get_param_ptr(void*, const char* name) { return IsQ(name) ? q : tip; }
FAKE_API int wp_apic_get_num_kernels(void*) { return 1; }
FAKE_API const char* wp_apic_get_kernel_key(void*, int) { return "kernel"; }
FAKE_API const char* wp_apic_get_kernel_module_hash(void*, int) { return "hash"; }
FAKE_API const char* wp_apic_get_kernel_module_binary_filename(void*, int) { return "a.o"; }
FAKE_API const char* wp_apic_get_kernel_forward_name(void*, int) { return "kernel"; }
FAKE_API const char* wp_apic_get_kernel_backward_name(void*, int) { return ""; }
FAKE_API void wp_apic_register_loaded_cpu_kernel(void*, const char*, const char*, void*, void*) {}
FAKE_API bool wp_apic_cpu_replay_graph(void*) { return true; }
FAKE_API const void* wp_apic_get_recording_state() { return nullptr; }

FAKE_API const char* wp_warp_clang_version() { return "1.19.0"; }
FAKE_API int wp_llvm_set_cpu_block_runtime(const void*) { return 1; }
FAKE_API int wp_load_obj_from_bytes(const void*, size_t, const char*, bool) {
  ++loads;
  return 0;
}
FAKE_API int wp_unload_obj(const char*) { return 0; }
FAKE_API uint64_t wp_lookup(const char*, const char*) {
  return reinterpret_cast<uintptr_t>(&graph);
}
