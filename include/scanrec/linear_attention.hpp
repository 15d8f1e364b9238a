// SPDX-License-Identifier: BSD-3-Clause
// Linear attention with gates and the delta rule: recurrences whose state is a matrix per head.
//
//     S[t] = a[t] S[t-1] + k[t] v[t]^T                                     without beta
//     S[t] = a[t] S[t-1] + beta[t] k[t] (v[t] - (a[t] S[t-1])^T k[t])^T    delta rule
//     o[t] = scale S[t]^T q[t]
//
// S[t] has dk rows and dv columns. a[t] is 1, a gate per head, or a diagonal matrix: a gate per key
// channel. These are the recurrences of linear attention, retention, Mamba-2, gated linear
// attention, DeltaNet, gated DeltaNet and Kimi Delta Attention (docs/linear_attention.md).
#pragma once

#if defined(__CUDACC__)
#error "scanrec: <scanrec/linear_attention.hpp> is for CPUs and .cpp files"
#endif

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/linear_attention_adjoint_driver.hpp>
#include <scanrec/detail/cpu/linear_attention_driver.hpp>
#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/linear_attention_arrays.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Linear attention; V is the compute type, float or double. To process a sequence in several
/// calls, pass the final state of each as the initial state of the next, or pass the same
/// linear_attention_stream to all.
///
/// Shapes   linear_attention_arrays. out: (batch, time, dv, the larger number of heads of query and
///          value). Any strides, in any element types whose compute type is V; contiguous channels
///          are fastest. out may be absent if only states are wanted.
/// Bits     The results have the same bits on `sequential` and on `tiled` with any number of
///          threads. Steps are computed in chunks of 32, counted from the first step of each
///          sequence. So a sequence of a packed batch has the bits that it has alone. With a
///          linear_attention_stream, calls of any lengths have the bits of a single call. Without
///          one, a sequence must be cut at multiples of 32 steps, and states must be stored in V.
///          Passing `states` changes bits only if a reset is not at a multiple of 32 steps.
/// NaN      never reaches an earlier step, another head, or a step after a reset.
/// Aliasing out may be value, and final_state may be initial_state: same pointer, strides and type.
/// Memory   per thread: at most 256 KiB of states, or one state if that is larger, and 32 rows of
///          each array; gates per key: 200 dk numbers more.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     per step and head 2 dk dv + 16 (dk + dv) multiply-adds; delta rule: 3 dk dv + 32 (dk +
///          dv). Each further query head of a state adds dk dv + 16 (dk + dv). Gates per key add
///          dk exponentials and 13 dk multiplications; delta rule: 22 dk.
/// Source   docs/linear_attention.md.
template <runs_rows Backend, class V>
void linear_attention(const Backend& on, const linear_attention_arrays<V>& arrays,
                      const std::type_identity_t<stored_sequence<V>>& out,
                      const std::type_identity_t<linear_attention_options<V>>& options = {}) {
  const auto p = detail::make_linear_attention(arrays, out, options);
  detail::run_rows<detail::linear_attention_run, detail::row_lanes<Backend, V>>(
      "linear_attention", p, detail::workers_of(on));
}
template <class V>
void linear_attention(const linear_attention_arrays<V>& arrays,
                      const std::type_identity_t<stored_sequence<V>>& out,
                      const std::type_identity_t<linear_attention_options<V>>& options = {}) {
  linear_attention(tiled{}, arrays, out, options);
}

/// The adjoint of linear_attention: computes the gradients of all arrays and of the initial state
/// from out_grad and options.final_grad. The forward call stores nothing for it.
///
/// Shapes   as linear_attention; an absent out_grad counts as 0.
/// Bits     The results have the same bits for any number of threads. Gradients that several heads
///          share are summed in the order of heads. On `sequential`, the last bits of the gradients
///          of gate and beta may differ, and with `normalise` also those of query and key.
/// Memory   per thread: one state per segment of the sequence and one per 32 steps of a segment;
///          delta rule: dv numbers per step of a segment. A segment has at least 256 steps, and as
///          many as have about 1 MiB of states, or one interval of `states`. Segments of long
///          sequences are longer, up to 4096 steps. If heads share queries or keys whose gradients
///          are not stored in V, also these gradients in V. Gates per key: 430 dk numbers more.
///          With fewer heads than threads, each head instead of each thread has one state per
///          segment, and for some segments two states per 32 steps and, with the delta rule, 2 dv
///          numbers per step. The latter take at most 1 MiB per thread, or belong to one segment.
/// Aliasing No two arrays may overlap if one of them is written.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     about three times that of linear_attention, and a recomputation of states for sequences
///          longer than a segment, unless options.states has them. With fewer heads than threads, a
///          head may be divided, which computes some matrices more than once.
/// Source   docs/linear_attention.md.
template <runs_rows Backend, class V>
void linear_attention_vjp(
    const Backend& on, const linear_attention_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const V>>& out_grad,
    const std::type_identity_t<linear_attention_gradients<V>>& gradients,
    const std::type_identity_t<linear_attention_vjp_options<V>>& options = {}) {
  const auto p = detail::make_linear_attention_vjp(arrays, out_grad, gradients, options);
  detail::run_rows<detail::linear_attention_vjp_run, detail::row_lanes<Backend, V>>(
      "linear_attention_vjp", p, detail::workers_of(on));
}
template <class V>
void linear_attention_vjp(
    const linear_attention_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const V>>& out_grad,
    const std::type_identity_t<linear_attention_gradients<V>>& gradients,
    const std::type_identity_t<linear_attention_vjp_options<V>>& options = {}) {
  linear_attention_vjp(tiled{}, arrays, out_grad, gradients, options);
}

/// Bytes of workspace that a linear_attention call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t linear_attention_workspace_bytes(
    const Backend& on, const linear_attention_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<V>>& out,
    const std::type_identity_t<linear_attention_options<V>>& options = {}) {
  const auto p = detail::make_linear_attention(arrays, out, options);
  return detail::rows_bytes<detail::linear_attention_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}
/// Bytes of workspace that a linear_attention_vjp call with these arguments needs.
template <runs_rows Backend, class V>
[[nodiscard]] std::int64_t linear_attention_vjp_workspace_bytes(
    const Backend& on, const linear_attention_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const V>>& out_grad,
    const std::type_identity_t<linear_attention_gradients<V>>& gradients,
    const std::type_identity_t<linear_attention_vjp_options<V>>& options = {}) {
  const auto p = detail::make_linear_attention_vjp(arrays, out_grad, gradients, options);
  return detail::rows_bytes<detail::linear_attention_vjp_run, detail::row_lanes<Backend, V>>(
      p, detail::workers_of(on).threads);
}

}  // namespace scanrec::inline SCANREC_ABI
