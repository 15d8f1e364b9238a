// SPDX-License-Identifier: BSD-3-Clause
// Turns the arguments of linear_scan, its adjoint and its tangent into a recurrence and its
// problem.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include <scanrec/detail/problem/build.hpp>
#include <scanrec/detail/problem/expect.hpp>
#include <scanrec/detail/recurrence/forward.hpp>
#include <scanrec/detail/recurrence/jvp.hpp>
#include <scanrec/detail/recurrence/vjp.hpp>
#include <scanrec/element.hpp>
#include <scanrec/matrix.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The element type of states for gates of this type. It is used if there is no state array.
template <class Gate>
using state_of_gate = typename multiplied_by<typename sequence_traits<Gate>::stored>::type;

/// The compute type of the states of a call with these gates.
template <class Gate>
using value_of = compute_t<state_of_gate<Gate>>;

/// The options of a call with these gates. If the gates are not a view, the options are those of
/// float, so that overload resolution finds the call and its checks report the mistake.
template <class Gate>
struct value_or_float : std::type_identity<float> {};
template <sequence_of_elements Gate>
struct value_or_float<Gate> : std::type_identity<value_of<Gate>> {};
template <template <class> class Options, class Gate>
using options_for = Options<typename value_or_float<Gate>::type>;

template <class G>
struct gradient_traits;
template <class Gate, class Input>
struct gradient_traits<scan_gradients<Gate, Input>> {
  using gate = Gate;
  using input = Input;
};
template <class G>
concept gradients_of_a_scan = requires {
  typename gradient_traits<G>::gate;
};

template <class... Stored>
struct types {};
template <class Gate, class... Gates, class State, class... States>
constexpr void check_types(types<Gate, Gates...>, types<State, States...>) {
  static_assert(element<Gate> && (element<Gates> && ...) && (element<States> && ...),
                "scanrec: expected arrays of element types (see scanrec::element)");
  static_assert(
      (std::same_as<compute_t<Gate>, compute_t<Gates>> && ...) &&
          (std::same_as<compute_t<State>, compute_t<States>> && ...) &&
          std::same_as<compute_t<Gate>, factor_t<compute_t<State>>>,
      "scanrec: all arrays of a call must have the same compute type (float for bfloat16 "
      "and float16); a complex gate needs complex inputs, and a mat gate needs vec inputs");
}

template <class Gate, class Input, class State>
constexpr bool fits_linear_scan() {
  constexpr bool gate = sequence_of_elements<Gate>, input = sequence_of_elements<Input>,
                 state = writable_elements_or_none<State>;
  constexpr bool of_input = computed_as<Input, Gate>, of_state = computed_as<State, Gate>;
  static_assert(!backend<Gate>, "scanrec: linear_scan: expected backend, gate, input, state");
  SCANREC_EXPECT_VIEW(gate || backend<Gate>, "linear_scan", "gate", "");
  SCANREC_EXPECT_VIEW(input, "linear_scan", "input", "");
  SCANREC_EXPECT_VIEW(state, "linear_scan", "state", SCANREC_TO_WRITE);
  SCANREC_EXPECT(of_input, "linear_scan", "input", SCANREC_TYPE_OF_GATES);
  SCANREC_EXPECT(of_state, "linear_scan", "state", SCANREC_TYPE_OF_GATES);
  return gate && input && state && of_input && of_state;
}
template <class Gate, class State, class StateGrad>
constexpr bool fits_linear_scan_vjp() {
  constexpr bool gate = sequence_of_elements<Gate>, state = elements_or_none<State>,
                 grad = elements_or_none<StateGrad>;
  SCANREC_EXPECT_VIEW(gate, "linear_scan_vjp", "gate", "");
  SCANREC_EXPECT_VIEW(state, "linear_scan_vjp", "state", SCANREC_OR_NONE);
  SCANREC_EXPECT_VIEW(grad, "linear_scan_vjp", "state_grad", SCANREC_OR_NONE);
  return gate && state && grad;
}
template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent>
constexpr bool fits_linear_scan_jvp() {
  constexpr bool gate = sequence_of_elements<Gate>, state = elements_or_none<State>,
                 gate_tangent = elements_or_none<GateTangent>,
                 input_tangent = elements_or_none<InputTangent>,
                 state_tangent = writable_elements_or_none<StateTangent>;
  SCANREC_EXPECT_VIEW(gate, "linear_scan_jvp", "gate", "");
  SCANREC_EXPECT_VIEW(state, "linear_scan_jvp", "state", SCANREC_OR_NONE);
  SCANREC_EXPECT_VIEW(gate_tangent, "linear_scan_jvp", "gate_tangent", SCANREC_OR_NONE);
  SCANREC_EXPECT_VIEW(input_tangent, "linear_scan_jvp", "input_tangent", SCANREC_OR_NONE);
  SCANREC_EXPECT_VIEW(state_tangent, "linear_scan_jvp", "state_tangent", SCANREC_TO_WRITE);
  return gate && state && gate_tangent && input_tangent && state_tangent;
}

