// SPDX-License-Identifier: BSD-3-Clause
// The gated recurrence: state = a * state + u, where a cell computes a and u from pre-activations.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/memory.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Common part of the forward recurrence and its adjoint: a cell, its pre-activations, the reset
/// mask and the zoneout mask.
template <class Cell, class Pre>
struct gated : affine_maps<compute_t<Pre>> {
  using typename affine_maps<compute_t<Pre>>::value;
  static constexpr std::size_t pre_arrays = Cell::names.size();
  // Measured: more registers are not faster, because a step has many instructions.
  static constexpr int registers_abreast = 1;

  using cell_type = typename computed_cell<Cell, Pre>::type;
  static constexpr bool computes_much = std::is_same_v<cell_type, Cell>;

  cell_type cell;
  std::array<input_field<Pre>, pre_arrays> pre;
  input_field<bool> zoneout;
  reset_field resets;

  /// The values that one step reads.
  template <class Lane>
  struct step {
    typename cell_type::template step<Lane> of_cell;
    Lane reset, zoned_out;
  };

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE typename cell_type::template step<Lane> load_cell(
      position<Axis, Assume> at) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) SCANREC_LAMBDA {
      return cell.load(pre[I].template load<Lane>(at)...);
    }
    (std::make_index_sequence<pre_arrays>{});
  }
  /// The stored values of a step. GPUs prefetch steps in this form. They convert the values and
  /// apply the activations when they process the step, because both would wait for the load.
  template <class Lane>
  struct raw {
    std::array<Pre, pre_arrays> pre;
    Lane reset, zoned_out;
  };
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void load_raw_cell(position<Axis, Assume> at, raw<Lane>& to) const {
    for (std::size_t i = 0; i < pre_arrays; ++i) to.pre[i] = pre[i].stored_at(at);
    to.reset = to.zoned_out = simd::constant<Lane>(0);
    load_reset_mask(at, to);
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> cell_of(const raw<Lane>& read) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) SCANREC_LAMBDA {
      return step<Lane>{cell.load(simd::from_element(read.pre[I])...), read.reset, read.zoned_out};
    }
    (std::make_index_sequence<pre_arrays>{});
  }
  /// Loads both masks into a `step` or a `raw`, whose mask values must be 0.
  template <class Read, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void load_reset_mask(position<Axis, Assume> at, Read& read) const {
    using Lane = decltype(read.reset);
    if (at.rarely(resets.present())) read.reset = resets.template load<Lane>(at);
    if (at.rarely(zoneout.present())) read.zoned_out = zoneout.template load<Lane>(at);
  }
  /// The map of the step, without resets. A lane that is zoned out keeps its state.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE auto continued(position<Axis, Assume> at,
                                           const step<Lane>& read) const {
    auto m = cell.map(read.of_cell);
    const Lane zero = simd::constant<Lane>(0);
    if (at.rarely(zoneout.present())) {
      m.a = simd::select(read.zoned_out, simd::constant<Lane>(1), m.a);
      m.u = simd::select(read.zoned_out, zero, m.u);
      if constexpr (requires { m.rest; }) m.rest = simd::select(read.zoned_out, zero, m.rest);
    }
    return m;
  }
  /// Sets the factor of a map to 0 where the step is reset.
  template <class Map, class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void reset_factor(position<Axis, Assume> at, const step<Lane>& read,
                                              Map& m) const {
    const Lane zero = simd::constant<Lane>(0);
    m.a = unless_reset(at, read, m.a, zero);
    if constexpr (requires { m.rest; }) m.rest = unless_reset(at, read, m.rest, zero);
  }
  /// x, or `instead` in lanes where the step is reset.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane unless_reset(position<Axis, Assume> at, const step<Lane>& read,
                                              Lane x, Lane instead) const {
    if (at.rarely(resets.present())) x = simd::select(read.reset, instead, x);
    return x;
  }
  template <class Lane, class Position>
  SCANREC_INLINE void touch_arrays(Position at) const {
    for (const auto& field : pre) field.template touch<Lane>(at);
  }
};

