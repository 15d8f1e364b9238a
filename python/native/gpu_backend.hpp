// SPDX-License-Identifier: BSD-3-Clause
// The calls for GPUs run on the backend `cuda::automatic`, in memory that the caller lends.
#pragma once

#include <cstdint>
#include <new>

#include <scanrec/cuda/scan.cuh>
#include <scanrec/cuda/selective_scan.cuh>

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Whether QRNN pooling has a kernel for every kind, or one that chooses when it runs. Kernels for
/// GPUs are slower where gradients are absent that a cell could have.
inline constexpr bool kernel_per_kind = true;
/// Whether kernels are to be small.
inline constexpr bool compact = false;

/// Whether one kernel of QRNN pooling serves calls that keep states and calls that do not: a test
/// per step is little beside its activations, and half the kernels take half as long to compile.
inline constexpr bool kernel_keeps_if_given = true;

/// `cuda::automatic`, whose workspace is allocated once a call is planned; or no more than the
/// checks that come before it.
struct queued : cuda::automatic {
  gpu_queue* queue = nullptr;
  bool check_only = false;

  /// Device memory for a call. Calls of one request share it: the stream runs one after the other.
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

/// A forward selective scan needs no workspace; its adjoint does.
template <class V, class OutGrad>
void selective_scan_vjp(const queued& on, const selective_arrays<V>& arrays,
                        const OutGrad& out_grad, const selective_gradients<V>& gradients,
                        const selective_vjp_options<V>& options) {
  const auto p = cuda::detail::selective_vjp_of(arrays, out_grad, gradients, options);
  const std::int64_t bytes = cuda::detail::selective_vjp_layout<V>(p, nullptr).bytes;
  cuda::detail::run_selective_vjp(p, on.stream, on.memory_of(bytes));
}

/// The backend of a call, for arrays of T, or of a selective scan.
template <class T>
queued backend_of(const call& c) {
  return {{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)}, c.queue, c.check_only};
}
inline queued backend_of(const selective_call& c) {
  return {{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)}, c.queue};
}

}  // namespace scanrec::native::SCANREC_LEVEL
