// SPDX-License-Identifier: BSD-3-Clause
// A recurrence together with its derivative with respect to a gate that all steps share:
//
//     (state, sensitivity)[t] = [gate 0; 1 gate] (state, sensitivity)[t-1] + (input[t], 0)
#pragma once

#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/matrix.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class Input, class State>
struct sensitivity : affine_steps<vec<compute_t<State>, 2>> {
  using base = affine_steps<vec<compute_t<State>, 2>>;
  using base::resets;
  /// Whether a step uses its gate and its input as loaded, without activations.
  static constexpr bool is_linear = true;
  using number = compute_t<State>;
  template <class Lane>
  using step = typename base::template step<Lane>;
  template <class Lane>
  using sums = typename base::template sums<Lane>;
  input_field<Gate> gate;
  input_field<Input> input;
  state_input<number> initial_state, initial_sensitivity;
  output_field<State> state, sensitivity_of_state;
  state_output<number> final_state, final_sensitivity;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    using scalar = typename Lane::component;
    const auto zero = simd::constant<scalar>(0);
    const auto a = gate.template load<scalar>(at);
    step<Lane> read{{{{a, zero}, {simd::constant<scalar>(1), a}}},
                    {{input.template load<scalar>(at), zero}},
                    simd::constant<simd::real_lane_t<Lane>>(0)};
    if (at.rarely(resets.present())) read.reset = resets.template load<simd::real_lane_t<Lane>>(at);
    return read;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>&,
                                        Lane /*before*/, Lane after, sums<Lane>&) const {
    state.store(at, after[0]), sensitivity_of_state.store(at, after[1]);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(position<Axis, Assume> at) const {
    using scalar = typename Lane::component;
    return {{initial_state.template load_or_zero<scalar>(at),
             initial_sensitivity.template load_or_zero<scalar>(at)}};
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(position<Axis, Assume> at, Lane after) const {
    final_state.put(at, after[0]), final_sensitivity.put(at, after[1]);
  }

  using arrays = array_list<
      reads<&sensitivity::gate>, reads<&sensitivity::input>, reads_reset_mask<&base::resets>,
      writes<&sensitivity::state>, writes<&sensitivity::sensitivity_of_state>,
      starts_from<&sensitivity::initial_state>, starts_from<&sensitivity::initial_sensitivity>,
      ends_in<&sensitivity::final_state>, ends_in<&sensitivity::final_sensitivity>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
