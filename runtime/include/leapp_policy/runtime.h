/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C interface of the segment runtime: open a captured Warp segment from memory, run it, close it.
 *
 * Every adapter (ONNX Runtime, Python's ctypes, a robot's control loop) can live on this header
 * alone. It needs neither Python nor torch in the process; Warp's native libraries (warp.so and
 * warp-clang.so) are found and opened at run time by the first lp_segment_open().
 *
 * Errors: a function returns an lp_status; on anything but LP_OK, lp_last_error() gives one
 * sentence for the calling thread. No C++ exception leaves this interface.
 *
 * Trust: a bundle is machine code. One whose metadata record its SHA-256 is executed only when it
 * is the bundle that was exported; one without a record (an artifact that LEAPP wrote) is checked
 * in form only, and damage inside its code cannot be seen.
 *
 * Threads: any function may be called from any thread. Runs of one segment are serialised by the
 * segment; runs of different segments are independent. Closing a segment that is running is an
 * error of the caller.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LP_API __attribute__((visibility("default")))
#else
#define LP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a signature or a struct below changes in an incompatible way. */
#define LP_ABI_VERSION 1

typedef enum lp_status {
  LP_OK = 0,
  LP_INVALID_ARGUMENT =
      1,                /* a null pointer, a wrong count, a wrong buffer size, an unknown device */
  LP_BAD_METADATA = 2,  /* the runtime metadata is no JSON or breaks its schema */
  LP_BAD_BUNDLE = 3,    /* the bundle is damaged or does not belong to the metadata */
  LP_WRONG_DEVICE = 4,  /* the segment was exported for another device family */
  LP_WRONG_VERSION = 5, /* the segment was exported with another Warp release */
  LP_WRONG_CPU = 6,     /* the segment needs another architecture or instruction set */
  LP_NO_WARP = 7,       /* Warp's native libraries were not found or cannot be used */
  LP_LOAD_FAILED = 8,   /* Warp refused the bundle */
  LP_RUN_FAILED = 9,    /* the replay failed; the outputs are undefined */
  LP_INTERNAL = 10      /* out of memory, or a defect of this library */
} lp_status;

/* An open segment. Owned by the caller from lp_segment_open() to lp_segment_close(). */
typedef struct lp_segment lp_segment;

/* Borrowed memory on the segment's device: read only, and writable. `size` is in bytes. */
typedef struct lp_const_buffer {
  const void* data;
  uint64_t size;
} lp_const_buffer;

typedef struct lp_buffer {
  void* data;
  uint64_t size;
} lp_buffer;

/* The LP_ABI_VERSION that the library was built with. */
LP_API uint32_t lp_abi_version(void);

/*
 * The sentence of the last failed call on this thread; empty when none failed. Never NULL; valid
 * until the next failing call on this thread.
 */
LP_API const char* lp_last_error(void);

/*
 * Loads Warp's native libraries if need be and describes them as JSON:
 * {"version": "1.19.0", "folder": "/…/warp/bin"}. `*out` stays valid until the next call on this
 * thread.
 */
LP_API lp_status lp_warp_describe(const char** out);

/*
 * Opens a segment. All checks (digest, device, Warp version, instruction set) come before anything
 * of the bundle is executed.
 *
 * bundle, bundle_size:    WRPB version 1; borrowed for the call only.
 * runtime_metadata_json:  NUL-terminated UTF-8; borrowed for the call only.
 * device:                 "cpu", "cuda" or "cuda:<index>".
 * out:                    receives the segment, or NULL on failure.
 */
LP_API lp_status lp_segment_open(const void* bundle, uint64_t bundle_size,
                                 const char* runtime_metadata_json, const char* device,
                                 lp_segment** out);

/*
 * Runs the segment once.
 *
 * Buffers are in the order of the metadata, dense, row major, with exactly the recorded number of
 * bytes, in memory of the segment's device. A zero-sized buffer may have a null pointer.
 *
 * On the CPU `stream` must be NULL, and the outputs are complete when the call returns. On CUDA it
 * is a cudaStream_t of that GPU (NULL: the legacy default stream); the work is put on it and the
 * call returns, so buffers must stay alive until the stream has come that far. A stream that is
 * being captured takes the work into the caller's CUDA graph. Runs of one segment on several
 * streams wait for each other, captured ones do not: launch such graphs on one stream.
 */
LP_API lp_status lp_segment_run(lp_segment* segment, const lp_const_buffer* inputs,
                                size_t num_inputs, const lp_buffer* outputs, size_t num_outputs,
                                void* stream);

/*
 * JSON about an open segment: segment, device, inputs and outputs (name, dtype, shape, num_bytes),
 * kernels, modules, warp, recorded. Valid until the segment is closed; NULL for a NULL segment.
 */
LP_API const char* lp_segment_describe(const lp_segment* segment);

/* Closes a segment and unloads its code. NULL is allowed. */
LP_API void lp_segment_close(lp_segment* segment);

#ifdef __cplusplus
}
#endif
