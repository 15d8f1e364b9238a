// SPDX-License-Identifier: BSD-3-Clause
// Storage of maps, for backends that keep all maps in memory: map_planes, or map_array for
// recurrences whose maps are processed one by one.
//
// In map_planes, each real part of a map has its own plane, an array of numbers. A pack of maps is
// then a few contiguous vectors, wherever it starts. Maps at any distance from it are read by
// unaligned loads, whether lanes are channels or steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Calls f with every real part of a lane or a map. The parts of a map come in this order: those of
/// u, those of the factor, the reset.
template <class L, class F>
SCANREC_INLINE void for_parts(L& x, F f) {
  if constexpr (simd::is_complex_lanes<L>)
    f(x.re), f(x.im);
  else
    f(x);
}
template <class Lane, class F>
SCANREC_INLINE void for_parts(affine<Lane>& m, F f) {
  for_parts(m.u, f), for_parts(m.a, f);
}
template <class Map, class F>
SCANREC_INLINE void for_parts(segmented<Map>& m, F f) {
  for_parts(m.map, f), f(m.reset);
}

/// Composition and action of affine maps.
struct map_algebra {
  template <class Map>
  SCANREC_HD SCANREC_INLINE Map compose(const Map& earlier, const Map& later) const {
    return combine(earlier, later);
  }
  template <class Map, class State>
  SCANREC_HD SCANREC_INLINE State act(const Map& later, const State& x) const {
    return later.act(x);
  }
};

/// An array of affine maps of compute type T. Element i of a plane is one part of map i. A state
/// that is stored in place of a map uses the planes of u.
template <class T>
struct map_planes {
  using real = simd::real_lane_t<simd::lane_t<T, 1>>;
  real* data = nullptr;
  std::int64_t plane = 0;    // elements from one plane to the next
  bool with_resets = false;  // whether there is a plane of resets
  bool states_only = false;  // whether store_step() stores only u, like a state

  static map_planes over(std::byte* memory, std::int64_t elements, bool with_resets) {
    return {reinterpret_cast<real*>(memory), elements, with_resets, false};
  }

  /// The maps or states from element i on, one per lane.
  template <class L>
  SCANREC_INLINE L load(std::int64_t i) const {
    L x;
    const real* p = data + i;
    for_parts(x, [&](auto& part) SCANREC_LAMBDA {
      if constexpr (simd::lane_count<std::remove_cvref_t<decltype(part)>> == 1)
        part = *p;
      else
        part = simd::load_unit<std::remove_reference_t<decltype(part)>>(p);
      p += plane;
    });
    return x;
  }
  template <class L>
  SCANREC_INLINE void store(std::int64_t i, L x) const {
    real* p = data + i;
    for_parts(x, [&](auto& part) SCANREC_LAMBDA {
      if constexpr (simd::lane_count<std::remove_cvref_t<decltype(part)>> == 1)
        *p = part;
      else
        simd::store_unit(p, part);
      p += plane;
    });
  }
  /// The reset of element i, 0 or 1; only if with_resets.
  SCANREC_INLINE real reset(std::int64_t i) const {
    return data[static_cast<std::int64_t>(2 * sizeof(T) / sizeof(real)) * plane + i];
  }
  /// Stores the state before the first step at element i, as a constant map.
  template <class Map, class L>
  SCANREC_INLINE void store_first(std::int64_t i, const L& x) const {
    if (with_resets)
      store(i, segmented<Map>{Map::constant(x), simd::constant<typename segmented<Map>::mask>(1)});
    else
      store(i, Map::constant(x));
  }
  /// Stores the map of a step, with its reset if there is a plane of resets; only u if states_only.
  template <class Map, class Step>
  SCANREC_INLINE void store_step(std::int64_t i, const Map& m, const Step& read) const {
    if (states_only)
      store(i, m.u);
    else if (with_resets)
      store(i, segmented<Map>{m, read.reset});
    else
      store(i, m);
  }
  /// The elements from i on.
  map_planes from(std::int64_t i) const { return {data + i, plane, with_resets, states_only}; }
};

/// An array of maps that do not consist of real lanes. A state that is stored in place of a map is
/// the u of an element, or the whole element if maps and states have the same type. Resets are in
/// a separate array.
template <class Map, class State>
struct map_array {
  using flag = simd::real_lane_t<State>;
  Map* data = nullptr;
  flag* flags = nullptr;
  bool with_resets = false;

  static map_array over(std::byte* memory, std::int64_t elements, bool with_resets) {
    Map* const maps = reinterpret_cast<Map*>(memory);
    return {maps, reinterpret_cast<flag*>(maps + elements), with_resets};
  }
  template <class L>
  SCANREC_INLINE L load(std::int64_t i) const {
    if constexpr (std::is_same_v<L, Map>)
      return data[i];
    else if constexpr (std::is_same_v<L, State>)
      return data[i].u;
    else
      return {data[i], flags[i]};
  }
  SCANREC_INLINE void store(std::int64_t i, const Map& m) const { data[i] = m; }
  template <class Segmented>
  SCANREC_INLINE void store(std::int64_t i, const Segmented& m) const
      requires(std::is_same_v<Segmented, segmented<Map>>) {
    data[i] = m.map, flags[i] = m.reset;
  }
  SCANREC_INLINE void store(std::int64_t i, const State& x) const
      requires(!std::is_same_v<Map, State>) {
    data[i].u = x;
  }
  template <class, class L>
  SCANREC_INLINE void store_first(std::int64_t i, const L& x) const {
    if constexpr (std::is_same_v<Map, State>) {
      data[i] = x;
    } else {
      data[i] = Map::constant(x);
      if (with_resets) flags[i] = simd::constant<flag>(1);
    }
  }
  template <class Step>
  SCANREC_INLINE void store_step(std::int64_t i, const Map& m, const Step& read) const {
    data[i] = m;
    if constexpr (!std::is_same_v<Step, Map>)  // an operator's element has no reset
      if (with_resets) flags[i] = read.reset;
  }
  map_array from(std::int64_t i) const { return {data + i, flags + i, with_resets}; }
};

template <class R, bool OneByOne = R::one_by_one>
struct map_storage {
  using type = map_planes<typename R::value>;
};
template <class R>
struct map_storage<R, true> {
  using scalar = simd::lane_t<typename R::value, 1>;
  using type =
      map_array<typename R::template map_of<scalar>, typename R::template state_of<scalar>>;
};
/// The storage type for the maps of a recurrence.
template <class R>
using maps_of = typename map_storage<R>::type;

/// The composition and action of the maps of a recurrence.
template <class R>
SCANREC_HD SCANREC_INLINE auto algebra_of(const R& r) {
  if constexpr (requires { r.algebra(); })
    return r.algebra();
  else
    return map_algebra{};
}
/// Whether there is a state before the first step; false only in scans with an operator to which no
/// initial element was passed.
template <class R>
SCANREC_HD SCANREC_INLINE bool starts(const R& r) {
  if constexpr (requires { r.starts(); })
    return r.starts();
  else
    return true;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
