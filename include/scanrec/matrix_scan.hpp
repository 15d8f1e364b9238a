// SPDX-License-Identifier: BSD-3-Clause
// matrix_scan, matrix_scan_vjp, matrix_scan_jvp: recurrences whose states are small vectors.
#pragma once

#include <concepts>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/call/linear.hpp>
#include <scanrec/detail/call/run.hpp>
#include <scanrec/matrix.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A view of matrices, mat<T, N>.
template <class V>
concept matrix_sequence =
    sequence<V> && detail::is_mat<typename detail::sequence_traits<V>::stored>;

/// state[t] = gate[t] state[t-1] + input[t], where states are vectors of N = 2, 3 or 4 numbers and
/// gates N x N matrices: second-order sections, Holt-Winters smoothing, small state spaces.
///
/// Shapes   gate: (batch, time, channel) of mat<T, N>; input, state: the same of vec<T, N>; zero
///          strides broadcast, so that one matrix serves all steps. initial_state, final_state:
///          (batch, channel) of vec. An element is contiguous: N * N numbers by rows, N numbers.
/// Aliasing state may be input, and final_state may be initial_state: same pointer, strides, type.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Error    as linear_scan, with sizes for numbers and more roundings per step: docs/numerics.md.
/// Cost     2 arrays read + 1 written; a broadcast gate is not read from memory again.
/// Source   Martin and Cundy, Parallelizing Linear Recurrent Neural Nets Over Sequence Length
///          (2018), for the composition of maps.
template <backend Backend, matrix_sequence Gate, sequence Input, writable_sequence_argument State>
void matrix_scan(const Backend& backend, const Gate& gate, const Input& input, const State& state,
                 const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan("matrix_scan", gate, input, state, options,
                           detail::run_on_backend(backend));
}
template <matrix_sequence Gate, sequence Input, writable_sequence_argument State>
void matrix_scan(const Gate& gate, const Input& input, const State& state,
                 const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
  matrix_scan(tiled{}, gate, input, state, options);
}

/// The adjoint of matrix_scan: from state_grad and final_grad, the gradients of gate, input and
/// initial state. ^H is the conjugate transpose, with conjugation::plain the transpose.
///
///     g[t] = state_grad[t] + gate[t+1]^H g[t+1]              input_grad[t] = g[t]
///     gate_grad[t] = g[t] state[t-1]^H                       initial_grad = gate[0]^H g[0]
///
/// Shapes   gate, gate_grad: (batch, time, channel) of mat<T, N>; state, state_grad, input_grad:
///          of vec<T, N>. `state` may be `none` if gate_grad is not asked for; `state_grad` may be
///          `none` if a gradient arrives only through options.final_grad. A gradient with zero
///          strides receives the sum over those axes, in a fixed order, in the wide type.
/// Aliasing input_grad may be state_grad, initial_grad may be final_grad (not sums). Nothing may
///          overlap state.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Cost     3 arrays read + 2 written; a gate_grad that is a sum writes nothing of length time.
/// Source   docs/adjoint.md.
template <backend Backend, matrix_sequence Gate, sequence_argument State,
          sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
void matrix_scan_vjp(
    const Backend& backend, const Gate& gate, const State& state, const StateGrad& state_grad,
    const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan_vjp("matrix_scan_vjp", gate, state, state_grad, gradients, options,
                               detail::run_on_backend(backend));
}
template <matrix_sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
void matrix_scan_vjp(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
  matrix_scan_vjp(tiled{}, gate, state, state_grad, gradients, options);
}

/// The tangent of matrix_scan:
///
///     state_tangent[t] = gate[t] state_tangent[t-1] + (gate_tangent[t] state[t-1] +
///     input_tangent[t])
///
/// Shapes   gate, gate_tangent: (batch, time, channel) of mat<T, N>; the others of vec<T, N>. A
///          tangent that is zero may be `none`; so may `state` when gate_tangent is; so may
///          `state_tangent` if options.final_tangent is given.
/// Aliasing state_tangent may be input_tangent, final_tangent may be initial_tangent.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Cost     4 arrays read + 1 written; with one tangent absent 2 + 1 or 3 + 1.
template <backend Backend, matrix_sequence Gate, sequence_argument State,
          sequence_argument GateTangent, sequence_argument InputTangent,
          writable_sequence_argument StateTangent>
void matrix_scan_jvp(
    const Backend& backend, const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan_jvp("matrix_scan_jvp", gate, state, gate_tangent, input_tangent,
                               state_tangent, options, detail::run_on_backend(backend));
}
template <matrix_sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void matrix_scan_jvp(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  matrix_scan_jvp(tiled{}, gate, state, gate_tangent, input_tangent, state_tangent, options);
}

}  // namespace scanrec::inline SCANREC_ABI
