// SPDX-License-Identifier: BSD-3-Clause
// Causal depthwise convolutions along time: the short filters in front of the scans of Mamba,
// RecurrentGemma, gated delta nets and other recurrent models.
//
//     y[t] = f(bias + sum over k < width of weight[width - 1 - k] x[t - k])
//
// Every channel has its own `width` weights, the taps. f is the identity or SiLU.
#pragma once

#if defined(__CUDACC__)
#error "scanrec: <scanrec/causal_conv1d.hpp> is for CPUs and .cpp files"
#endif

#include <cstdint>
#include <type_traits>

#include <scanrec/causal_conv1d_arrays.hpp>
#include <scanrec/detail/cpu/causal_conv1d_driver.hpp>
#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/problem/causal_conv1d.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A causal depthwise convolution; V is the compute type, float or double. To process a stream in
/// several calls, pass the final state of each call as the initial state of the next.
///
/// Shapes   x, out: (batch, time, channel), with any strides, in any element types whose compute
///          type is V. weight: (channel, taps), with the taps on the `group` axis. bias: (channel).
///          Initial and final state: (batch, time, channel) with taps - 1 steps or more. out may be
///          absent if only the final state is wanted.
/// Bits     The results have the same bits on `sequential` and on `tiled` with any number of
///          threads. A stream split into several calls has the bits of a single call if its states
///          have the type of x.
/// Aliasing final_state may be initial_state: same pointer, strides and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Error    (taps + 1) u (|bias| + sum of |weight x|), where u is the unit roundoff of V. SiLU adds
///          the error of simd::sigmoid, and storing 16-bit outputs adds their rounding.
/// Cost     x is read once and out is written once; one fused multiply-add per tap and element.
template <runs_rows Backend, class V>
void causal_conv1d(const Backend& on, const causal_conv1d_arrays<V>& arrays,
                   const std::type_identity_t<stored_sequence<V>>& out,
                   const std::type_identity_t<causal_conv1d_options<V>>& options = {}) {
  const auto p = detail::make_causal_conv1d(arrays, out, options);
  detail::run_rows<detail::conv1d_forward_run, detail::row_lanes<Backend, V>>(
      "causal_conv1d", p, detail::workers_of(on));
}
template <class V>
void causal_conv1d(const causal_conv1d_arrays<V>& arrays,
                   const std::type_identity_t<stored_sequence<V>>& out,
                   const std::type_identity_t<causal_conv1d_options<V>>& options = {}) {
  causal_conv1d(tiled{}, arrays, out, options);
}

/// The adjoint of causal_conv1d: computes the gradients of x, weight, bias and initial state from
/// out_grad and options.final_grad. With SiLU it recomputes the arguments of SiLU, so the forward
/// call stores nothing for the adjoint.
///
/// Shapes   as causal_conv1d; an absent out_grad counts as 0.
/// Bits     The results have the same bits for any number of threads. Gradients of weight and bias
///          are summed in a fixed order: up to 64 steps in V, then in double.
/// Memory   Buffers of one tile per thread. If a gradient of weight or bias is computed, also
///          taps + 1 doubles per channel of each part. A part is a range of steps and channels of
///          one sequence, usually with about 16384 elements or more.
/// Aliasing No two arrays may overlap if one of them is written.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     x and out_grad are read once and x_grad is written once.
template <runs_rows Backend, class V>
void causal_conv1d_vjp(const Backend& on, const causal_conv1d_arrays<V>& arrays,
                       const std::type_identity_t<stored_sequence<const V>>& out_grad,
                       const std::type_identity_t<causal_conv1d_gradients<V>>& gradients,
                       const std::type_identity_t<causal_conv1d_vjp_options<V>>& options = {}) {
  const auto p = detail::make_causal_conv1d_vjp(arrays, out_grad, gradients, options);
  detail::run_rows<detail::conv1d_vjp_run, detail::row_lanes<Backend, V>>("causal_conv1d_vjp", p,
                                                                          detail::workers_of(on));
}
template <class V>
void causal_conv1d_vjp(const causal_conv1d_arrays<V>& arrays,
                       const std::type_identity_t<stored_sequence<const V>>& out_grad,
                       const std::type_identity_t<causal_conv1d_gradients<V>>& gradients,
                       const std::type_identity_t<causal_conv1d_vjp_options<V>>& options = {}) {
  causal_conv1d_vjp(tiled{}, arrays, out_grad, gradients, options);
}

/// Bytes of workspace that a causal_conv1d call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t causal_conv1d_workspace_bytes(
    const Backend& on, const causal_conv1d_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<V>>& out,
    const std::type_identity_t<causal_conv1d_options<V>>& options = {}) {
  const auto p = detail::make_causal_conv1d(arrays, out, options);
  return detail::rows_bytes<detail::conv1d_forward_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}
/// Bytes of workspace that a causal_conv1d_vjp call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t causal_conv1d_vjp_workspace_bytes(
    const Backend& on, const causal_conv1d_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const V>>& out_grad,
    const std::type_identity_t<causal_conv1d_gradients<V>>& gradients,
    const std::type_identity_t<causal_conv1d_vjp_options<V>>& options = {}) {
  const auto p = detail::make_causal_conv1d_vjp(arrays, out_grad, gradients, options);
  return detail::rows_bytes<detail::conv1d_vjp_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}

}  // namespace scanrec::inline SCANREC_ABI
