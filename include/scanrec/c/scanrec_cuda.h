// SPDX-License-Identifier: BSD-3-Clause
// The C interface of libscanrec_cuda: the scans of scanrec.h on arrays in GPU memory, queued in a
// CUDA stream.
#ifndef SCANREC_C_SCANREC_CUDA_H
#define SCANREC_C_SCANREC_CUDA_H

#include <scanrec/c/scanrec.h>

#if defined(__cplusplus)
extern "C" {
#endif

/// Allocates `bytes` bytes of GPU memory, aligned to 16 bytes, and returns null if out of memory.
/// Only the work that this call queues in the stream uses the memory. After the call has returned,
/// work that is queued later in this stream may reuse it. Most calls allocate once or not at all.
typedef void* (*scanrec_cuda_allocate)(void* context, int64_t bytes);

/// The stream and the allocator of a call. The GPU of the stream must be the current GPU of the
/// calling thread.
typedef struct scanrec_cuda_queue {
  void* stream;  ///< a cudaStream_t; null: the default stream
  scanrec_cuda_allocate allocate;
  void* context;  ///< passed to allocate
} scanrec_cuda_queue;

/// The scans of scanrec.h. All pointers to elements are device pointers. `threads` (0 or more),
/// `executor` and `pool` of the problem have no effect. A call does not synchronise: the CUDA
/// runtime reports errors of running kernels in a later runtime call.
SCANREC_C_API int scanrec_cuda_linear_scan(const scanrec_problem* problem,
                                           const scanrec_scan_arrays* arrays,
                                           const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_linear_scan_vjp(const scanrec_problem* problem,
                                               const scanrec_vjp_arrays* arrays,
                                               const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_linear_scan_jvp(const scanrec_problem* problem,
                                               const scanrec_jvp_arrays* arrays,
                                               const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_gated_scan(const scanrec_problem* problem,
                                          const scanrec_gated_arrays* arrays,
                                          const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_gated_scan_vjp(const scanrec_problem* problem,
                                              const scanrec_gated_vjp_arrays* arrays,
                                              const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_selective_scan(const scanrec_selective_problem* problem,
                                              const scanrec_selective_arrays* arrays,
                                              const scanrec_cuda_queue* queue);
SCANREC_C_API int scanrec_cuda_selective_scan_vjp(const scanrec_selective_problem* problem,
                                                  const scanrec_selective_vjp_arrays* arrays,
                                                  const scanrec_cuda_queue* queue);

/// The message, argument and reason of this thread's last scanrec_cuda call that did not return
/// SCANREC_OK. They have the forms of scanrec.h.
SCANREC_C_API const char* scanrec_cuda_last_error(void);
SCANREC_C_API const char* scanrec_cuda_last_error_argument(void);
SCANREC_C_API const char* scanrec_cuda_last_error_reason(void);

/// The SCANREC_C_VERSION of the loaded libscanrec_cuda.
SCANREC_C_API int scanrec_cuda_c_version(void);

#if defined(__cplusplus)
}
#endif

#endif