/// Target of the states of a forward call that stores no states.
struct kept_nowhere {
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void store(Position, Lane) const {}
};
/// Target of the states of a forward call that stores checkpoints: the state before each checkpoint
/// interval except the first in scan order. Intervals are counted from the end of the scan.
template <class V>
struct checkpoint_output : state_output<V> {
  static constexpr std::int64_t interval = memory::recompute<V>::interval;
  std::int64_t steps = 0;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void store(position<Axis, Assume> at, Lane after) const {
    const std::int64_t left = steps - 1 - at.time;  // steps after the first lane's step
    if constexpr (Axis == lane_axis::time) {
      constexpr int lanes = simd::lane_count<Lane>;
      const std::int64_t lane = left % interval;
      if (lane >= lanes || left < interval) return;
      alignas(64) V values[lanes];
      simd::store(values, 1, lanes, after);
      *position_of(left / interval, at.channel) = values[lane];
    } else {
      if (left % interval != 0 || left == 0) return;
      simd::store(position_of(left / interval, at.channel), this->strides.channel, at.count, after);
    }
  }

 private:
  SCANREC_HD V* position_of(std::int64_t intervals_left, std::int64_t channel) const {
    return this->data + (intervals_left - 1) * this->strides.time + channel * this->strides.channel;
  }
};

/// The forward recurrence. `Output` is the stored type of the outputs, or none_t. `Kept` is a field
/// that takes the states.
template <class Cell, class Pre, class Output, class Kept>
struct gated_forward : gated<Cell, Pre> {
  using base = gated<Cell, Pre>;
  using typename base::value;
  template <class Lane>
  using step = typename base::template step<Lane>;
  /// Running sums of outputs: none.
  template <class Lane>
  struct sums {};
  static constexpr bool puts_out = !std::is_same_v<Output, none_t>;
  // Absent states need no kernel for assume::whole: `kept` is then an output_if_given, which may be
  // absent with assume::plain.
  static constexpr bool runs_whole = false;
  static constexpr bool keeps_checkpoints = std::is_same_v<Kept, checkpoint_output<value>>;
  static constexpr bool keeps_if_asked = is_output_if_given<Kept>;
  static constexpr bool keeps_states =
      !keeps_checkpoints && !keeps_if_asked && !std::is_same_v<Kept, kept_nowhere>;

  state_input<value> initial_state;
  output_field<std::conditional_t<puts_out, Output, value>> output;
  Kept kept;
  state_output<value> final_state;

  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE step<Lane> load(position<Axis, Assume> at) const {
    step<Lane> read{this->template load_cell<Lane>(at), simd::constant<Lane>(0),
                    simd::constant<Lane>(0)};
    this->load_reset_mask(at, read);
    return read;
  }
  template <class Lane>
  using raw = typename base::template raw<Lane>;
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE raw<Lane> load_raw(position<Axis, Assume> at) const {
    raw<Lane> read;
    this->load_raw_cell(at, read);
    return read;
  }
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> made_of(const raw<Lane>& read) const {
    return this->cell_of(read);
  }
  /// Whether the maps of a pack along time may be composed, that is, no step of the pack is reset.
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return !at.rarely(this->resets.present()) || !this->resets.template any<Lanes>(at);
  }
  /// The map of the step; a reset has a factor of 0.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE auto map(position<Axis, Assume> at, const step<Lane>& read) const {
    auto m = this->continued(at, read);
    this->reset_factor(at, read, m);
    return m;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane next(position<Axis, Assume> at, const step<Lane>& read,
                                      Lane before) const {
    auto m = this->continued(at, read);
    return this->unless_reset(at, read, m.act(before), m.u);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void finish(position<Axis, Assume> at, const step<Lane>& read,
                                        Lane /*before*/, Lane after, sums<Lane>&) const {
    kept.store(at, after);
    if constexpr (puts_out) output.store(at, Cell::outputs::of(read.of_cell, after));
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane begin(position<Axis, Assume> at) const {
    return initial_state.template load_or_zero<Lane>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void end(position<Axis, Assume> at, Lane after) const {
    final_state.put(at, after);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void flush(position<Axis, Assume>, sums<Lane>&) const {}
  /// Called in the first pass over a tile, which only composes the maps of its steps. If there are
  /// outputs, it also touches all pre-activations. So an output gate, which only the second pass
  /// uses, is then in L2.
  template <class Lane, class Position>
  SCANREC_INLINE void touch_rest(Position at) const {
    if constexpr (puts_out) this->template touch_arrays<Lane>(at);
  }

  using arrays =
      array_list<reads<&base::pre>, reads<&base::zoneout>, reads_reset_mask<&base::resets>,
                 only_if<puts_out, writes<&gated_forward::output>>,
                 only_if<keeps_states, writes<&gated_forward::kept>>,
                 only_if<keeps_if_asked, writes_if_given<&gated_forward::kept>>,
                 starts_from<&gated_forward::initial_state>, ends_in<&gated_forward::final_state>,
                 only_if<keeps_checkpoints, ends_in<&gated_forward::kept>>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
