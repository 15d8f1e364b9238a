// SPDX-License-Identifier: BSD-3-Clause
// Selective scans, the recurrence of Mamba: steps whose sizes, inputs and outputs depend on the
// sequence, in one pass from arrays of channels to arrays of channels. The N states of a channel
// stay in registers.
//
//     step[t] = softplus(delta[t] + bias)                               (or delta[t] + bias)
//     x[t]    = exp(step[t] A) x[t-1] + step[t] B[t] u[t]               N states per channel
//     out[t]  = (sum_n C[t] x[t] + D u[t]) silu(z[t])                   complex A: 2 Re of the sum
#pragma once

#if defined(__CUDACC__)
#error \
    "scanrec: <scanrec/selective_scan.hpp> is for CPUs and .cpp files, as <scanrec/selective_arrays.hpp> is not"
#endif

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/selective_driver.hpp>
#include <scanrec/detail/problem/selective_scan.hpp>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A selective scan; V is the type of states: float, double, or std::complex of one of them.
///
/// Shapes    u, delta, z, out: (batch, time, channel), of any strides, time-contiguous ones too, in
///           any types that compute in V. a: (channel, group states); b, c: bc_view. out may be
///           absent where the final state or checkpoints are wanted alone.
/// Bits      for given shapes the same for any number of threads; those of `sequential`.
/// Aliasing  out may be u, delta or z, final_state may be initial_state: same pointer, strides,
///           type.
/// Throws    argument_error before anything is written; std::bad_alloc from the workspace.
/// Error     docs/selective_scan.md.
/// Cost      per element and state an exponential and four operations; u, delta and z read, out
///           written once; b and c once per 16 (double: 8) channels, mostly from cache.
/// Source    Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023).
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

/// The adjoint of selective_scan: from out_grad and options.final_grad, the gradients of all arrays
/// and of the initial state.
///
/// Shapes    as selective_scan; out_grad may be absent if a gradient arrives by final_grad alone.
/// Bits      the same for any number of threads, with checkpoints kept or recomputed;
///           sums over channels, time and sequences are taken in a fixed order, partly in the wide
///           type.
/// Memory    the states of 128 steps of 16 channels at a time, in cache; and if there are no
///           options.checkpoints, those of the call: 1/128 of (batch, time, channel, states).
/// Aliasing  u_grad may be u or out_grad, delta_grad may be delta, z_grad may be z, initial_grad
///           may be final_grad: same pointer, strides, type.
/// Throws    argument_error before anything is written; std::bad_alloc from the workspace.
/// Cost      per element and state an exponential and about twelve operations; without checkpoints
///           a forward pass more.
/// Source    docs/selective_scan.md.
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

/// Bytes of workspace that the same call of selective_scan needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t selective_scan_workspace_bytes(
    const Backend& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  const auto p = detail::make_selective_scan(arrays, out, options);
  return detail::rows_bytes<detail::selective_forward_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}
/// Bytes of workspace that the same call of selective_scan_vjp needs.
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
