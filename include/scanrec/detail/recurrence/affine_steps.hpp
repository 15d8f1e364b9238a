// SPDX-License-Identifier: BSD-3-Clause
// Base classes of recurrences whose steps are affine maps of the state, x -> a * x + u.
#pragma once

#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/field.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Base of all recurrences with affine steps.
template <class Value>
struct affine_maps {
  /// The compute type of states.
  using value = Value;
  /// Whether kernels process sequences one by one, without SIMD packs. True with CUDA compilers,
  /// and for states that are small vectors (run_lanes_of in field.hpp is an exception).
  static constexpr bool one_by_one = scanrec::detail::is_vec<Value> || !simd::has_packs;
  /// Whether kernels are compiled for assume::whole (position.hpp).
  static constexpr bool runs_whole = true;
  /// Number of state registers that a kernel may process side by side, to hide latency.
  static constexpr int registers_abreast = one_by_one ? 1 : 4;
  /// Whether the arithmetic of a step uses most registers of a GPU thread.
  static constexpr bool computes_much = false;
  /// Whether states and maps are elements that a caller's associative operator combines
  /// (inclusive_scan). Recurrences for which this is true have no sums.
  static constexpr bool any_operator = false;
  template <class Lane>
  using map_of = affine<Lane>;
  template <class Lane>
  using state_of = Lane;
};

/// Base of recurrences whose `load` returns a gate and an input. The state after a step is gate *
/// (state before it) + input, or the input alone at a reset.
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

  /// The map of the step. A reset is a factor of 0, which is exact for finite states. For other
  /// states, backends run the steps one by one or keep the reset beside the map (segmented in
  /// affine.hpp).
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE affine<Lane> map(position<Axis, Assume> at,
                                             const step<Lane>& read) const {
    affine<Lane> m{read.gate, read.input};
    if (at.rarely(resets.present()))
      m.a = simd::select(read.reset, simd::constant<factor_t<Lane>>(0), m.a);
    return m;
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Lane next(position<Axis, Assume> at, const step<Lane>& read,
                                      Lane before) const {
    Lane continued = simd::fma(read.gate, before, read.input);
    return at.rarely(resets.present()) ? simd::select(read.reset, read.input, continued)
                                       : continued;
  }
  /// Whether the maps of a pack along time may be composed, that is, no step of the pack is reset.
  /// Recurrences that read a neighbour define their own version.
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool composes(position<lane_axis::time, Assume> at) const {
    return !at.rarely(resets.present()) || !resets.template any<Lanes>(at);
  }
  template <class Lane, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE void flush(position<Axis, Assume>, sums<Lane>&) const {}
  /// Called in the first pass over a tile, which only composes the maps of its steps. Loads into L2
  /// the arrays that only the second pass reads; affine steps have no such arrays.
  template <class Lane, class Position>
  SCANREC_INLINE void touch_rest(Position) const {}
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
