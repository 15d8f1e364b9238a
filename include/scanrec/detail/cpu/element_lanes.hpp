// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles one sequence to a lane, for states that are not made of SIMD lanes: small vectors,
// and the elements of any operator.
#pragma once

#include <cstdint>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/shared/element_maps.hpp>
#include <scanrec/detail/shared/steps.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct element_lanes : element_maps<R> {
  static constexpr int lanes = 1;
  /// Steps that a lane may add up before its sums are drained.
  static constexpr std::int64_t drain_steps = tile_policy::sum_steps;
  static constexpr bool drains_itself = false;
  using lane = simd::lane_t<typename R::value, 1>;
  using map = typename element_maps<R>::map;
  using carry = typename element_maps<R>::carry;
  using place = recurrence::place<recurrence::lane_axis::channel>;

  /// What is carried from step to step for one channel.
  struct slot {
    typename R::template state_of<lane> state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };
  /// The map of all steps so far.
  struct reduction {
    map all;
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      slots[c] = slot{r.template begin<lane>(place{0, where.channel + c}), {}};
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      r.end(place{where.end, where.channel + c}, slots[c].state);
  }
  static void drain(const R& r, const block& where, slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      r.drain(place{where.begin, where.channel + c}, slots[c].sums);
  }

  static void clear(const block&, reduction*) {}  // the first step's map begins it

  /// Composes the maps of the block's steps, of which there is one at least.
  static void reduce(const R& r, const block& where, reduction* reductions, const tile_plan&) {
    const auto algebra = algebra_of(r);
    const auto map_at = [](const R& here, place at) SCANREC_LAMBDA {
      here.template touch_rest<lane>(at);
      return element_maps<R>::widened(here.map(at, here.template load<lane>(at)));
    };
    if (where.channels == 1) {
      const R here = standing_at(r, where.begin, where.channel);
      place at{where.begin, where.channel};
      map all = map_at(here, at);  // stays in registers
      for (++at.time, ++at.row; where.end > at.time; ++at.time, ++at.row)
        all = algebra.compose(all, map_at(here, at));
      reductions[0].all = all;
      return;
    }
    sweep(
        r, where,
        [&](const R& here, place at, std::int64_t c)
            SCANREC_LAMBDA { reductions[c].all = map_at(here, at); },
        [&](const R& here, place at, std::int64_t c) SCANREC_LAMBDA {
          reductions[c].all = algebra.compose(reductions[c].all, map_at(here, at));
        });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& r, const block& where, slot* slots, const tile_plan&) {
    const auto take = [](const R& here, place at, slot& s) SCANREC_LAMBDA {
      s.state = take_step(here, at, here.template load<lane>(at), s.state, s.sums);
    };
    if (where.channels == 1) {
      const R here = standing_at(r, where.begin, where.channel);
      slot own = slots[0];  // stays in registers
      for (place at{where.begin, where.channel}; where.end > at.time; ++at.time, ++at.row)
        take(here, at, own);
      slots[0] = own;
      return;
    }
    const auto step = [&](const R& here, place at, std::int64_t c)
                          SCANREC_LAMBDA { take(here, at, slots[c]); };
    sweep(r, where, step, step);
  }

 private:
  // Row by row, so that arrays go by in address order and channels hide each other's latency.
  template <class First, class Rest>
  static SCANREC_INLINE void sweep(const R& r, const block& where, First first, Rest rest) {
    const R here = standing_at(r, where.begin, where.channel);
    place at{where.begin, where.channel};
    for (; where.end > at.time; ++at.time, ++at.row)
      for (std::int64_t c = 0; c < where.channels; ++c) {
        place one = at;
        one.channel += c;
        one.index = c;
        if (at.row == 0)
          first(here, one, c);
        else
          rest(here, one, c);
      }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
