// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along time: consecutive steps in one pack, scanned in registers.
//
// A pack of maps is scanned in log2(lanes) doubling shifts, then acts on the carried state at once.
// Where the result is not finite (a product that overflowed while the loop would stay finite, an
// infinity that a vanishing product would drop) the pack is walked again step by step.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/backend/channel_lanes.hpp>
#include <scanrec/backend/tile_plan.hpp>
#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct time_lanes {
  static constexpr auto along = recurrence::lane_axis::time;
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using scalar = simd::lane_t<value, 1>;
  using carry = simd::lane_t<wide_t<value>, 1>;
  using map = typename R::template map<carry>;
  using site = recurrence::site<along>;

  /// What is carried from pack to pack for one channel.
  struct slot {
    scalar state;
    typename R::template sums<lane> sums;
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      slots[i] = slot{r.template begin<scalar>(site{0, where.channel + i, 1}), {}};
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      r.end(site{where.end, where.channel + i, 1}, slots[i].state);
  }
  static void drain(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      r.drain(site{where.begin, where.channel + i, lanes}, slots[i].sums);
  }

  static void reduce(const R& recurrence, const block& where, map* maps, const tile_plan& plan) {
    const R r = recurrence;  // a copy that no store through a pointer can reach stays in registers
    for (std::int64_t i = 0; i < where.channels; ++i) {
      const std::int64_t channel = where.channel + i;
      map all = map::identity();
      std::int64_t t = for_whole_packs(r, where, channel, plan, [&](auto at) SCANREC_LAMBDA {
        const auto m = scan_lanes(r.template element<lane>(r.template load<lane>(at)));
        all = combine(all, widen_map<carry>(last_map(m)));
      });
      for (; t < where.end; ++t) {
        const auto m = r.template element<scalar>(r.template load<scalar>(site{t, channel, 1}));
        all = combine(all, widen_map<carry>(m));
      }
      maps[i] = all;
    }
  }

  static void walk(const R& recurrence, const block& where, slot* slots, const tile_plan& plan) {
    const R r = recurrence;
    for (std::int64_t i = 0; i < where.channels; ++i) {
      const std::int64_t channel = where.channel + i;
      slot s = slots[i];
      lane state = simd::splat<lane>(s.state);
      const std::int64_t whole =
          for_whole_packs(r, where, channel, plan, [&](auto at) SCANREC_LAMBDA {
            const auto read = r.template load<lane>(at);
            const lane after = scan_lanes(r.template element<lane>(read)).act(state);
            if (simd::all_zero(simd::zero_if_finite(after))) [[likely]] {
              r.finish(at, read, simd::slide_in<1>(state, after), after, s.sums);
              state = simd::splat_last(after);
            } else {
              const scalar x = simd::last(state);
              state = simd::splat<lane>(walk_steps(r, at.time, at.time + lanes, channel, x));
            }
          });
      s.state = walk_steps(r, whole, where.end, channel, simd::last(state));
      slots[i] = s;
    }
  }

 private:
  // Calls body for every whole pack of the block; returns the first step that is left.
  template <class Body>
  static SCANREC_INLINE std::int64_t for_whole_packs(const R& r, const block& where,
                                                     std::int64_t channel, const tile_plan& plan,
                                                     Body body) {
    std::int64_t t = where.begin;
    if (!plan.whole_lanes) {
      for (; t + lanes <= where.end; t += lanes) body(site{t, channel, lanes});
      return t;
    }
    const std::int64_t ahead = plan.prefetch_steps * lanes;
    const std::int64_t step = plan.dense.time;
    const auto whole_site = [&](std::int64_t time) SCANREC_LAMBDA {
      return recurrence::site<along, recurrence::reach::whole>{
          time, channel, lanes, time * step + channel * plan.dense.channel, step, step < 0};
    };
    while (t + lanes <= where.end) {
      const std::int64_t last = ahead > 0 ? std::min(t + ahead, where.end) : where.end;
      // As in channel_lanes: a descending walk fetches the next stretch in ascending order.
      auto mirror = whole_site(t + 2 * ahead - lanes);
      auto at = whole_site(t);
      for (; at.time + lanes <= last; at.time += lanes, at.offset += lanes * step) {
        if (ahead > 0 && mirror.time + lanes <= where.end) r.template prefetch<lane>(mirror);
        mirror.time -= lanes, mirror.offset -= lanes * step;
        body(at);
      }
      t = at.time;
    }
    return t;
  }

  // The plain loop, for tails and for packs that are not finite.
  static scalar walk_steps(const R& r, std::int64_t t, std::int64_t last, std::int64_t channel,
                           scalar x) {
    typename R::template sums<scalar> sums{};
    site at{t, channel, 1};
    for (; at.time < last; ++at.time) {
      const auto read = r.template load<scalar>(at);
      const scalar after = r.template element<scalar>(read).act(x);
      r.finish(at, read, x, after, sums);
      x = after;
    }
    at.time = t;
    r.drain(at, sums);
    return x;
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
