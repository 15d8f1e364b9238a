// SPDX-License-Identifier: BSD-3-Clause
// The tangent: state_tangent[t] = gate[t] * state_tangent[t-1]
//                                + (gate_tangent[t] * state[t-1] + input_tangent[t]).
#pragma once

#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class State, class GateTangent, class InputTangent, class StateTangent>
struct jvp : affine_steps<compute_t<State>> {
  using base = affine_steps<compute_t<State>>;
  using base::cuts;
  using typename base::value;
  template <class Lane>
  using step = typename base::template step<Lane>;
  template <class Lane>
  using sums = typename base::template sums<Lane>;
  static constexpr int fields = 6;  // sequences read or written
  /// Where neighbours are read: 0 nowhere, 1 at the next step in scan order, -1 at the one before.
  static constexpr int halo = -1;
  input_field<Gate> gate;
  input_field<State> state;
  input_field<GateTangent> gate_tangent;
  input_field<InputTangent> input_tangent;
  state_input<value> initial_state;  // x[-1]
  state_input<value> initial_tangent;
  output_field<StateTangent> state_tangent;
  state_output<value> final_tangent;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(place<Axis, Assume> at) const {
    step<Lane> read{
        gate.template load<factor_t<Lane>>(at), input_tangent.template load_or_zero<Lane>(at), {}};
    Lane linked = read.input;
    if (at.mostly(gate_tangent.present())) {
      const Lane before = at.rarely(at.time == 0) ? initial_state.template load_or_zero<Lane>(at)
                                                  : state.template load_neighbour<Lane>(at, -1);
      linked = simd::fma(gate_tangent.template load<factor_t<Lane>>(at), before, linked);
    }
    if (at.rarely(cuts.present())) {
      read.cut = cuts.template load<simd::real_lane_t<Lane>>(at);
      linked = simd::select(read.cut, read.input, linked);
    }
    read.input = linked;
    return read;
  }
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(place<lane_axis::time, Assume> at) const {
    return at.time > 0 && (!at.rarely(cuts.present()) || !cuts.template any<Lanes>(at));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(place<Axis, Assume> at, const step<Lane>&, Lane /*before*/,
                                        Lane after, sums<Lane>&) const {
    state_tangent.put(at, after);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(place<Axis, Assume> at) const {
    return initial_tangent.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(place<Axis, Assume> at, Lane after) const {
    final_tangent.put(at, after);
  }
  template <class Self, class F>
  SCANREC_HD static constexpr SCANREC_INLINE void for_reads(Self& self, F f) {
    f(self.gate), f(self.state), f(self.gate_tangent), f(self.input_tangent), f(self.cuts.marks);
  }
  /// Whether an input may be absent in kernels that assume whole lanes.
  static bool optional(const jvp& self, const void* field) {
    return field == &self.gate_tangent || field == &self.input_tangent ||
           (field == &self.state && !self.gate_tangent.present());
  }
  static constexpr bool reads_neighbours_of(const jvp& self, const void* field) {
    return field == &self.state || field == &self.cuts.marks;
  }
  template <class Self, class F>
  SCANREC_HD static constexpr SCANREC_INLINE void for_writes(Self& self, F f) {
    f(self.state_tangent);
  }
  template <class Self, class F>
  SCANREC_HD static SCANREC_INLINE void for_starts(Self& self, F f) {
    f(self.initial_state), f(self.initial_tangent);
  }
  template <class Self, class F>
  SCANREC_HD static SCANREC_INLINE void for_ends(Self& self, F f) {
    f(self.final_tangent);
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
