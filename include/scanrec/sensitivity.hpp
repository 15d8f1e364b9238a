// SPDX-License-Identifier: BSD-3-Clause
// linear_scan_sensitivity: states and their derivatives with respect to a gate that all steps
// share. One forward scan computes both, for online learning without a backward pass.
#pragma once

#include <array>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/problem/linear_scan.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/detail/recurrence/sensitivity.hpp>

namespace scanrec {

/// Options of linear_scan_sensitivity; T is the compute type.
template <class T>
struct sensitivity_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};  ///< state before the first step of the scan; absent: 0
  state_view<const T> initial_sensitivity{};  ///< its derivative w.r.t. the gate; absent: 0
  state_view<T> final_state{};
  state_view<T> final_sensitivity{};
  sequence_view<const bool> resets{};  ///< reset mask, as in scan_options
};

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

template <class Gate, class Input, class State, class Sensitivity, class Then>
void make_sensitivity(const char* name, const Gate& gate, const Input& input, const State& state,
                      const Sensitivity& sensitivity,
                      const sensitivity_options<value_of<Gate>>& options, Then then) {
  using gate_t = typename sequence_traits<Gate>::stored;
  using input_t = typename sequence_traits<Input>::stored;
  using state_t = stored_or<State, stored_or<Sensitivity, gate_t>>;
  using value = value_of<Gate>;
  static_assert(std::is_same_v<Sensitivity, none_t> || std::is_same_v<State, none_t> ||
                    std::is_same_v<Sensitivity, State>,
                "scanrec: states and sensitivities must have the same type");
  check_types(types<gate_t>{}, types<state_t, input_t>{});

  problem_builder c(name, gate.shape);
  const int a = c.add_factor("gate", gate);
  const int u = c.add("input", input, access::read);
  const int x0 = c.add("initial_state", options.initial_state, access::read);
  const int s0 = c.add("initial_sensitivity", options.initial_sensitivity, access::read);
  const int reset = c.add_resets(options.resets);
  const int x = c.add("state", state, access::write);
  const int s = c.add("sensitivity", sensitivity, access::write);
  const int xT = c.add("final_state", options.final_state, access::write);
  const int sT = c.add("final_sensitivity", options.final_sensitivity, access::write);
  c.require(a, "an array");
  c.require(u, "an array");
  if (options.final_state.absent()) c.require(x, "an array, since final_state is absent");
  if (options.final_sensitivity.absent())
    c.require(s, "an array, since final_sensitivity is absent");

  using R = recurrence::sensitivity<gate_t, input_t, state_t>;
  c.template prepare<R>(
      options.order, std::array<in_place_pair, 3>{{{"state", "input"},
                                                   {"final_state", "initial_state"},
                                                   {"final_sensitivity", "initial_sensitivity"}}});
  R r;
  r.gate = c.input<gate_t>(a);
  r.input = c.input<input_t>(u);
  r.resets = c.resets(reset, options.order, false);
  r.initial_state = c.start<value>(x0);
  r.initial_sensitivity = c.start<value>(s0);
  r.state = c.output<state_t>(x);
  r.sensitivity_of_state = c.output<state_t>(s);
  r.final_state = c.end<value>(xT);
  r.final_sensitivity = c.end<value>(sT);
  then(r, c.described());
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Computes states and their derivatives with respect to lambda, a gate that all steps share:
///
///     state[t]       = lambda * state[t-1] + input[t]
///     sensitivity[t] = lambda * sensitivity[t-1] + state[t-1]           = d state[t] / d lambda
///
/// This is one scan of the vectors (state, sensitivity) with the matrix [lambda 0; 1 lambda]
/// (real-time recurrent learning). If a loss depends on state[t] alone, with the gradient g, its
/// gradient with respect to lambda is g * conj(sensitivity[t]). To continue a stream, pass
/// final_state and final_sensitivity as initial_state and initial_sensitivity of the next call.
///
/// Shapes   gate, input, state, sensitivity: (batch, time, channel). The gate usually has a zero
///          time stride. If it varies over time, the result is the derivative with respect to a
///          number that is added to the gates of all steps. `state` may be `none` if final_state is
///          present, and `sensitivity` may be `none` if final_sensitivity is present.
/// Aliasing state may be input, final_state may be initial_state, and final_sensitivity may be
///          initial_sensitivity: same pointer, strides and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     1 array read (2 if the gate has a nonzero time stride) + 2 written. Each SIMD lane runs
///          one sequence, as in linear_scan of vectors.
/// Source   Williams and Zipser, A Learning Algorithm for Continually Running Fully Recurrent
///          Neural Networks (1989); Zucchet et al., Online Learning of Long-Range Dependencies
///          (2023).
template <backend Backend, sequence Gate, sequence Input, writable_sequence_argument State,
          writable_sequence_argument Sensitivity>
void linear_scan_sensitivity(
    const Backend& on, const Gate& gate, const Input& input, const State& state,
    const Sensitivity& sensitivity,
    const std::type_identity_t<sensitivity_options<detail::value_of<Gate>>>& options = {}) {
  detail::make_sensitivity("linear_scan_sensitivity", gate, input, state, sensitivity, options,
                           detail::run_on_backend(on));
}
template <sequence Gate, sequence Input, writable_sequence_argument State,
          writable_sequence_argument Sensitivity>
void linear_scan_sensitivity(
    const Gate& gate, const Input& input, const State& state, const Sensitivity& sensitivity,
    const std::type_identity_t<sensitivity_options<detail::value_of<Gate>>>& options = {}) {
  linear_scan_sensitivity(tiled{}, gate, input, state, sensitivity, options);
}

/// The problem of a linear_scan_sensitivity call with these arguments, for describe() and
/// workspace_bytes().
template <sequence Gate, sequence Input, writable_sequence_argument State,
          writable_sequence_argument Sensitivity>
[[nodiscard]] problem linear_scan_sensitivity_problem(
    const Gate& gate, const Input& input, const State& state, const Sensitivity& sensitivity,
    const std::type_identity_t<sensitivity_options<detail::value_of<Gate>>>& options = {}) {
  problem result;
  detail::make_sensitivity("linear_scan_sensitivity", gate, input, state, sensitivity, options,
                           [&](const auto&, const problem& p) { result = p; });
  return result;
}

}  // namespace scanrec::inline SCANREC_ABI
