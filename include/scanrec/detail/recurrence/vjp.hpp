// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of linear_scan: one scan over the carry c, against the direction of the forward scan.
//
//     g[t] = state_grad[t] + c[t+1]      input_grad[t] = g[t]
//     c[t] = conj(gate[t]) * g[t]        gate_grad[t]  = g[t] * conj(state[t-1])
//     c[T] = final_grad                  initial_grad  = c[0]
//
// t counts the steps of the forward scan. conj is omitted with conjugation::none. The map of step t
// has the factor conj(gate[t]) and the input conj(gate[t]) * state_grad[t]. The outputs use c[t+1],
// the carry before the step. Step t reads gate and cotangent at t, and the state at t - 1, which is
// the next step of this scan.
#pragma once

#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class State, class StateGrad, class GateGrad, class InputGrad>
struct vjp : affine_maps<compute_t<State>> {
  using typename affine_maps<compute_t<State>>::value;
  using real = simd::real_lane_t<simd::lane_t<value, 1>>;
  /// Whether a step uses its gate and its input as loaded, without activations.
  static constexpr bool is_linear = true;
  /// The values that one step reads.
  template <class Lane>
  struct step {
    factor_t<Lane> gate;  // conj(gate[t]); a matrix is also transposed
    Lane cotangent;       // state_grad[t]
    Lane previous;        // conj(state[t-1]); loaded only for gate_grad
    simd::real_lane_t<Lane> reset;
  };
  template <class Lane>
  struct sums {
    factor_t<Lane> gate;
    Lane input;
  };

  input_field<Gate> gate;
  input_field<State> state;
  input_field<StateGrad> state_grad;
  reset_field resets;
  state_input<value> initial_state;  // state[-1]
  state_input<value> final_grad;
  output_field<GateGrad> gate_grad;
  output_field<InputGrad> input_grad;
  state_output<value> initial_grad;
  std::int64_t steps = 0;
  real conjugation = real(1);  // -1: conjugate gate and state; 1: do not

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    auto sign = simd::splat<simd::real_lane_t<Lane>>(conjugation);
    step<Lane> read{simd::adjoint_if(sign, gate.template load<factor_t<Lane>>(at)),
                    state_grad.template load_or_zero<Lane>(at), simd::constant<Lane>(0),
                    simd::constant<simd::real_lane_t<Lane>>(0)};
    if (at.mostly(gate_grad.present())) {
      // Step t - 1 is the next step of this scan. The last step of this scan is step 0, which reads
      // the initial state.
      const bool edge = at.time + steps_of<Lane, Axis> == steps;
      read.previous = simd::conj_if(sign, load_shifted<1, Lane>(state, initial_state, at, edge));
    }
    if (at.rarely(resets.present())) read.reset = resets.load<simd::real_lane_t<Lane>>(at);
    return read;
  }
  /// The stored values of a step that is not the last of this scan. GPUs prefetch steps in this
  /// form, because a conversion would wait for the load.
  template <class Lane>
  struct raw {
    Gate gate;
    StateGrad cotangent;
    State previous;
    simd::real_lane_t<Lane> reset;
  };
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE raw<Lane> load_raw(position<Axis, Assume> at) const {
    using mask = simd::real_lane_t<Lane>;
    return {gate.stored_at(at), state_grad.stored_or_zero(at),
            at.mostly(gate_grad.present()) ? state.stored_neighbour(at, 1) : State{},
            at.rarely(resets.present()) ? resets.load<mask>(at) : simd::constant<mask>(0)};
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> made_of(const raw<Lane>& read) const {
    auto sign = simd::splat<simd::real_lane_t<Lane>>(conjugation);
    const factor_t<Lane> factor = simd::from_element(read.gate);
    Lane before = simd::from_element(read.previous);
    return {simd::adjoint_if(sign, factor), simd::from_element(read.cotangent),
            simd::conj_if(sign, before), read.reset};
  }
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return (Assume == assume::nothing || at.time + Lanes < steps) &&
           (!at.rarely(resets.present()) || !resets.any<Lanes>(at));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE affine<Lane> map(position<Axis, Assume> at,
                                             const step<Lane>& read) const {
    affine<Lane> m{read.gate, simd::mul(read.gate, read.cotangent)};
    if (!at.rarely(resets.present())) return m;
    return {simd::select(read.reset, simd::constant<factor_t<Lane>>(0), m.a),
            simd::select(read.reset, simd::constant<Lane>(0), m.u)};
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane next(position<Axis, Assume> at, const step<Lane>& read,
                                      Lane before) const {
    Lane continued = simd::mul(read.gate, read.cotangent + before);
    return at.rarely(resets.present())
               ? simd::select(read.reset, simd::constant<Lane>(0), continued)
               : continued;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>& read,
                                        Lane before, Lane /*after*/, sums<Lane>& running) const {
    Lane g = read.cotangent + before;
    input_grad.put(at, g, running.input);
    if (!at.mostly(gate_grad.present())) return;
    factor_t<Lane> through_gate = simd::outer(g, read.previous);
    if (at.rarely(resets.present()))
      through_gate = simd::select(read.reset, simd::constant<factor_t<Lane>>(0), through_gate);
    gate_grad.put(at, through_gate, running.gate);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(position<Axis, Assume> at) const {
    return final_grad.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(position<Axis, Assume> at, Lane after) const {
    initial_grad.put(at, after);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void flush(position<Axis, Assume> at, sums<Lane>& running) const {
    gate_grad.flush(at, running.gate);
    input_grad.flush(at, running.input);
  }
  /// Copies the sums over time; other outputs have no running sums.
  template <class Lane>
  SCANREC_HD SCANREC_INLINE void copy_sums(const sums<Lane>& from, sums<Lane>& to) const {
    if (gate_grad.action == write::sum_time) to.gate = from.gate;
    if (input_grad.action == write::sum_time) to.input = from.input;
  }
  /// join_sums copies the sums over time from the halves of a pack to the pack; split_sums copies
  /// them back.
  template <class Half, class Lane>
  SCANREC_INLINE void join_sums(const sums<Half>& low, const sums<Half>& high,
                                sums<Lane>& to) const {
    if (gate_grad.action == write::sum_time) to.gate = simd::join(low.gate, high.gate);
    if (input_grad.action == write::sum_time) to.input = simd::join(low.input, high.input);
  }
  template <class Lane, class Half>
  SCANREC_INLINE void split_sums(const sums<Lane>& from, sums<Half>& low, sums<Half>& high) const {
    low = {simd::half_of<0>(from.gate), simd::half_of<0>(from.input)};
    high = {simd::half_of<1>(from.gate), simd::half_of<1>(from.input)};
  }
  /// Called in the first pass over a tile, which only composes the maps of its steps. Loads
  /// `state` into L2, because only the second pass uses it.
  template <class Lane, class Position>
  SCANREC_INLINE void touch_rest(Position at) const {
    if (gate_grad.present()) state.template touch<Lane>(at);
  }

  using arrays = array_list<
      reads<&vjp::gate>, reads_next_if_given<&vjp::state>, reads_if_given<&vjp::state_grad>,
      reads_reset_mask<&vjp::resets>, writes<&vjp::gate_grad>, writes<&vjp::input_grad>,
      starts_from<&vjp::initial_state>, starts_from<&vjp::final_grad>, ends_in<&vjp::initial_grad>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
