// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles one sequence to a lane, for states that are not made of SIMD lanes: small vectors,
// and the elements of any operator.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/shared/affine_carries.hpp>
#include <scanrec/detail/shared/lane_scans.hpp>
#include <scanrec/detail/shared/map_planes.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The carries of an operator's elements: elements.
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
  template <class R>
  SCANREC_HD static E advance(const R& r, bool first, const E& tile, const E& c) {
    return first && !starts(r) ? tile : algebra_of(r).act(tile, c);
  }
  static const E& advance_walked(const E&, const E&, const E& walked) { return walked; }
};

/// Maps in the wide type where there is one, and how they are carried from tile to tile.
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
      const auto read = here.template load<lane>(at);
      const auto after = here.next(at, read, s.state);
      here.finish(at, read, s.state, after, s.sums);
      s.state = after;
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
