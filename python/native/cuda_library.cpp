// SPDX-License-Identifier: BSD-3-Clause
// The C interface for GPUs. It queues calls in the caller's stream, with memory from the caller's
// allocator.
#include <cstdint>

#include <scanrec/c/scanrec_cuda.h>
#include <scanrec/detail/cuda/device.cuh>

#include "entry.hpp"

extern "C" const scanrec::native::kernels scanrec_kernels_gpu;

namespace scanrec::native {
namespace {

gpu_queue checked_queue(const char* name, const scanrec_cuda_queue* queue) {
  if (queue == nullptr) throw argument_error(name, "queue", "a pointer", "null");
  if (queue->allocate == nullptr)
    throw argument_error(name, "allocate", "a function", "a null pointer");
  return {*queue};
}

/// Checks the arguments of an entry point and queues its kernels. `Calls` is the member of
/// `scanrec_kernels_gpu` that holds the functions of this call, one per element type.
template <auto Calls, class Arrays>
int run_on_gpu(const scanrec_problem* problem, const Arrays* arrays,
               const scanrec_cuda_queue* queue) {
  return guarded([&] {
    request r(problem, arrays);
    gpu_queue in = checked_queue(call_of<Arrays>::name, queue);
    call c;
    c.queue = &in;
    r.template run<Calls>(c, scanrec_kernels_gpu, [&](void* data, std::int64_t bytes) {
      cuda::detail::clear(data, bytes, static_cast<cuda::stream_t>(queue->stream));
    });
  });
}

/// Like run_on_gpu, for selective scans. Their arrays already have the axes of the C++ interface.
template <auto Calls, class Arrays>
int run_selective_on_gpu(const char* name, const scanrec_selective_problem* problem,
                         const Arrays* arrays, const scanrec_cuda_queue* queue) {
  return guarded([&] {
    const scanrec_selective_problem& p = checked(name, problem, arrays);
    const auto run = call_for(name, scanrec_kernels_gpu.*Calls, p.dtype);
    gpu_queue in = checked_queue(name, queue);
    selective_call c;
    c.problem = p;
    c.queue = &in;
    run(c, *arrays);
  });
}

}  // namespace
}  // namespace scanrec::native

using namespace scanrec::native;

int scanrec_cuda_linear_scan(const scanrec_problem* problem, const scanrec_scan_arrays* arrays,
                             const scanrec_cuda_queue* queue) {
  return run_on_gpu<&kernels::linear_scan>(problem, arrays, queue);
}
int scanrec_cuda_linear_scan_vjp(const scanrec_problem* problem, const scanrec_vjp_arrays* arrays,
                                 const scanrec_cuda_queue* queue) {
  return run_on_gpu<&kernels::linear_scan_vjp>(problem, arrays, queue);
}
int scanrec_cuda_linear_scan_jvp(const scanrec_problem* problem, const scanrec_jvp_arrays* arrays,
                                 const scanrec_cuda_queue* queue) {
  return run_on_gpu<&kernels::linear_scan_jvp>(problem, arrays, queue);
}
int scanrec_cuda_gated_scan(const scanrec_problem* problem, const scanrec_gated_arrays* arrays,
                            const scanrec_cuda_queue* queue) {
  return run_on_gpu<&kernels::gated_scan>(problem, arrays, queue);
}
int scanrec_cuda_gated_scan_vjp(const scanrec_problem* problem,
                                const scanrec_gated_vjp_arrays* arrays,
                                const scanrec_cuda_queue* queue) {
  return run_on_gpu<&kernels::gated_scan_vjp>(problem, arrays, queue);
}
int scanrec_cuda_selective_scan(const scanrec_selective_problem* problem,
                                const scanrec_selective_arrays* arrays,
                                const scanrec_cuda_queue* queue) {
  return run_selective_on_gpu<&kernels::selective_scan>("selective_scan", problem, arrays, queue);
}
int scanrec_cuda_selective_scan_vjp(const scanrec_selective_problem* problem,
                                    const scanrec_selective_vjp_arrays* arrays,
                                    const scanrec_cuda_queue* queue) {
  return run_selective_on_gpu<&kernels::selective_scan_vjp>("selective_scan_vjp", problem, arrays,
                                                            queue);
}

const char* scanrec_cuda_last_error(void) { return last_error.whole.c_str(); }
const char* scanrec_cuda_last_error_argument(void) { return last_error.argument.c_str(); }
const char* scanrec_cuda_last_error_reason(void) { return last_error.reason.c_str(); }

int scanrec_cuda_c_version(void) { return SCANREC_C_VERSION; }
