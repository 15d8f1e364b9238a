// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, its adjoint linear_scan_vjp and its tangent linear_scan_jvp.
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

/// state[t] = gate[t] * state[t-1] + input[t], element-wise, for every group, batch and channel.
///
/// Elements may also be small vectors, with N from 2 to 4: inputs and states are vec<T, N>, gates
/// are mat<T, N>, and the product is matrix times vector. Each element is contiguous, and matrices
/// are row-major. If gates or inputs are stored as logarithms, use gated_scan with log_space.
///
/// Shapes   gate, input and state have one shape, (batch, time, channel); zero strides broadcast
///          gate and input. initial_state, final_state: (batch, channel). `state` may be `none` if
///          options.final_state is present; the call then writes no array of length `time`.
/// Units    gate is dimensionless; input and state share one unit.
/// Aliasing state may be input, and final_state may be initial_state: same pointer, strides and
///          type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Error    |state - exact| <= (1+eps)^L S[t] - s[t], where s[t] = |gate[t]| s[t-1] + |input[t]|.
///          S has the recurrence of s with gates (1+eps)^P |gate[t]|. P is 2, or 6 for complex
///          numbers; L depends on the backend (docs/numerics.md). final_state has the bits of the
///          last state, before it is rounded to a 16-bit storage type.
/// Cost     2 arrays read + 1 written; each element of a broadcast gate is read from memory once.
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

/// The adjoint of linear_scan: computes the gradients of gate, input and initial state from
/// state_grad and final_grad.
///
///     g[t] = state_grad[t] + conj(gate[t+1]) * g[t+1]        input_grad[t] = g[t]
///     gate_grad[t] = g[t] * conj(state[t-1])                 initial_grad = conj(gate[0]) * g[0]
///
/// Shapes   gate, state, state_grad, gate_grad, input_grad: (batch, time, channel). `state` may be
///          `none` if gate_grad is absent. `state_grad` may be `none`, which means 0. A gradient
///          with zero strides receives the sum over those axes, in a fixed order, in the wide type
///          (double for float); an empty sum is 0.
/// Aliasing input_grad may be state_grad unless input_grad is a sum, and initial_grad may be
///          final_grad unless initial_grad is a sum. Otherwise, no array that is written may
///          overlap another array.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Error    as linear_scan, for g.
/// Cost     3 arrays read + 2 written; 2 + 1 without gate_grad. A gate_grad that is summed over
///          time writes no array of length `time`. The adjoint never divides by the gate.
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
/// Shapes   all (batch, time, channel). A zero tangent may be `none`. `state` may be `none` if
///          gate_tangent is, and `state_tangent` may be `none` if options.final_tangent is present.
/// Aliasing state_tangent may be input_tangent, and final_tangent may be initial_tangent.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Error    as linear_scan, with the term in parentheses as its input.
/// Cost     4 arrays read + 1 written; 2 + 1 without gate_tangent, 3 + 1 without input_tangent.
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

// ---- descriptions of calls, without running them ----------------------------------------------

/// The problem of a linear_scan call with these arguments, for describe() and workspace_bytes().
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
/// The problem of a linear_scan_vjp call with these arguments.
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
/// The problem of a linear_scan_jvp call with these arguments.
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
#include <scanrec/compiled.hpp>  // declares instantiations that another file compiles, if any
#endif
