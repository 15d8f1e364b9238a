// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of a gated recurrence: one scan over the carry c, against the direction of the
// forward scan. Its steps compute the gradients of the pre-activations.
//
//     g[t] = (gradient of state[t] through output[t]) + c[t+1]
//     c[t] = a[t] * g[t]
//     pre_grad[t] = cell gradients from g[t], state[t-1] and state[t]
//
// t counts the steps of the forward scan. Activations are recomputed from the pre-activations, and
// state[t] from state[t-1].
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/recurrence/gated_forward.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// The adjoint of a forward call that stored all states.
template <class Cell, class Pre, class State, class OutputGrad, class PreGrad>
struct gated_vjp : gated<Cell, Pre> {
  using base = gated<Cell, Pre>;
  using typename base::value;

  /// The values that one step reads.
  template <class Lane>
  struct step : base::template step<Lane> {
    Lane output_grad;
    Lane previous;  // state[t-1]; 0 where step t is reset
  };
  template <class Lane>
  struct raw : base::template raw<Lane> {
    OutputGrad output_grad;
    State previous;
  };
  template <class Lane>
  struct sums {
    std::array<Lane, base::pre_arrays> pre;
  };

  input_field<State> state;
  input_field<OutputGrad> output_grad;
  state_input<value> initial_state;  // state[-1]
  state_input<value> final_grad;
  std::array<output_field<PreGrad>, base::pre_arrays> pre_grad;
  state_output<value> initial_grad;
  std::int64_t steps = 0;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    const Lane zero = simd::constant<Lane>(0);
    step<Lane> read{{this->template load_cell<Lane>(at), zero, zero},
                    output_grad.template load_or_zero<Lane>(at),
                    zero};
    this->load_reset_mask(at, read);
    read.previous = this->unless_reset(at, read, load_before<Lane>(at), zero);
    return read;
  }
  // state[t-1]. Step t - 1 is the next step of this scan. The last step of this scan is step 0,
  // which reads the initial state.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane load_before(position<Axis, Assume> at) const {
    const bool edge = at.time + steps_of<Lane, Axis> == steps;
    if (!at.mostly(state.present()) && !edge) return simd::constant<Lane>(0);
    return load_shifted<1, Lane>(state, initial_state, at, edge);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE raw<Lane> load_raw(position<Axis, Assume> at) const {
    raw<Lane> read;
    this->load_raw_cell(at, static_cast<typename base::template raw<Lane>&>(read));
    read.output_grad = output_grad.stored_or_zero(at);
    read.previous = at.mostly(state.present()) ? state.stored_neighbour(at, 1) : State{};
    return read;
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> made_of(const raw<Lane>& read) const {
    Lane before = simd::from_element(read.previous);
    return {this->cell_of(read), simd::from_element(read.output_grad),
            simd::select(read.reset, simd::constant<Lane>(0), before)};
  }
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return (Assume == assume::nothing || at.time + Lanes < steps) &&
           (!at.rarely(this->resets.present()) || !this->resets.template any<Lanes>(at));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE auto map(position<Axis, Assume> at, const step<Lane>& read) const {
    const Lane zero = simd::constant<Lane>(0);
    auto m = this->continued(at, read);
    Lane g = Cell::outputs::back(read.of_cell, read.output_grad, zero);
    m.u = this->unless_reset(at, read, m.times(g), zero);
    this->reset_factor(at, read, m);
    return m;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane next(position<Axis, Assume> at, const step<Lane>& read,
                                      Lane before) const {
    Lane g = Cell::outputs::back(read.of_cell, read.output_grad, before);
    return this->unless_reset(at, read, this->continued(at, read).times(g),
                              simd::constant<Lane>(0));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>& read,
                                        Lane before, Lane /*after*/, sums<Lane>& running) const {
    auto m = this->continued(at, read);
    const cell_cotangents<Lane> d{Cell::outputs::back(read.of_cell, read.output_grad, before),
                                  read.output_grad, read.previous,
                                  this->unless_reset(at, read, m.act(read.previous), m.u)};
    auto gradients = this->cell.gradients(read.of_cell, d);
    if (at.rarely(this->zoneout.present()))
      // A zoned-out step depends on no pre-activation but the output gate.
      for (std::size_t i = 0; i < base::pre_arrays; ++i)
        if (static_cast<int>(i) != Cell::outputs::array)
          gradients[i] = simd::select(read.zoned_out, simd::constant<Lane>(0), gradients[i]);
    for (std::size_t i = 0; i < base::pre_arrays; ++i)
      pre_grad[i].put(at, gradients[i], running.pre[i]);
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
    for (std::size_t i = 0; i < base::pre_arrays; ++i) pre_grad[i].flush(at, running.pre[i]);
  }
  /// Copies the sums over time; other outputs have no running sums.
  template <class Lane>
  SCANREC_HD SCANREC_INLINE void copy_sums(const sums<Lane>& from, sums<Lane>& to) const {
    for (std::size_t i = 0; i < base::pre_arrays; ++i)
      if (pre_grad[i].action == write::sum_time) to.pre[i] = from.pre[i];
  }
  /// Called in the first pass over a tile, which only composes the maps of its steps. Loads the
  /// pre-activations and states into L2, because the second pass uses some that the first does not.
  /// If the states are recomputed, `state` has no array in the first pass.
  template <class Lane, class Position>
  SCANREC_INLINE void touch_rest(Position at) const {
    this->template touch_arrays<Lane>(at);
    if (state.present()) state.template touch<Lane>(at);
  }

  using arrays = array_list<reads<&base::pre>, reads_next<&gated_vjp::state>,
                            reads_if_given<&gated_vjp::output_grad>, reads<&base::zoneout>,
                            reads_reset_mask<&base::resets>, writes<&gated_vjp::pre_grad>,
                            starts_from<&gated_vjp::initial_state>,
                            starts_from<&gated_vjp::final_grad>, ends_in<&gated_vjp::initial_grad>>;
};

/// The adjoint of a forward call that stored checkpoints: `state` has no array. A backend
/// recomputes the states of one checkpoint interval at a time (detail/recurrence/recompute.hpp). It
/// processes the steps of the interval with `recomputed`, so the code of a step exists once.
template <class Cell, class Pre, class State, class OutputGrad, class PreGrad>
struct gated_vjp_recomputing : gated_vjp<Cell, Pre, State, OutputGrad, PreGrad> {
  using recomputed = gated_vjp<Cell, Pre, State, OutputGrad, PreGrad>;
  using base = typename recomputed::base;
  using typename base::value;
  static constexpr bool recomputes = true;

  checkpoint_input<value> checkpoints;

  /// The forward recurrence over the same steps, in the direction of the forward call. It writes
  /// the states to memory from which `recomputed` reads them.
  using recomputing = gated_forward<Cell, Pre, none_t, output_field<State>>;
  SCANREC_HD [[nodiscard]] recomputing recompute() const {
    recomputing r;
    static_cast<base&>(r) = *this;
    const std::int64_t steps = this->steps;
    const auto turn = [steps](auto& field) {
      if (field.data) field.data += (steps - 1) * field.strides.time;
      field.strides.time = -field.strides.time;
    };
    for (auto& field : r.pre) turn(field);
    turn(r.zoneout), turn(r.resets.reset_mask);
    r.resets.shift = -r.resets.shift;
    if (r.resets.step_without_reset >= 0)
      r.resets.step_without_reset = steps - 1 - r.resets.step_without_reset;
    return r;
  }

  using arrays = array_list<
      reads<&base::pre>, reads_next<&recomputed::state>, reads_if_given<&recomputed::output_grad>,
      reads<&base::zoneout>, reads_reset_mask<&base::resets>, writes<&recomputed::pre_grad>,
      starts_from<&recomputed::initial_state>, starts_from<&recomputed::final_grad>,
      starts_from<&gated_vjp_recomputing::checkpoints>, ends_in<&recomputed::initial_grad>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
