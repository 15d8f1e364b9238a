// SPDX-License-Identifier: BSD-3-Clause
// The sizes of the parts of a recurrence, for plans, which do not know its types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/detail/maps/element_maps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// One lane of the state and the running sums.
template <class R>
struct carried_by_one {
  using scalar = simd::lane_t<typename R::value, 1>;
  typename R::template state_of<scalar> state;
  [[no_unique_address]] typename R::template sums<scalar> sums;
};

/// Bytes of one lane of a reset.
template <class R>
constexpr std::int64_t reset_bytes_of() {
  return sizeof(simd::real_lane_t<simd::lane_t<typename R::value, 1>>);
}

/// Whether a step uses its gate and its input as loaded, without activations.
template <class R>
constexpr bool has_linear_steps() {
  if constexpr (requires { R::is_linear; }) return R::is_linear;
  return false;
}

template <class R>
constexpr recurrence_sizes sizes_of() {
  using scalar = simd::lane_t<typename R::value, 1>;
  using map = typename R::template map_of<scalar>;
  using carry = typename element_maps<R>::carry;
  using carry_map = typename element_maps<R>::map;
  using sums = typename R::template sums<scalar>;
  recurrence_sizes s;
  s.compute_bytes = sizeof(typename R::value);
  s.sums_bytes = std::is_empty_v<sums> ? 0 : sizeof(sums);
  s.carried_bytes = sizeof(carried_by_one<R>);
  s.map_bytes = sizeof(map);
  s.step_bytes = sizeof(step_of<R>);
  s.carry_bytes = sizeof(carry);
  s.carry_map_bytes = sizeof(carry_map);
  s.recomputed_bytes = recomputed_bytes_of<R>();
  for (const std::size_t alignment :
       {alignof(map), alignof(carry), alignof(carry_map), alignof(carried_by_one<R>)})
    s.alignment = std::max(s.alignment, static_cast<std::int64_t>(alignment));
  s.pack_lanes = run_lanes_of<R>;
  s.one_by_one = R::one_by_one;
  s.linear = has_linear_steps<R>();
  return s;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
