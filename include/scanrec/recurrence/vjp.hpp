// SPDX-License-Identifier: BSD-3-Clause
// The adjoint: one scan over the carry c, run against the direction of the forward scan.
//
//     g[t] = state_grad[t] + c[t+1]      input_grad[t] = g[t]     gate_grad[t] = g[t] *
//     conj(x[t-1]) c[t] = conj(a[t]) * g[t]           initial_grad  = c[0]     c[T] = final_grad
//
// As an affine scan its elements are (conj(a[t]), conj(a[t]) * state_grad[t]); the store uses the
// carry before the step. Gate and cotangent are read at the same index, only the state one step on.
#pragma once

#include <scanrec/recurrence/forward.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Gate, class State, class StateGrad, class GateGrad, class InputGrad, resets Resets>
struct vjp {
  using value = compute_t<Gate>;
  using real = simd::real_lane_t<simd::lane_t<value, 1>>;
  template <class Lane>
  using map = linear_map<Lane, Resets>;
  template <class Lane>
  struct step {
    Lane gate;       // conj(a[t])
    Lane cotangent;  // state_grad[t]
    Lane previous;   // conj(x[t-1])
    simd::real_lane_t<Lane> cut;
  };
  template <class Lane>
  struct sums {
    Lane gate, input;
  };

  input_field<Gate> gate;
  input_field<State> state;
  input_field<StateGrad> state_grad;
  cut_field cuts;
  input_field<value> initial_state;  // x[-1]
  input_field<value> final_grad;
  output_field<GateGrad> gate_grad;
  output_field<InputGrad> input_grad;
  output_field<value> initial_grad;
  std::int64_t steps = 0;
  real conjugation = real(1);  // -1: conjugate gate and state

  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE step<Lane> load(site<Axis, Reach> at) const {
    const auto sign = simd::splat<simd::real_lane_t<Lane>>(conjugation);
    step<Lane> read{simd::conj_if(sign, gate.template load<Lane>(at)),
                    state_grad.template load_or_zero<Lane>(at),
                    gate_grad.present() ? simd::conj_if(sign, previous_state<Lane>(at))
                                        : simd::constant<Lane>(0),
                    simd::constant<simd::real_lane_t<Lane>>(0)};
    if constexpr (Resets == resets::present) read.cut = cuts.load<simd::real_lane_t<Lane>>(at);
    return read;
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE map<Lane> element(const step<Lane>& read) const {
    const affine<Lane> linked{read.gate, simd::mul(read.gate, read.cotangent)};
    if constexpr (Resets == resets::present)
      return {{linked.a, simd::select(read.cut, simd::constant<Lane>(0), linked.u)}, read.cut};
    else
      return linked;
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void finish(site<Axis, Reach> at, const step<Lane>& read, Lane before,
                                        Lane /*after*/, sums<Lane>& running) const {
    const Lane g = read.cotangent + before;
    input_grad.put(at, g, running.input);
    if (!gate_grad.present()) return;
    if constexpr (Resets == resets::present)
      gate_grad.put(at,
                    simd::select(read.cut, simd::constant<Lane>(0), simd::mul(g, read.previous)),
                    running.gate);
    else
      gate_grad.put_product(at, g, read.previous, running.gate);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane begin(site<Axis, Reach> at) const {
    return final_grad.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void end(site<Axis, Reach> at, Lane after) const {
    initial_grad.put(at, after);
  }
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE void drain(site<Axis, Reach> at, sums<Lane>& running) const {
    gate_grad.drain(at, running.gate);
    input_grad.drain(at, running.input);
  }

  template <class Self, class F>
  static void for_inputs(Self& self, F f) {
    f(self.gate), f(self.state), f(self.state_grad), f(self.cuts.marks), f(self.initial_state),
        f(self.final_grad);
  }
  template <class Self, class F>
  static void for_outputs(Self& self, F f) {
    f(self.gate_grad), f(self.input_grad), f(self.initial_grad);
  }
  template <class Lane, lane_axis Axis>
  SCANREC_INLINE void prefetch(site<Axis, reach::whole> at) const {
    gate.template prefetch<Lane>(at);
    if (state_grad.present()) state_grad.template prefetch<Lane>(at);
    if (gate_grad.present()) state.template prefetch<Lane>(at);
  }

 private:
  template <class Lane, lane_axis Axis, reach Reach>
  SCANREC_HD SCANREC_INLINE Lane previous_state(site<Axis, Reach> at) const {
    // The last lane of the scan has the first step of time, before which stands the initial state.
    constexpr int span = Axis == lane_axis::time ? simd::lane_count<Lane> : 1;
    if (at.time + span < steps) [[likely]]
      return state.template load_neighbour<1, Lane>(at, steps - 1, simd::constant<Lane>(0));
    return state.template load_neighbour<1, Lane>(at, steps - 1,
                                                  initial_state.template load_or_zero<Lane>(at));
  }
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