/// Pairs of arrays of linear_scan that may alias.
inline constexpr std::array<in_place_pair, 2> linear_scan_aliases{
    {{"state", "input"}, {"final_state", "initial_state"}}};

/// Builds the recurrence and its problem, and returns then(recurrence, problem). The problem lists
/// arrays in the order in which they are added here.
template <class Gate, class Input, class State, class Then>
decltype(auto) make_linear_scan(const char* name, const Gate& gate, const Input& input,
                                const State& state, const scan_options<value_of<Gate>>& options,
                                Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using input_t = typename sequence_traits<Input>::stored;
  using state_t = stored_or<State, state_of_gate<Gate>>;
  using value = value_of<Gate>;
  check_types(types<gate_t>{}, types<state_t, input_t>{});

  problem_builder c(name, gate.shape);
  const int a = c.add_factor("gate", gate);
  const int u = c.add("input", input, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int reset = c.add_resets(options.resets);
  const int x = c.add("state", state, access::write);
  const int xT = c.add("final_state", options.final_state, access::write);
  c.require(a, "an array");
  c.require(u, "an array");
  if (options.final_state.absent()) c.require(x, "an array, since final_state is absent");

  using R = recurrence::forward<gate_t, input_t, state_t>;
  c.template prepare<R>(options.order, linear_scan_aliases);
  R r;
  r.gate = c.input<gate_t>(a);
  r.input = c.input<input_t>(u);
  r.resets = c.resets(reset, options.order, false);
  r.initial_state = c.start<value>(x0);
  r.state = c.output<state_t>(x);
  r.final_state = c.end<value>(xT);
  return then(r, c.described());
}

template <class Gate, class State, class StateGrad, class Gradients, class Then>
void make_linear_scan_vjp(const char* name, const Gate& gate, const State& state,
                          const StateGrad& state_grad, const Gradients& gradients,
                          const vjp_options<value_of<Gate>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using state_t = stored_or<State, state_of_gate<Gate>>;
  using grad_t = stored_or<StateGrad, state_t>;
  using gate_grad_t = typename gradient_traits<Gradients>::gate;
  using input_grad_t = typename gradient_traits<Gradients>::input;
  using value = value_of<Gate>;
  check_types(types<gate_t, gate_grad_t>{}, types<state_t, grad_t, input_grad_t>{});

  problem_builder c(name, gate.shape);
  const int a = c.add_factor("gate", gate);
  const int x = c.add("state", state, access::read);
  const int gx = c.add("state_grad", state_grad, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int gT = c.add("final_grad", options.final_grad, access::read);
  const int reset = c.add_resets(options.resets);
  const int da = c.add("gate_grad", gradients.gate_grad, access::accumulate);
  const int du = c.add("input_grad", gradients.input_grad, access::accumulate);
  const int dx0 = c.add("initial_grad", gradients.initial_grad, access::accumulate);
  c.require(a, "an array");
  if (!gradients.gate_grad.absent())
    c.require(x, "an array, since gate_grad depends on the states");

  using R = recurrence::vjp<gate_t, state_t, grad_t, gate_grad_t, input_grad_t>;
  c.template prepare<R>(
      opposite(options.order),
      std::array<in_place_pair, 2>{{{"input_grad", "state_grad"}, {"initial_grad", "final_grad"}}},
      gradients.update);
  R r;
  r.gate = c.input<gate_t>(a);
  if (!gradients.gate_grad.absent()) r.state = c.input<state_t>(x);
  r.state_grad = c.input<grad_t>(gx);
  r.resets = c.resets(reset, options.order, true);
  r.initial_state = c.start<value>(x0);
  r.final_grad = c.start<value>(gT);
  r.gate_grad = c.output<gate_grad_t>(da);
  r.input_grad = c.output<input_grad_t>(du);
  r.initial_grad = c.end<value>(dx0);
  r.steps = c.steps();
  if (options.convention == conjugation::hermitian)
    r.conjugation = typename R::real(0) - typename R::real(1);
  then(r, c.described());
}

template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent,
          class Then>
void make_linear_scan_jvp(const char* name, const Gate& gate, const State& state,
                          const GateTangent& gate_tangent, const InputTangent& input_tangent,
                          const StateTangent& state_tangent,
                          const jvp_options<value_of<Gate>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using state_t = stored_or<State, state_of_gate<Gate>>;
  using gate_tangent_t = stored_or<GateTangent, gate_t>;
  using input_tangent_t = stored_or<InputTangent, state_t>;
  using state_tangent_t = stored_or<StateTangent, state_t>;
  using value = value_of<Gate>;
  check_types(types<gate_t, gate_tangent_t>{}, types<state_t, input_tangent_t, state_tangent_t>{});

  problem_builder c(name, gate.shape);
  const int a = c.add_factor("gate", gate);
  const int x = c.add("state", state, access::read);
  const int ta = c.add("gate_tangent", gate_tangent, access::read);
  const int tu = c.add("input_tangent", input_tangent, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int tx0 = c.add("initial_tangent", options.initial_tangent, access::read);
  const int reset = c.add_resets(options.resets);
  const int tx = c.add("state_tangent", state_tangent, access::write);
  const int txT = c.add("final_tangent", options.final_tangent, access::write);
  c.require(a, "an array");
  if (!gate_tangent.absent())
    c.require(x, "an array, since gate_tangent is multiplied by the states");
  if (options.final_tangent.absent()) c.require(tx, "an array, since final_tangent is absent");

  using R = recurrence::jvp<gate_t, state_t, gate_tangent_t, input_tangent_t, state_tangent_t>;
  c.template prepare<R>(options.order,
                        std::array<in_place_pair, 2>{{{"state_tangent", "input_tangent"},
                                                      {"final_tangent", "initial_tangent"}}});
  R r;
  r.gate = c.input<gate_t>(a);
  r.gate_tangent = c.input<gate_tangent_t>(ta);
  if (r.gate_tangent.present()) r.state = c.input<state_t>(x);  // else it is not read
  r.input_tangent = c.input<input_tangent_t>(tu);
  r.resets = c.resets(reset, options.order, false);
  r.initial_state = c.start<value>(x0);
  r.initial_tangent = c.start<value>(tx0);
  r.state_tangent = c.output<state_tangent_t>(tx);
  r.final_tangent = c.end<value>(txT);
  then(r, c.described());
}

/// The type of a braced list of gradients in a call.
template <class Gate, class State, class StateGrad>
struct gradients_beside : std::type_identity<scan_gradients<float>> {};
template <sequence_of_elements Gate, sequence_argument State, sequence_argument StateGrad>
struct gradients_beside<Gate, State, StateGrad>
    : std::type_identity<
          scan_gradients<typename sequence_traits<Gate>::stored,
                         stored_or<StateGrad, stored_or<State, state_of_gate<Gate>>>>> {};
template <class Gate, class State, class StateGrad>
using default_gradients = typename gradients_beside<Gate, State, StateGrad>::type;

}  // namespace scanrec::detail::inline SCANREC_ABI
