// SPDX-License-Identifier: BSD-3-Clause
// Maps of single elements and their carries between tiles, for real and complex numbers, small
// vectors, and elements of any operator.
#pragma once

#include <scanrec/detail/maps/affine_carries.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/maps/map_planes.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Carries of an operator between tiles: elements, without a wide type.
template <class E>
struct element_carries {
  using carry = E;
  SCANREC_HD static const E& carry_of(const E& x) { return x; }
  template <class State>
  SCANREC_HD static const E& state_of(const E& c) {
    return c;
  }
  template <class State>
  SCANREC_HD static bool finite_after(const E&, const E&) {
    return true;
  }
  template <class State>
  SCANREC_HD static bool moderate(const E&) {
    return true;
  }
  template <class State>
  SCANREC_HD static bool moderate_carry(const E&) {
    return true;
  }
  template <class R>
  SCANREC_HD static E advance(const R& r, bool first, const E& tile, const E& c) {
    return first && !starts(r) ? tile : algebra_of(r).act(tile, c);
  }
  static const E& advance_from_state(const E&, const E&, const E& last) { return last; }
};

/// Maps in the wide type, if there is one, and their carries between tiles.
template <class R, bool Affine = element<typename R::value> && !R::any_operator>
struct element_maps : affine_carries<simd::lane_t<wide_t<typename R::value>, 1>> {
  using map = affine<typename element_maps::affine_carries::carry>;
  template <class Map>
  SCANREC_HD static map widened(const Map& m) {
    return widen_map<typename element_maps::affine_carries::carry>(m);
  }
};
template <class R>
struct element_maps<R, false> : element_carries<typename R::value> {
  using map = typename R::value;
  SCANREC_HD static const map& widened(const map& m) { return m; }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
