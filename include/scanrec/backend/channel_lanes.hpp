// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along the channels: each lane walks time in order, as the plain loop does.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/backend/tile_plan.hpp>
#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A stretch of one batch row: steps [begin, end) of channels [channel, channel + channels).
struct block {
  std::int64_t begin = 0, end = 0;
  std::int64_t channel = 0, channels = 0;
};

template <class R>
struct channel_lanes {
  static constexpr auto along = recurrence::lane_axis::channel;
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using carry = simd::lane_t<wide_t<value>, lanes>;
  using map = typename R::template map<carry>;
  using site = recurrence::site<along>;

  /// What is carried from step to step for one pack of channels.
  struct slot {
    lane state;
    typename R::template sums<lane> sums;
  };

  template <class F>
  static SCANREC_INLINE void for_packs(const block& where, F f) {
    for (std::int64_t c = 0; c < where.channels; c += lanes)
      f(c / lanes, where.channel + c,
        static_cast<int>(std::min<std::int64_t>(lanes, where.channels - c)));
  }

  static void begin(const R& r, const block& where, slot* slots) {
    for_packs(where, [&](std::int64_t i, std::int64_t channel, int count) {
      slots[i] = slot{r.template begin<lane>(site{0, channel, count}), {}};
    });
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for_packs(where, [&](std::int64_t i, std::int64_t channel, int count) {
      r.end(site{where.end, channel, count}, slots[i].state);
    });
  }
  static void drain(const R& r, const block& where, slot* slots) {
    for_packs(where, [&](std::int64_t i, std::int64_t channel, int count) {
      r.drain(site{where.begin, channel, count}, slots[i].sums);
    });
  }

  /// Composes the maps of the block's steps, in the wide type.
  static void reduce(const R& r, const block& where, map* maps, const tile_plan& plan) {
    for_packs(where, [&](std::int64_t i, std::int64_t, int) { maps[i] = map::identity(); });
    for_steps(r, where, plan, [&](std::int64_t i, std::int64_t t, std::int64_t last,
                                  std::int64_t channel, int count, auto fetch) {
      map all = maps[i];
      for (; t < last; ++t) {
        fetch(t);
        const auto read = r.template load<lane>(site{t, channel, count});
        all = combine(all, widen_map<carry>(r.template element<lane>(read)));
      }
      maps[i] = all;
    });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& r, const block& where, slot* slots, const tile_plan& plan) {
    for_steps(r, where, plan, [&](std::int64_t i, std::int64_t t, std::int64_t last,
                                  std::int64_t channel, int count, auto fetch) {
      slot s = slots[i];
      for (; t < last; ++t) {
        fetch(t);
        const site at{t, channel, count};
        const auto read = r.template load<lane>(at);
        const lane after = r.template element<lane>(read).act(s.state);
        r.finish(at, read, s.state, after, s.sums);
        s.state = after;
      }
      slots[i] = s;
    });
  }

 private:
  // A descending walk fetches the next lower stretch of steps in ascending address order, the only
  // order that hardware prefetchers follow over short runs.
  //
  // Calls body(i, t, last, channel, count, fetch) for every pack i and a few steps [t, last) at a
  // time: one step from memory, so that whole rows go by in address order; several in cache, so
  // that the carried state stays in registers.
  template <class Body>
  static SCANREC_INLINE void for_steps(const R& r, const block& where, const tile_plan& plan,
                                       Body body) {
    const std::int64_t ahead = plan.prefetch_steps;
    const bool one_pack = where.channels <= lanes;
    const std::int64_t steps =
        one_pack ? std::max<std::int64_t>(ahead, tile_policy::steps_in_cache) : plan.steps_per_carry;
    for (std::int64_t t = where.begin; t < where.end; t += steps) {
      const std::int64_t last = std::min(t + steps, where.end);
      // Step s of this stretch fetches step mirror - s of the next one.
      const std::int64_t stretch = ahead > 0 ? where.begin + (t - where.begin) / ahead * ahead : 0;
      const std::int64_t mirror = 2 * stretch + 2 * ahead - 1;
      for_packs(where, [&](std::int64_t i, std::int64_t channel, int count) {
        body(i, t, last, channel, count, [&](std::int64_t s) SCANREC_LAMBDA {
          if (ahead > 0 && mirror - s < where.end)
            r.template prefetch<lanes, along>(mirror - s, channel);
        });
      });
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
