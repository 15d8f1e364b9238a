// SPDX-License-Identifier: BSD-3-Clause
// Runs the calls for GPUs on the backend `cuda::automatic`, with workspaces from the caller's
// allocator.
#pragma once

#include <cstdint>
#include <new>

#include <scanrec/cuda/scan.cuh>
#include <scanrec/cuda/selective_scan.cuh>

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Whether each kind of QRNN pooling has its own kernel. Otherwise one kernel chooses the kind at
/// run time. On GPUs the shared kernel would be slower, since its cell has gradients that most
/// kinds lack.
inline constexpr bool kernel_per_kind = true;
/// Whether kernels are optimised for size instead of speed.
inline constexpr bool compact = false;

/// Whether one kernel of QRNN pooling serves both calls that store states and calls that do not.
/// Such a kernel tests at every step whether it stores states. The test costs little next to the
/// activations, and half as many kernels compile in half the time.
inline constexpr bool kernel_keeps_if_given = true;

/// The backend `cuda::automatic`. It allocates its workspace after a call is planned. With
/// `check_only`, a call only checks its arguments.
struct queued : cuda::automatic {
  gpu_queue* queue = nullptr;
  bool check_only = false;

  /// Device memory for a call. An entry point of the C interface may make several calls. They share
  /// the memory, since the stream runs them one after the other.
  [[nodiscard]] cuda::workspace memory_of(std::int64_t bytes) const {
    if (bytes > queue->bytes) {
      queue->memory = queue->given.allocate(queue->given.context, bytes);
      if (queue->memory == nullptr) throw std::bad_alloc();
      queue->bytes = bytes;
    }
    return {.data = queue->memory, .bytes = queue->bytes};
  }
};

template <class R>
void run_recurrence(queued on, const R& r, const problem& p) {
  if (on.check_only) return;
  const auto plan = plan_for(on, p);
  on.workspace = on.memory_of(plan.workspace_bytes);
  cuda::detail::check_workspace(p.call, on.workspace, plan.workspace_bytes);
  run_planned(on, plan, r, p);
}

/// The adjoint of a selective scan. It needs a workspace, unlike the forward scan.
template <class V, class OutGrad>
void selective_scan_vjp(const queued& on, const selective_arrays<V>& arrays,
                        const OutGrad& out_grad, const selective_gradients<V>& gradients,
                        const selective_vjp_options<V>& options) {
  const auto p = cuda::detail::selective_vjp_of(arrays, out_grad, gradients, options);
  const std::int64_t bytes = cuda::detail::selective_vjp_layout<V>(p, nullptr).bytes;
  cuda::detail::run_selective_vjp(p, on.stream, on.memory_of(bytes));
}

/// The backend of a call on arrays of T, and of a selective scan.
template <class T>
queued backend_of(const call& c) {
  return {{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)}, c.queue, c.check_only};
}
inline queued backend_of(const selective_call& c) {
  return {{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)}, c.queue};
}

}  // namespace scanrec::native::SCANREC_LEVEL
