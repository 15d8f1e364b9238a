// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, linear_scan_vjp, linear_scan_jvp: the calls and their contracts.
#pragma once

#include <array>
#include <type_traits>

#include <scanrec/backend/blelloch.hpp>
#include <scanrec/backend/hillis_steele.hpp>
#include <scanrec/backend/sequential.hpp>
#include <scanrec/backend/tiled.hpp>
#include <scanrec/call.hpp>
#include <scanrec/element.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/recurrence/forward.hpp>
#include <scanrec/recurrence/jvp.hpp>
#include <scanrec/recurrence/vjp.hpp>
#include <scanrec/sequence_view.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class G>
struct gradient_traits;
template <class Gate, class Input>
struct gradient_traits<scan_gradients<Gate, Input>> {
  using gate = Gate;
  using input = Input;
};

template <class Gate, class Input, class State, class Then>
void make_linear_scan(
    const Gate& gate, const Input& input, const State& state,
    const scan_options<compute_t<typename sequence_traits<Gate>::stored>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using input_t = typename sequence_traits<Input>::stored;
  using state_t = stored_or<State, gate_t>;
  using value = compute_t<gate_t>;
  check_types<gate_t, input_t, state_t>();

  call c("linear_scan", gate.shape);
  const int a = c.add("gate", gate, access::read);
  const int u = c.add("input", input, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int cut = c.add_resets(options.resets);
  const int x = c.add("state", state, access::write);
  const int xT = c.add("final_state", options.final_state, access::write);
  c.require(a, "an array");
  c.require(u, "an array");
  if (options.final_state.absent()) c.require(x, "an array, or none together with a final_state");

  using R = recurrence::forward<gate_t, input_t, state_t>;
  c.template prepare<R>(
      options.order == direction::reverse,
      std::array<in_place_pair, 2>{{{"state", "input"}, {"final_state", "initial_state"}}}, false);
  R r;
  r.gate = c.input<gate_t>(a);
  r.input = c.input<input_t>(u);
  r.cuts = c.cuts(cut, options.order, false);
  r.initial_state = c.start<value>(x0);
  r.state = c.output<state_t>(x);
  r.final_state = c.end<value>(xT);
  then(r, c.described());
}

template <class Gate, class State, class StateGrad, class Gradients, class Then>
void make_linear_scan_vjp(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const vjp_options<compute_t<typename sequence_traits<Gate>::stored>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using state_t = stored_or<State, gate_t>;
  using grad_t = stored_or<StateGrad, state_t>;
  using gate_grad_t = typename gradient_traits<Gradients>::gate;
  using input_grad_t = typename gradient_traits<Gradients>::input;
  using value = compute_t<gate_t>;
  check_types<gate_t, state_t, grad_t, gate_grad_t, input_grad_t>();

  call c("linear_scan_vjp", gate.shape);
  const int a = c.add("gate", gate, access::read);
  const int x = c.add("state", state, access::read);
  const int gx = c.add("state_grad", state_grad, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int gT = c.add("final_grad", options.final_grad, access::read);
  const int cut = c.add_resets(options.resets);
  const int da = c.add("gate_grad", gradients.gate_grad, access::accumulate);
  const int du = c.add("input_grad", gradients.input_grad, access::accumulate);
  const int dx0 = c.add("initial_grad", gradients.initial_grad, access::accumulate);
  c.require(a, "an array");
  if (!gradients.gate_grad.absent())
    c.require(x, "an array, since gate_grad is made of the states");

  using R = recurrence::vjp<gate_t, state_t, grad_t, gate_grad_t, input_grad_t>;
  c.template prepare<R>(
      options.order == direction::forward,
      std::array<in_place_pair, 2>{{{"input_grad", "state_grad"}, {"initial_grad", "final_grad"}}},
      gradients.update == update::accumulate);
  R r;
  r.gate = c.input<gate_t>(a);
  if (!gradients.gate_grad.absent()) r.state = c.input<state_t>(x);
  r.state_grad = c.input<grad_t>(gx);
  r.cuts = c.cuts(cut, options.order, true);
  r.initial_state = c.start<value>(x0);
  r.final_grad = c.start<value>(gT);
  r.gate_grad = c.output<gate_grad_t>(da);
  r.input_grad = c.output<input_grad_t>(du);
  r.initial_grad = c.end<value>(dx0);
  r.steps = c.steps();
  if (is_complex<value> && options.convention == conjugation::hermitian)
    r.conjugation = typename R::real(0) - typename R::real(1);
  then(r, c.described());
}

template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent,
          class Then>
void make_linear_scan_jvp(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const jvp_options<compute_t<typename sequence_traits<Gate>::stored>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using state_t = stored_or<State, gate_t>;
  using gate_tangent_t = stored_or<GateTangent, gate_t>;
  using input_tangent_t = stored_or<InputTangent, state_t>;
  using state_tangent_t = stored_or<StateTangent, state_t>;
  using value = compute_t<gate_t>;
  check_types<gate_t, state_t, gate_tangent_t, input_tangent_t, state_tangent_t>();

  call c("linear_scan_jvp", gate.shape);
  const int a = c.add("gate", gate, access::read);
  const int x = c.add("state", state, access::read);
  const int ta = c.add("gate_tangent", gate_tangent, access::read);
  const int tu = c.add("input_tangent", input_tangent, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int tx0 = c.add("initial_tangent", options.initial_tangent, access::read);
  const int cut = c.add_resets(options.resets);
  const int tx = c.add("state_tangent", state_tangent, access::write);
  const int txT = c.add("final_tangent", options.final_tangent, access::write);
  c.require(a, "an array");
  if (!std::same_as<GateTangent, none_t>) {
    c.require(ta, "an array, or none for a tangent that is zero");
    c.require(x, "an array, since gate_tangent is multiplied by the states");
  }
  if (options.final_tangent.absent())
    c.require(tx, "an array, or none together with a final_tangent");

  using R = recurrence::jvp<gate_t, state_t, gate_tangent_t, input_tangent_t, state_tangent_t>;
  c.template prepare<R>(options.order == direction::reverse,
                        std::array<in_place_pair, 2>{{{"state_tangent", "input_tangent"},
                                                      {"final_tangent", "initial_tangent"}}},
                        false);
  R r;
  r.gate = c.input<gate_t>(a);
  r.state = c.input<state_t>(x);
  r.gate_tangent = c.input<gate_tangent_t>(ta);
  r.input_tangent = c.input<input_tangent_t>(tu);
  r.cuts = c.cuts(cut, options.order, false);
  r.initial_state = c.start<value>(x0);
  r.initial_tangent = c.start<value>(tx0);
  r.state_tangent = c.output<state_tangent_t>(tx);
  r.final_tangent = c.end<value>(txT);
  then(r, c.described());
}

template <class Gate>
using value_of = compute_t<typename sequence_traits<Gate>::stored>;

/// The gradients a call takes when they are given in braces.
template <class Gate, class State, class StateGrad>
using default_gradients =
    scan_gradients<typename sequence_traits<Gate>::stored,
                   stored_or<StateGrad, stored_or<State, typename sequence_traits<Gate>::stored>>>;

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

// ---- the calls --------------------------------------------------------------------------------

/// state[t] = gate[t] * state[t-1] + input[t], element-wise per group, batch and channel.
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
template <backend Backend, sequence Gate, sequence Input, writable_sequence_argument State>
void linear_scan(const Backend& backend, const Gate& gate, const Input& input, const State& state,
                 const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan(gate, input, state, options,
                           [&](const auto& r, const problem& p) { detail::run(backend, r, p); });
}
template <sequence Gate, sequence Input, writable_sequence_argument State>
void linear_scan(const Gate& gate, const Input& input, const State& state,
                 const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
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
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(
    const Backend& backend, const Gate& gate, const State& state, const StateGrad& state_grad,
    const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan_vjp(
      gate, state, state_grad, gradients, options,
      [&](const auto& r, const problem& p) { detail::run(backend, r, p); });
}
template <sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
void linear_scan_vjp(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
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
template <backend Backend, sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void linear_scan_jvp(
    const Backend& backend, const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_linear_scan_jvp(
      gate, state, gate_tangent, input_tangent, state_tangent, options,
      [&](const auto& r, const problem& p) { detail::run(backend, r, p); });
}
template <sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
void linear_scan_jvp(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  linear_scan_jvp(tiled{}, gate, state, gate_tangent, input_tangent, state_tangent, options);
}

// ---- what a call would do, without doing it ---------------------------------------------------

/// The problem that the same call of linear_scan poses, for describe() and workspace_bytes().
/// Checks the arguments as the call does.
template <sequence Gate, sequence Input, writable_sequence_argument State>
[[nodiscard]] problem linear_scan_problem(
    const Gate& gate, const Input& input, const State& state,
    const std::type_identity_t<scan_options<detail::value_of<Gate>>>& options = {}) {
  problem result;
  detail::make_linear_scan(gate, input, state, options,
                           [&](const auto&, const problem& p) { result = p; });
  return result;
}
/// The problem that the same call of linear_scan_vjp poses.
template <sequence Gate, sequence_argument State, sequence_argument StateGrad,
          class Gradients = detail::default_gradients<Gate, State, StateGrad>>
[[nodiscard]] problem linear_scan_vjp_problem(
    const Gate& gate, const State& state, const StateGrad& state_grad, const Gradients& gradients,
    const std::type_identity_t<vjp_options<detail::value_of<Gate>>>& options = {}) {
  problem result;
  detail::make_linear_scan_vjp(gate, state, state_grad, gradients, options,
                               [&](const auto&, const problem& p) { result = p; });
  return result;
}
/// The problem that the same call of linear_scan_jvp poses.
template <sequence Gate, sequence_argument State, sequence_argument GateTangent,
          sequence_argument InputTangent, writable_sequence_argument StateTangent>
[[nodiscard]] problem linear_scan_jvp_problem(
    const Gate& gate, const State& state, const GateTangent& gate_tangent,
    const InputTangent& input_tangent, const StateTangent& state_tangent,
    const std::type_identity_t<jvp_options<detail::value_of<Gate>>>& options = {}) {
  problem result;
  detail::make_linear_scan_jvp(gate, state, gate_tangent, input_tangent, state_tangent, options,
                               [&](const auto&, const problem& p) { result = p; });
  return result;
}

}  // namespace scanrec::inline SCANREC_ABI
