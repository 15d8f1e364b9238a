// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along the channels: each lane walks time in order, as the plain loop
// does.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/backend/stage.hpp>
#include <scanrec/backend/tile_plan.hpp>
#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct channel_lanes {
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using carry = simd::lane_t<wide_t<value>, lanes>;
  using map = affine<carry>;
  using assume = recurrence::assume;
  template <assume Assume>
  using place_if = recurrence::place<recurrence::lane_axis::channel, Assume>;
  using place = place_if<assume::nothing>;

  static constexpr bool has_sums = !std::is_empty_v<typename R::template sums<lane>>;

  /// What is carried from step to step for one pack of channels.
  struct slot {
    lane state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for_packs(where, 0, [&](std::int64_t i, place at) {
      slots[i] = slot{r.template begin<lane>(at), {}};
    });
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for_packs(where, where.end, [&](std::int64_t i, place at) { r.end(at, slots[i].state); });
  }
  static void drain(const R& r, const block& where, slot* slots) {
    for_packs(where, where.begin, [&](std::int64_t i, place at) { r.drain(at, slots[i].sums); });
  }

  /// Composes the maps of the block's steps, in the wide type.
  static void reduce(const R& r, const block& where, map* maps, const tile_plan& plan) {
    for_packs(where, 0, [&](std::int64_t i, place) { maps[i] = map::identity(); });
    const auto reduce_piece = [&](const R& piece, const block& b, std::int64_t, const R*) {
      const bool whole = b.end - b.begin == where.end - where.begin;
      reduce_packs(piece, b, maps + (b.channel - where.channel) / lanes, plan.descending && whole);
    };
    for_pieces(r, where, plan, false, nullptr, reduce_piece);
  }

  /// Walks the block from the states in `slots`, writing every output once. `upcoming` is the
  /// recurrence at the first element of the block to come, or null.
  static void walk(const R& r, const block& where, slot* slots, const tile_plan& plan,
                   const R* upcoming) {
    const assume known = where.channels % lanes == 0 ? assumption(r, plan.lanes) : assume::nothing;
    const auto walk_piece = [&](const R& piece, const block& b, std::int64_t steps, const R* next) {
      slot* const own = slots + (b.channel - where.channel) / lanes;
      const lookahead<R> ahead{next, plan.descending};
      if (known == assume::nothing) return walk_packs<assume::nothing>(piece, b, own, steps, ahead);
      // The step whose neighbour lies outside the sequence is walked on its own.
      block first = b, inner = b, last = b;
      first.end = inner.begin = b.begin + (R::halo < 0 && b.begin == 0 ? 1 : 0);
      inner.end = last.begin = b.end - (R::halo > 0 && b.end == plan.shape.time ? 1 : 0);
      const auto at = [&](const block& part) {
        return standing_at(piece, part.begin - b.begin, 0);
      };
      walk_packs<assume::nothing>(piece, first, own, 1, {});
      if (known == assume::plain)
        walk_packs<assume::plain>(at(inner), inner, own, steps, ahead);
      else if constexpr (has_sums)
        walk_packs<assume::sums>(at(inner), inner, own, steps, ahead);
      else
        walk_packs<assume::nothing>(at(inner), inner, own, steps, ahead);
      walk_packs<assume::nothing>(at(last), last, own, 1, {});
    };
    for_pieces(r, where, plan, true, upcoming, walk_piece);
  }

 private:
  template <class F>
  static SCANREC_INLINE void for_packs(const block& where, std::int64_t time, F f) {
    for (std::int64_t c = 0; c < where.channels; c += lanes)
      f(c / lanes, place{time, where.channel + c, 0, c, count_of(where, c)});
  }
  static SCANREC_INLINE int count_of(const block& where, std::int64_t c) {
    return static_cast<int>(std::min<std::int64_t>(lanes, where.channels - c));
  }

  // Whether running sums are carried along with the state.
  static bool summing(const R& r) {
    bool any = false;
    R::for_writes(r, [&](const auto& out) { any |= out.action == recurrence::write::sum_time; });
    return any;
  }

  // Calls f(recurrence at the piece, piece, steps to take of one pack before the next, recurrence
  // at the piece to come) for the whole packs in place, and for what has to be staged.
  template <class F>
  static SCANREC_INLINE void for_pieces(const R& r, const block& where, const tile_plan& plan,
                                        bool writes, const R* upcoming, F f) {
    block piece = where;
    piece.channels = plan.lanes.whole ? where.channels / lanes * lanes : 0;
    if (piece.channels > 0) {
      // From memory: row by row, so that arrays go by in address order. In cache, and where a row
      // is one pack: a few steps of a pack at a time, so that what is carried stays in registers.
      const std::int64_t steps = piece.channels > lanes ? plan.steps_per_carry : 32;
      const std::int64_t stretch =
          writes && plan.stretch_steps > 0 ? plan.stretch_steps : where.end - where.begin;
      R next = standing_at(r, where.begin, where.channel);
      for (std::int64_t t = where.begin; t < where.end; t += stretch) {
        const R here = next;
        piece.begin = t;
        piece.end = std::min(t + stretch, where.end);
        const bool more = piece.end < where.end;
        if (more) next = standing_at(r, piece.end, where.channel);
        f(here, piece, steps, plan.stretch_steps == 0 ? nullptr : more ? &next : upcoming);
      }
    }
    constexpr std::int64_t rows = staged_block<R>::elements / lanes;
    for (std::int64_t c = piece.channels; c < where.channels; c += lanes)
      for (std::int64_t t = where.begin; t < where.end; t += rows) {
        piece = {t, std::min(t + rows, where.end), where.channel + c, count_of(where, c)};
        staged_block<R> staged(standing_at(r, piece.begin, piece.channel), plan.lanes, piece, lanes,
                               plan.shape.time, writes);
        f(staged.recurrence(), piece, rows, nullptr);
        staged.write_back();
      }
  }

  // The kernels take the recurrence by value: a copy that no store can reach stays in registers.
  //
  // A few steps are composed in the compute type before the wide type takes them, but for the
  // factor (see scan_states). Maps compose from either end, so rows are taken in ascending address
  // order whichever way the scan runs: hardware prefetchers follow, and what reduce reads, walk
  // finds in the cache.
  [[gnu::noinline]] static void reduce_packs(R r, block where, map* maps, bool descending) {
    constexpr std::int64_t few_steps = 32;
    const std::int64_t rows = where.end - where.begin;
    for (std::int64_t row = 0; row < rows; row += few_steps)
      for (std::int64_t c = 0; c < where.channels; c += lanes) {
        affine<lane> few = affine<lane>::identity();
        carry factor = simd::constant<carry>(1);
        for (std::int64_t i = row; i < std::min(row + few_steps, rows); ++i) {
          const std::int64_t here = descending ? rows - 1 - i : i;
          const place at{where.begin + here, where.channel + c, here, c, count_of(where, c)};
          r.template touch_rest<lane>(at);
          const affine<lane> m = r.map(at, r.template load<lane>(at));
          few = descending ? combine(m, few) : combine(few, m);
          factor = simd::mul(factor, simd::to_wide<carry>(m.a));
        }
        map& all = maps[c / lanes];
        const map wide{factor, simd::to_wide<carry>(few.u)};
        all = descending ? combine(wide, all) : combine(all, wide);
      }
  }
  template <assume Assume>
  [[gnu::noinline]] static void walk_packs(R r, block where, slot* slots, std::int64_t steps,
                                           lookahead<R> ahead) {
    const auto walk_step = [&](auto at, lane state, auto& sums) SCANREC_LAMBDA {
      ahead.template fetch<lane>(at, where.end - where.begin);
      const auto read = r.template load<lane>(at);
      const lane after = r.next(at, read, state);
      r.finish(at, read, state, after, sums);
      return after;
    };
    if (where.begin == where.end) return;
    if constexpr (Assume == assume::plain) {
      // No running sums: the state alone is carried.
      sweep<Assume>(
          where, steps, [=](std::int64_t i) SCANREC_LAMBDA { return slots[i].state; },
          [&](auto at, lane& state) SCANREC_LAMBDA {
            typename R::template sums<lane> none{};
            state = walk_step(at, state, none);
          },
          [=](std::int64_t i, lane state) SCANREC_LAMBDA { slots[i].state = state; });
    } else {
      sweep<Assume>(
          where, steps, [=](std::int64_t i) SCANREC_LAMBDA { return slots[i]; },
          [&](auto at, slot& s) SCANREC_LAMBDA { s.state = walk_step(at, s.state, s.sums); },
          [=](std::int64_t i, const slot& s) SCANREC_LAMBDA { slots[i] = s; });
    }
  }

  // Calls body(place, carried) for every step of every pack i, `steps` of one pack, then of the
  // next; between take(i) and give(i, carried).
  template <assume Assume, class Take, class Body, class Give>
  static SCANREC_INLINE void sweep(const block& where, std::int64_t steps, Take take, Body body,
                                   Give give) {
    const std::int64_t rows = where.end - where.begin;
    for (std::int64_t row = 0; row < rows; row += steps) {
      const std::int64_t last = std::min(row + steps, rows);
      for (std::int64_t c = 0; c < where.channels; c += lanes) {
        auto carried = take(c / lanes);
        place_if<Assume> at{where.begin + row, where.channel + c, row, c,
                            Assume == assume::plain ? lanes : count_of(where, c)};
        for (;;) {
          body(at, carried);
          if (++at.row == last) break;
          ++at.time;
        }
        give(c / lanes, carried);
      }
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
