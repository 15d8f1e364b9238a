// SPDX-License-Identifier: BSD-3-Clause
// The tangent of linear_scan:
//
//     state_tangent[t] = gate[t] * state_tangent[t-1]
//                        + (gate_tangent[t] * state[t-1] + input_tangent[t])
#pragma once

#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent>
struct jvp : affine_steps<compute_t<State>> {
  using base = affine_steps<compute_t<State>>;
  using base::resets;
  using typename base::value;
  /// Whether a step uses its gate and its input as loaded, without activations.
  static constexpr bool is_linear = true;
  template <class Lane>
  using step = typename base::template step<Lane>;
  template <class Lane>
  using sums = typename base::template sums<Lane>;
  input_field<Gate> gate;
  input_field<State> state;
  input_field<GateTangent> gate_tangent;
  input_field<InputTangent> input_tangent;
  state_input<value> initial_state;  // state[-1]
  state_input<value> initial_tangent;
  output_field<StateTangent> state_tangent;
  state_output<value> final_tangent;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    step<Lane> read{gate.template load<factor_t<Lane>>(at),
                    input_tangent.template load_or_zero<Lane>(at),
                    simd::constant<simd::real_lane_t<Lane>>(0)};
    Lane continued = read.input;
    if (at.mostly(gate_tangent.present())) {
      Lane before = load_shifted<-1, Lane>(state, initial_state, at, at.time == 0);
      continued = simd::fma(gate_tangent.template load<factor_t<Lane>>(at), before, continued);
    }
    if (at.rarely(resets.present())) {
      read.reset = resets.template load<simd::real_lane_t<Lane>>(at);
      continued = simd::select(read.reset, read.input, continued);
    }
    read.input = continued;
    return read;
  }
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return (Assume == assume::nothing || at.time > 0) &&
           (!at.rarely(resets.present()) || !resets.template any<Lanes>(at));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>&,
                                        Lane /*before*/, Lane after, sums<Lane>&) const {
    state_tangent.store(at, after);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(position<Axis, Assume> at) const {
    return initial_tangent.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(position<Axis, Assume> at, Lane after) const {
    final_tangent.put(at, after);
  }

  using arrays = array_list<reads<&jvp::gate>, reads_previous_if_given<&jvp::state>,
                            reads_if_given<&jvp::gate_tangent>, reads_if_given<&jvp::input_tangent>,
                            reads_reset_mask<&base::resets>, writes<&jvp::state_tangent>,
                            starts_from<&jvp::initial_state>, starts_from<&jvp::initial_tangent>,
                            ends_in<&jvp::final_tangent>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
