// SPDX-License-Identifier: BSD-3-Clause
// The recurrence itself: state[t] = gate[t] * state[t-1] + input[t].
#pragma once

#include <scanrec/operators.hpp>
#include <scanrec/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// The operator of a linear recurrence, with cuts where there are resets.
template <class Lane, resets Resets>
using linear_map =
    std::conditional_t<Resets == resets::present, segmented<affine<Lane>>, affine<Lane>>;

/// No output of this recurrence is a sum.
struct no_sums {};

template <class Gate, class Input, class State, resets Resets>
struct forward {
  using value = compute_t<Gate>;
  template <class Lane>
  using map = linear_map<Lane, Resets>;
  template <class Lane>
  using step = map<Lane>;
  template <class Lane>
  using sums = no_sums;

  input_field<Gate> gate;
  input_field<Input> input;
  cut_field cuts;
  input_field<value> initial_state;
  output_field<State> state;
  output_field<value> final_state;

  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE step<Lane> load(site<Axis, Reach> at) const {
    const affine<Lane> linked{gate.template load<Lane>(at), input.template load<Lane>(at)};
    if constexpr (Resets == resets::present)
      return {linked, cuts.load<simd::real_lane_t<Lane>>(at)};
    else
      return linked;
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE map<Lane> element(const step<Lane>& read) const {
    return read;
  }
  template <class Lane, lane_axis Axis, reach Reach, class Step>
  SCANREC_HD SCANREC_INLINE void finish(site<Axis, Reach> at, const Step&, Lane /*before*/,
                                        Lane after, no_sums&) const {
    state.put(at, after);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane begin(site<Axis, Reach> at) const {
    return initial_state.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void end(site<Axis, Reach> at, Lane after) const {
    final_state.put(at, after);
  }
  template <lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void drain(site<Axis, Reach>, no_sums&) const {}

  template <class Self, class F>
  static void for_inputs(Self& self, F f) {
    f(self.gate), f(self.input), f(self.cuts.marks), f(self.initial_state);
  }
  template <class Self, class F>
  static void for_outputs(Self& self, F f) {
    f(self.state), f(self.final_state);
  }
  template <class Lane, lane_axis Axis>
  SCANREC_INLINE void prefetch(site<Axis, reach::whole> at) const {
    gate.template prefetch<Lane>(at), input.template prefetch<Lane>(at);
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
