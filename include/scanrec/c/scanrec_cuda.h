// SPDX-License-Identifier: BSD-3-Clause
// The C interface of libscanrec_cuda: the calls of scanrec.h on arrays in the memory of a GPU,
// queued in a stream.
#ifndef SCANREC_C_SCANREC_CUDA_H
#define SCANREC_C_SCANREC_CUDA_H

#include <scanrec/c/scanrec.h>

#if defined(__cplusplus)
extern "C" {
#endif

/// Allocates so many bytes of the GPU's memory, aligned to 16, for work that is queued in the
/// stream until the call returns; null: out of memory. Most calls allocate once, some not at all.
typedef void* (*scanrec_cuda_allocate)(void* context, int64_t bytes);

/// Where a call is queued. The GPU of the stream is the current one of the calling thread.
typedef struct scanrec_cuda_queue {
  void* stream;  ///< a cudaStream_t; null: the default stream
  scanrec_cuda_allocate allocate;
  void* context;  ///< passed to it
} scanrec_cuda_queue;

/// The calls of scanrec.h. All pointers to elements are the GPU's; of the problem, what concerns
/// threads is for CPUs alone. A call waits for nothing: errors of kernels at work are reported by
/// the CUDA runtime, to whoever asks next.
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

/// What was wrong with the last of these calls in this thread that did not return SCANREC_OK.
SCANREC_C_API const char* scanrec_cuda_last_error(void);
SCANREC_C_API const char* scanrec_cuda_last_error_argument(void);
SCANREC_C_API const char* scanrec_cuda_last_error_reason(void);

/// SCANREC_C_VERSION of the library.
SCANREC_C_API int scanrec_cuda_c_version(void);

#if defined(__cplusplus)
}
#endif

#endif
