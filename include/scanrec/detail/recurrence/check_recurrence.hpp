// SPDX-License-Identifier: BSD-3-Clause
// Compile-time checks of the requirements of the concept step_recurrence (extend.hpp), one by one.
// Each error names the missing member.
#pragma once

#include <utility>

#include <scanrec/detail/recurrence/arrays.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
constexpr void check_recurrence() {
#define SCANREC_HAS(what, ...) \
  static_assert(               \
      requires { __VA_ARGS__; }, "scanrec: this recurrence has no " what)
  SCANREC_HAS("`value`, the compute type of its states", typename R::value);
  SCANREC_HAS("`arrays`, the array_list of its inputs and outputs", typename R::arrays);
  SCANREC_HAS("`one_by_one`, whether its lanes are scalars, never packs", R::one_by_one);
  SCANREC_HAS("`any_operator`, whether an associative operator combines its maps", R::any_operator);
  if constexpr (requires {
                  typename R::value;
                  typename R::arrays;
                }) {
    using lane = simd::lane_t<typename R::value, 1>;
    using position = recurrence::position<recurrence::lane_axis::channel>;
    SCANREC_HAS("`sums<Lane>`, the running sums of its outputs", typename R::template sums<lane>);
    SCANREC_HAS("`map_of<Lane>`, the map of a step", typename R::template map_of<lane>);
    SCANREC_HAS("`state_of<Lane>`, the state that is carried", typename R::template state_of<lane>);
    SCANREC_HAS("`load<Lane>(position) const`, which loads the inputs of a step",
                std::declval<const R&>().template load<lane>(position{}));
    if constexpr (requires { std::declval<const R&>().template load<lane>(position{}); }) {
      using step = step_of<R>;
      using state = typename R::template state_of<lane>;
      using sums = typename R::template sums<lane>;
      SCANREC_HAS("`map(position, step) const`, which returns the map of a step",
                  std::declval<const R&>().map(position{}, std::declval<const step&>()));
      SCANREC_HAS("`next(position, step, before) const`, which returns the state after a step",
                  std::declval<const R&>().next(position{}, std::declval<const step&>(),
                                                std::declval<state>()));
      SCANREC_HAS("`finish(position, step, before, after, sums) const`, which writes the outputs",
                  std::declval<const R&>().finish(position{}, std::declval<const step&>(),
                                                  std::declval<state>(), std::declval<state>(),
                                                  std::declval<sums&>()));
      SCANREC_HAS("`begin<Lane>(position) const`, which returns the initial state",
                  std::declval<const R&>().template begin<lane>(position{}));
      SCANREC_HAS("`end(position, after) const`, which takes the final state",
                  std::declval<const R&>().end(position{}, std::declval<state>()));
      SCANREC_HAS("`flush(position, sums) const`, which moves running sums to the accumulators",
                  std::declval<const R&>().flush(position{}, std::declval<sums&>()));
      SCANREC_HAS(
          "`touch_rest<Lane>(position) const`, which caches the arrays that only `finish` needs",
          std::declval<const R&>().template touch_rest<lane>(position{}));
    }
  }
#undef SCANREC_HAS
}

}  // namespace scanrec::detail::inline SCANREC_ABI
