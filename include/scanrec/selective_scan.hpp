// SPDX-License-Identifier: BSD-3-Clause
// Selective scans, the recurrence of Mamba, whose step sizes, B and C may differ from step to step.
// One pass reads inputs and writes outputs of shape (batch, time, channel); the N states of a
// channel stay in registers.
//
//     step[t] = softplus(delta[t] + bias)                               (or delta[t] + bias)
//     x[t]    = exp(step[t] A) x[t-1] + step[t] B[t] u[t]               N states per channel
//     out[t]  = (sum_n C[t] x[t] + D u[t]) silu(z[t])                   complex A: 2 Re of the sum
//
// With `intervals`, step[t] is multiplied by intervals[t] after softplus.
#pragma once

#if defined(__CUDACC__)
#error \
    "scanrec: <scanrec/selective_scan.hpp> is for CPUs and .cpp files; for GPUs include <scanrec/cuda/selective_scan.cuh>"
#endif

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/selective_driver.hpp>
#include <scanrec/detail/problem/selective_scan.hpp>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A selective scan; V is the type of the states: float, double, or std::complex of either.
///
/// Shapes   u, delta, z, out: (batch, time, channel), with any strides, including time-contiguous
///          ones, in any element types whose compute type is V's real type. a: (channel, states).
///          b, c: bc_view. out may be absent if only the final state or checkpoints are wanted.
/// Bits     The results have the same bits for any number of threads and with `sequential`.
/// Aliasing out may be u, delta or z, and final_state may be initial_state: same pointer, strides
///          and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Error    docs/selective_scan.md.
/// Cost     one exponential and four operations per element and state. u, delta and z are read once
///          and out is written once; b and c are read once per 16 channels (double: 8), mostly from
///          cache.
/// Source   Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023).
template <runs_rows Backend, class V>
void selective_scan(const Backend& on, const selective_arrays<V>& arrays,
                    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>& out,
                    const std::type_identity_t<selective_options<V>>& options = {}) {
  const auto p = detail::make_selective_scan(arrays, out, options);
  detail::run_rows<detail::selective_forward_run, detail::row_lanes<Backend, V>>(
      "selective_scan", p, detail::workers_of(on));
}
template <class V>
void selective_scan(const selective_arrays<V>& arrays,
                    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>& out,
                    const std::type_identity_t<selective_options<V>>& options = {}) {
  selective_scan(tiled{}, arrays, out, options);
}

/// The adjoint of selective_scan: computes the gradients of all arrays and of the initial state
/// from out_grad and options.final_grad.
///
/// Shapes   as selective_scan. out_grad may be absent if only options.final_grad has a gradient.
/// Bits     The results have the same bits for any number of threads, whether checkpoints are
///          passed or recomputed. Sums over channels, time and sequences are taken in a fixed
///          order. Partial sums, of up to 128 steps or a few packs of channels, are in V's real
///          type; they are added in the wide type (double for float).
/// Memory   each thread recomputes four states per channel (complex: two) at a time, for 128 steps
///          of 16 channels (double: 8), in cache. Without options.checkpoints, the call also
///          allocates checkpoints: checkpoint_extents() of (batch, time, channel, states).
/// Aliasing u_grad may be u or out_grad, delta_grad may be delta, z_grad may be z, and initial_grad
///          may be final_grad: same pointer, strides and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     one exponential and about twelve operations per element and state, plus a forward pass
///          if there are no checkpoints.
/// Source   docs/selective_scan.md.
template <runs_rows Backend, class V>
void selective_scan_vjp(
    const Backend& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  const auto p = detail::make_selective_scan_vjp(arrays, out_grad, gradients, options);
  detail::run_rows<detail::selective_vjp_run, detail::row_lanes<Backend, V>>(
      "selective_scan_vjp", p, detail::workers_of(on));
}
template <class V>
void selective_scan_vjp(
    const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  selective_scan_vjp(tiled{}, arrays, out_grad, gradients, options);
}

/// Bytes of workspace that a selective_scan call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t selective_scan_workspace_bytes(
    const Backend& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  const auto p = detail::make_selective_scan(arrays, out, options);
  return detail::rows_bytes<detail::selective_forward_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}
/// Bytes of workspace that a selective_scan_vjp call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t selective_scan_vjp_workspace_bytes(
    const Backend& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  const auto p = detail::make_selective_scan_vjp(arrays, out_grad, gradients, options);
  return detail::rows_bytes<detail::selective_vjp_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}

}  // namespace scanrec::inline SCANREC_ABI
