// SPDX-License-Identifier: BSD-3-Clause
// Causal depthwise convolutions along time: the short filters in front of the scans of Mamba,
// RecurrentGemma, gated delta nets and other recurrent models.
//
//     y[t] = f(bias + sum over k < width of weight[width - 1 - k] x[t - k])
//
// Every channel has its own taps. f is the identity or SiLU.
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

/// A causal depthwise convolution; V is float or double. A stream is a sequence of calls, each of
/// which takes the final state of the call before as its initial state.
///
/// Shapes    x, out: (batch, time, channel), of any strides, in any types that compute in V.
///           weight: (channel, taps), taps on the `group` axis. bias: (channel). States: (batch,
///           time, channel) with taps - 1 steps or more. out may be absent if only the final state
///           is wanted.
/// Bits      the same for any number of threads, and those of `sequential`; for a stream in any
///           pieces, too, if its states have the type of x.
/// Aliasing  final_state may be initial_state: same pointer, strides, type.
/// Throws    argument_error before anything is written; std::bad_alloc from the workspace.
/// Error     (taps + 1) u (|bias| + sum of |weight x|), u being the unit roundoff of V; SiLU adds
///           the error of simd::sigmoid.
/// Cost      x read once, out written once; one fused multiply-add per tap and element.
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

/// The adjoint of causal_conv1d: from out_grad and options.final_grad, the gradients of all arrays
/// and of the initial state. With SiLU the sums are recomputed; the forward call keeps nothing.
///
/// Shapes    as causal_conv1d; an absent out_grad counts as 0.
/// Bits      the same for any number of threads. Gradients of weights are sums over at most 64
///           steps in V, and over these in double, in a fixed order.
/// Memory    taps + 1 doubles per channel for every sequence and every 16384 elements or more.
/// Aliasing  none.
/// Throws    argument_error before anything is written; std::bad_alloc from the workspace.
/// Cost      x and out_grad read once, x_grad written once.
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

/// Bytes of workspace that the same call of causal_conv1d needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t causal_conv1d_workspace_bytes(
    const Backend& on, const causal_conv1d_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<V>>& out,
    const std::type_identity_t<causal_conv1d_options<V>>& options = {}) {
  const auto p = detail::make_causal_conv1d(arrays, out, options);
  return detail::rows_bytes<detail::conv1d_forward_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}
/// Bytes of workspace that the same call of causal_conv1d_vjp needs.
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
