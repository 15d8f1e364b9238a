// SPDX-License-Identifier: BSD-3-Clause
// The common part of recurrences with a gate and an input per step: x -> gate * x + input, or a
// reset.
#pragma once

#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Base of recurrences whose steps are affine maps of a lane.
template <class Value>
struct affine_maps {
  /// The compute type of states.
  using value = Value;
  /// Whether a lane is one sequence, without SIMD packs: where states are vectors, and on GPUs.
  static constexpr bool one_by_one = scanrec::detail::is_vec<Value> || !simd::has_packs;
  /// Whether kernels are compiled for assume::whole.
  static constexpr bool runs_whole = true;
  /// Registers of states that a kernel may process side by side: one need not wait for another.
  static constexpr int registers_abreast = one_by_one ? 1 : 4;
  /// Whether the arithmetic of a step takes most registers of a GPU's thread.
  static constexpr bool computes_much = false;
  /// Whether maps and states are the elements of an operator, and nothing is a sum.
  static constexpr bool any_operator = false;
  template <class Lane>
  using map_of = affine<Lane>;
  template <class Lane>
  using state_of = Lane;
};

/// Base of recurrences whose `load` makes a gate and an input.
template <class Value>
struct affine_steps : affine_maps<Value> {
  /// The values that one step reads.
  template <class Lane>
  struct step {
    factor_t<Lane> gate;
    Lane input;
    simd::real_lane_t<Lane> reset;
  };
  /// Running sums of outputs: none.
  template <class Lane>
  struct sums {};

  reset_field resets;

  /// The map of the step. A reset has a factor of 0, which is exact for finite states; backends do
  /// not use maps of others.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE affine<Lane> map(position<Axis, Assume> at,
                                             const step<Lane>& read) const {
    affine<Lane> m{read.gate, read.input};
    if (at.rarely(resets.present()))
      m.a = simd::select(read.reset, simd::constant<factor_t<Lane>>(0), m.a);
    return m;
  }
  /// The state after the step.
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane next(position<Axis, Assume> at, const step<Lane>& read,
                                      Lane before) const {
    Lane continued = simd::fma(read.gate, before, read.input);
    return at.rarely(resets.present()) ? simd::select(read.reset, read.input, continued)
                                       : continued;
  }
  /// Whether the lanes of a pack along time compose: no reset among them. Recurrences that
  /// read a neighbour have their own.
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return !at.rarely(resets.present()) || !resets.template any<Lanes>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void flush(position<Axis, Assume>, sums<Lane>&) const {}
  /// Called while tiles are reduced: reads arrays that only the later process needs, so that they
  /// are in L2 by then. Here none.
  template <class Lane, class Position>
  SCANREC_INLINE void touch_rest(Position) const {}
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
