// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, linear_scan_vjp, linear_scan_jvp: the calls and their contracts.
#pragma once

#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/problem/linear_scan.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

// ---- the calls --------------------------------------------------------------------------------

/// state[t] = gate[t] * state[t-1] + input[t], element-wise per group, batch and channel.
///
/// Or of small vectors: gates are then mat<T, N>, inputs and states vec<T, N>, N from 2 to 4, and
/// the product is that of matrix and vector; an element is contiguous, numbers by rows. For gates
/// or inputs that are given by logarithms: gated_scan with log_space.
///
/// Shapes   gate, input, state: (batch, time, channel), equal; any of the inputs may broadcast by
///          zero strides. `state` may be `none` if options.final_state is given: then nothing of
///          length `time` is written. initial_state, final_state: (batch, channel).
/// Units    gate is dimensionless; input and state share one unit.
/// Aliasing state may be input, and final_state may be initial_state: same pointer, strides, type.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Error    |state - exact| <= (1+eps)^L S[t] - s[t], docs/numerics.md; final_state is the last
///          computed state bit for bit, before it is rounded to a 16-bit storage type.
/// Cost     2 arrays read + 1 written; a broadcast gate is not read from memory again.
/// Source   Blelloch, Prefix Sums and Their Applications (1990), section 1.4.
template <backend Backend, class Gate, class Input, class State>
void linear_scan(const Backend& backend, const Gate& gate, const Input& input, const State& state,
                 const detail::options_for<scan_options, Gate>& options = {}) {
  if constexpr (detail::fits_linear_scan<Gate, Input, State>())
    detail::make_linear_scan("linear_scan", gate, input, state, options,
                             detail::run_on_backend(backend));
}
template <class Gate, class Input, class State>
void linear_scan(const Gate& gate, const Input& input, const State& state,
                 const detail::options_for<scan_options, Gate>& options = {}) {
  linear_scan(tiled{}, gate, input, state, options);
}

/// The adjoint of linear_scan: from state_grad and final_grad, the gradients of gate, input and
/// initial state.
///
///     g[t] = state_grad[t] + conj(gate[t+1]) * g[t+1]        input_grad[t] = g[t]
///     gate_grad[t] = g[t] * conj(state[t-1])                 initial_grad = conj(gate[0]) * g[0]
///
/// Shapes   gate, state, state_grad, gate_grad, input_grad: (batch, time, channel). `state` may be
///          `none` if gate_grad is not asked for; `state_grad` may be `none` if a gradient arrives
///          only through options.final_grad. A gradient with zero strides receives the sum over
///          those axes, in a fixed order, in the wide type; an empty sum is 0.
/// Aliasing input_grad may be state_grad, initial_grad may be final_grad (not sums). Nothing may
///          overlap state.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Error    as linear_scan, for g.
/// Cost     3 arrays read + 2 written; without gate_grad 2 + 1; a gate_grad that is a sum writes
///          nothing of length time. Never divides by the gate.
/// Source   docs/adjoint.md.
template <backend Backend, class Gate, class State, class StateGrad,
          detail::gradients_of_a_scan Gradients = detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(const Backend& backend, const Gate& gate, const State& state,
                     const StateGrad& state_grad, const Gradients& gradients,
                     const detail::options_for<vjp_options, Gate>& options = {}) {
  if constexpr (detail::fits_linear_scan_vjp<Gate, State, StateGrad>())
    detail::make_linear_scan_vjp("linear_scan_vjp", gate, state, state_grad, gradients, options,
                                 detail::run_on_backend(backend));
}
template <class Gate, class State, class StateGrad,
          detail::gradients_of_a_scan Gradients = detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(const Gate& gate, const State& state, const StateGrad& state_grad,
                     const Gradients& gradients,
                     const detail::options_for<vjp_options, Gate>& options = {}) {
  linear_scan_vjp(tiled{}, gate, state, state_grad, gradients, options);
}

/// The tangent of linear_scan:
///
///     state_tangent[t] = gate[t] * state_tangent[t-1]
///                        + (gate_tangent[t] * state[t-1] + input_tangent[t])
///
/// Shapes   all (batch, time, channel). A tangent that is zero may be `none`; so may `state` when
///          gate_tangent is; so may `state_tangent` if options.final_tangent is given.
/// Aliasing state_tangent may be input_tangent, final_tangent may be initial_tangent.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace.
/// Error    as linear_scan, with the parenthesis as its input.
/// Cost     4 arrays read + 1 written; with one tangent absent 2 + 1 or 3 + 1.
template <backend Backend, class Gate, class State, class GateTangent, class InputTangent,
          class StateTangent>
void linear_scan_jvp(const Backend& backend, const Gate& gate, const State& state,
                     const GateTangent& gate_tangent, const InputTangent& input_tangent,
                     const StateTangent& state_tangent,
                     const detail::options_for<jvp_options, Gate>& options = {}) {
  if constexpr (detail::fits_linear_scan_jvp<Gate, State, GateTangent, InputTangent,
                                             StateTangent>())
    detail::make_linear_scan_jvp("linear_scan_jvp", gate, state, gate_tangent, input_tangent,
                                 state_tangent, options, detail::run_on_backend(backend));
}
template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent>
void linear_scan_jvp(const Gate& gate, const State& state, const GateTangent& gate_tangent,
                     const InputTangent& input_tangent, const StateTangent& state_tangent,
                     const detail::options_for<jvp_options, Gate>& options = {}) {
  linear_scan_jvp(tiled{}, gate, state, gate_tangent, input_tangent, state_tangent, options);
}

// ---- descriptions of calls, without running them
// ---------------------------------------------------

/// The problem that the same call of linear_scan poses, for describe() and workspace_bytes().
/// Checks the arguments as the call does.
template <class Gate, class Input, class State>
[[nodiscard]] problem linear_scan_problem(
    const Gate& gate, const Input& input, const State& state,
    const detail::options_for<scan_options, Gate>& options = {}) {
  problem result;
  if constexpr (detail::fits_linear_scan<Gate, Input, State>())
    detail::make_linear_scan("linear_scan", gate, input, state, options,
                             [&](const auto&, const problem& p) { result = p; });
  return result;
}
/// The problem that the same call of linear_scan_vjp poses.
template <class Gate, class State, class StateGrad,
          detail::gradients_of_a_scan Gradients = detail::default_gradients<Gate, State, StateGrad>>
[[nodiscard]] problem linear_scan_vjp_problem(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const detail::options_for<vjp_options, Gate>& options = {}) {
  problem result;
  if constexpr (detail::fits_linear_scan_vjp<Gate, State, StateGrad>())
    detail::make_linear_scan_vjp("linear_scan_vjp", gate, state, state_grad, gradients, options,
                                 [&](const auto&, const problem& p) { result = p; });
  return result;
}
/// The problem that the same call of linear_scan_jvp poses.
template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent>
[[nodiscard]] problem linear_scan_jvp_problem(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const detail::options_for<jvp_options, Gate>& options = {}) {
  problem result;
  if constexpr (detail::fits_linear_scan_jvp<Gate, State, GateTangent, InputTangent,
                                             StateTangent>())
    detail::make_linear_scan_jvp("linear_scan_jvp", gate, state, gate_tangent, input_tangent,
                                 state_tangent, options,
                                 [&](const auto&, const problem& p) { result = p; });
  return result;
}

}  // namespace scanrec::inline SCANREC_ABI

#if !defined(__CUDACC__)
#include <scanrec/compiled.hpp>  // declares what is compiled elsewhere, if anything is
#endif
