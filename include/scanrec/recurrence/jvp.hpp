// SPDX-License-Identifier: BSD-3-Clause
// The tangent: state_tangent[t] = gate[t] * state_tangent[t-1]
//                                + (gate_tangent[t] * state[t-1] + input_tangent[t]).
#pragma once

#include <scanrec/recurrence/forward.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent,
          resets Resets>
struct jvp {
  using value = compute_t<Gate>;
  template <class Lane>
  using map = linear_map<Lane, Resets>;
  template <class Lane>
  using step = map<Lane>;
  template <class Lane>
  using sums = no_sums;

  input_field<Gate> gate;
  input_field<State> state;
  input_field<GateTangent> gate_tangent;
  input_field<InputTangent> input_tangent;
  cut_field cuts;
  input_field<value> initial_state;  // x[-1]
  input_field<value> initial_tangent;
  output_field<StateTangent> state_tangent;
  output_field<value> final_tangent;

  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE step<Lane> load(site<Axis, Reach> at) const {
    affine<Lane> linked{gate.template load<Lane>(at),
                        input_tangent.template load_or_zero<Lane>(at)};
    Lane through_gate = simd::constant<Lane>(0);
    if (gate_tangent.present()) {
      const Lane first =
          at.time == 0 ? initial_state.template load_or_zero<Lane>(at) : through_gate;
      through_gate = simd::fma(gate_tangent.template load<Lane>(at),
                               state.template load_neighbour<-1, Lane>(at, 0, first), linked.u);
    } else {
      through_gate = linked.u;
    }
    if constexpr (Resets == resets::present) {
      const auto cut = cuts.load<simd::real_lane_t<Lane>>(at);
      return {{linked.a, simd::select(cut, linked.u, through_gate)}, cut};
    } else {
      linked.u = through_gate;
      return linked;
    }
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE map<Lane> element(const step<Lane>& read) const {
    return read;
  }
  template <class Lane, lane_axis Axis, reach Reach, class Step>
  SCANREC_HD SCANREC_INLINE void finish(site<Axis, Reach> at, const Step&, Lane /*before*/,
                                        Lane after, no_sums&) const {
    state_tangent.put(at, after);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane begin(site<Axis, Reach> at) const {
    return initial_tangent.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void end(site<Axis, Reach> at, Lane after) const {
    final_tangent.put(at, after);
  }
  template <lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void drain(site<Axis, Reach>, no_sums&) const {}

  template <class Self, class F>
  static void for_inputs(Self& self, F f) {
    f(self.gate), f(self.state), f(self.gate_tangent), f(self.input_tangent), f(self.cuts.marks),
        f(self.initial_state), f(self.initial_tangent);
  }
  template <class Self, class F>
  static void for_outputs(Self& self, F f) {
    f(self.state_tangent), f(self.final_tangent);
  }
  template <class Lane, lane_axis Axis>
  SCANREC_INLINE void prefetch(site<Axis, reach::whole> at) const {
    gate.template prefetch<Lane>(at);
    if (gate_tangent.present()) {
      gate_tangent.template prefetch<Lane>(at);
      state.template prefetch<Lane>(at);
    }
    if (input_tangent.present()) input_tangent.template prefetch<Lane>(at);
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
