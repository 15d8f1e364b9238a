// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along the channels: each lane walks time in order, as the plain loop
// does.
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
  static void reduce(const R& recurrence, const block& where, map* maps, const tile_plan& plan) {
    for_packs(where, [&](std::int64_t i, std::int64_t, int) { maps[i] = map::identity(); });
    const R r = recurrence;  // a copy that no store through a pointer can reach stays in registers
    sweep(r, where, maps, plan, [&](auto at, map& all) SCANREC_LAMBDA {
      const auto read = r.template load<lane>(at);
      all = combine(all, widen_map<carry>(r.template element<lane>(read)));
    });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& recurrence, const block& where, slot* slots, const tile_plan& plan) {
    const R r = recurrence;
    sweep(r, where, slots, plan, [&](auto at, slot& s) SCANREC_LAMBDA {
      const auto read = r.template load<lane>(at);
      const lane after = r.template element<lane>(read).act(s.state);
      r.finish(at, read, s.state, after, s.sums);
      s.state = after;
    });
  }

 private:
  // Calls body(site, items[i]) for every step of every pack i, each pack's steps in order.
  //
  // From memory: row by row, so that arrays go by in address order. In cache, and where a row is
  // one pack: a few steps of a pack at a time, so that what is carried stays in registers.
  template <class Item, class Body>
  static SCANREC_INLINE void sweep(const R& r, const block& where, Item* items,
                                   const tile_plan& plan, Body body) {
    block whole = where, rest = where;
    whole.channels = plan.whole_lanes ? where.channels / lanes * lanes : 0;
    rest.channel += whole.channels;
    rest.channels -= whole.channels;
    if (whole.channels > lanes && plan.steps_per_carry == 1)
      sweep_rows(r, whole, items, plan, body);
    else if (whole.channels > 0)
      sweep_columns<recurrence::reach::whole>(r, whole, items, plan, body);
    if (rest.channels > 0)
      sweep_columns<recurrence::reach::any>(r, rest, items + whole.channels / lanes, plan, body);
  }

  template <class Item, class Body>
  static SCANREC_INLINE void sweep_rows(const R& r, const block& where, Item* items,
                                        const tile_plan& plan, Body body) {
    for_stretches(where, plan, 1,
                  [&](std::int64_t t, std::int64_t, std::int64_t mirror) SCANREC_LAMBDA {
                    const bool fetch = mirror - t < where.end;
                    auto at = whole_site(t, where.channel, plan);
                    auto ahead = whole_site(mirror - t, where.channel, plan);
                    for (std::int64_t i = 0; i < where.channels / lanes; ++i) {
                      if (fetch) r.template prefetch<lane>(ahead);
                      Item item = items[i];
                      body(at, item);
                      items[i] = item;
                      for (auto* s : {&at, &ahead}) s->channel += lanes, s->offset += lanes;
                    }
                  });
  }

  template <recurrence::reach Reach, class Item, class Body>
  static SCANREC_INLINE void sweep_columns(const R& r, const block& where, Item* items,
                                           const tile_plan& plan, Body body) {
    const std::int64_t steps = std::max(plan.prefetch_steps, tile_policy::steps_in_cache);
    for_stretches(where, plan, steps,
                  [&](std::int64_t first, std::int64_t last, std::int64_t mirror) SCANREC_LAMBDA {
                    for (std::int64_t c = 0; c < where.channels; c += lanes) {
                      Item item = items[c / lanes];
                      if constexpr (Reach == recurrence::reach::whole) {
                        auto at = whole_site(first, where.channel + c, plan);
                        auto ahead = whole_site(mirror - first, where.channel + c, plan);
                        for (; at.time < last; ++at.time, at.offset += at.step) {
                          if (ahead.time < where.end) r.template prefetch<lane>(ahead);
                          --ahead.time, ahead.offset -= ahead.step;
                          body(at, item);
                        }
                      } else {
                        const auto count =
                            static_cast<int>(std::min<std::int64_t>(lanes, where.channels - c));
                        for (std::int64_t t = first; t < last; ++t)
                          body(site{t, where.channel + c, count}, item);
                      }
                      items[c / lanes] = item;
                    }
                  });
  }

  static SCANREC_INLINE recurrence::site<along, recurrence::reach::whole> whole_site(
      std::int64_t time, std::int64_t channel, const tile_plan& plan) {
    return {time, channel, lanes, time * plan.dense.time + channel, plan.dense.time, false};
  }

  // Calls body(first, last, mirror) for stretches of `steps` steps. A descending walk prefetches
  // the next lower stretch in ascending address order, the only order that hardware prefetchers
  // follow over short runs: step t fetches step mirror - t. Without prefetch that is past the end.
  template <class Body>
  static SCANREC_INLINE void for_stretches(const block& where, const tile_plan& plan,
                                           std::int64_t steps, Body body) {
    const std::int64_t ahead = plan.prefetch_steps;
    for (std::int64_t t = where.begin; t < where.end; t += steps) {
      const std::int64_t last = std::min(t + steps, where.end);
      std::int64_t mirror = where.end + last;
      if (ahead > 0) mirror = 2 * (where.begin + (t - where.begin) / ahead * ahead + ahead) - 1;
      body(t, last, mirror);
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
