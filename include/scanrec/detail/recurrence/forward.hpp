// SPDX-License-Identifier: BSD-3-Clause
// The forward recurrence: state[t] = gate[t] * state[t-1] + input[t].
#pragma once

#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class Input, class State>
struct forward : affine_steps<compute_t<State>> {
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
  input_field<Input> input;
  state_input<value> initial_state;
  output_field<State> state;
  state_output<value> final_state;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    step<Lane> read{gate.template load<factor_t<Lane>>(at), input.template load<Lane>(at),
                    simd::constant<simd::real_lane_t<Lane>>(0)};
    if (at.rarely(resets.present())) read.reset = resets.template load<simd::real_lane_t<Lane>>(at);
    return read;
  }
  /// The stored values of a step. GPUs prefetch steps in this form, because a conversion would wait
  /// for the load.
  template <class Lane>
  struct raw {
    Gate gate;
    Input input;
    simd::real_lane_t<Lane> reset;
  };
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE raw<Lane> load_raw(position<Axis, Assume> at) const {
    using mask = simd::real_lane_t<Lane>;
    return {gate.stored_at(at), input.stored_at(at),
            at.rarely(resets.present()) ? resets.template load<mask>(at) : simd::constant<mask>(0)};
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> made_of(const raw<Lane>& read) const {
    return {simd::from_element(read.gate), simd::from_element(read.input), read.reset};
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>&,
                                        Lane /*before*/, Lane after, sums<Lane>&) const {
    state.store(at, after);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(position<Axis, Assume> at) const {
    return initial_state.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(position<Axis, Assume> at, Lane after) const {
    final_state.put(at, after);
  }

  using arrays = array_list<reads<&forward::gate>, reads<&forward::input>,
                            reads_reset_mask<&base::resets>, writes<&forward::state>,
                            starts_from<&forward::initial_state>, ends_in<&forward::final_state>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
