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
  using place = recurrence::place<recurrence::lane_axis::channel>;

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
    for_pieces(r, where, plan, false, [&](const R& piece, const block& b, tempo speed) {
      reduce_packs(piece, b, maps + (b.channel - where.channel) / lanes, speed);
    });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& r, const block& where, slot* slots, const tile_plan& plan) {
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, tempo speed) {
      walk_packs(piece, b, slots + (b.channel - where.channel) / lanes, speed);
    });
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

  /// In which order a kernel takes steps and packs.
  struct tempo {
    std::int64_t steps = 1;  // of one pack, before the next pack
    std::int64_t ahead = 0;  // prefetch this many steps ahead, in ascending address order
  };

  // Calls f(recurrence at the piece, piece, tempo) for the whole packs in place, and for what has to
  // be staged.
  template <class F>
  static SCANREC_INLINE void for_pieces(const R& r, const block& where, const tile_plan& plan,
                                        bool writes, F f) {
    block piece = where;
    piece.channels = plan.lanes.whole ? where.channels / lanes * lanes : 0;
    if (piece.channels > 0) {
      R here = r;
      seek(here, piece.begin, piece.channel);
      // From memory: row by row, so that arrays go by in address order. In cache, and where a row is
      // one pack: a few steps of a pack at a time, so that what is carried stays in registers.
      const std::int64_t steps = piece.channels > lanes ? plan.steps_per_carry : 32;
      f(here, piece, tempo{std::max(steps, steps > 1 ? plan.prefetch_steps : 1), plan.prefetch_steps});
    }
    constexpr std::int64_t rows = staged_block<R>::elements / lanes;
    for (std::int64_t c = piece.channels; c < where.channels; c += lanes)
      for (std::int64_t t = where.begin; t < where.end; t += rows) {
        piece = {t, std::min(t + rows, where.end), where.channel + c, count_of(where, c)};
        R here = r;
        seek(here, piece.begin, piece.channel);
        staged_block<R> staged(here, plan.lanes, piece, lanes, plan.shape.time,
                               writes);
        f(staged.recurrence(), piece, tempo{rows, 0});
        staged.write_back();
      }
  }

  // The kernels take the recurrence by value: a copy that no store can reach stays in registers.
  [[gnu::noinline]] static void reduce_packs(R r, block where, map* maps, tempo speed) {
    sweep(r, where, maps, speed, [&](place at, map& all) SCANREC_LAMBDA {
      all = combine(all, widen_map<carry>(r.map(r.template load<lane>(at))));
    });
  }
  [[gnu::noinline]] static void walk_packs(R r, block where, slot* slots, tempo speed) {
    sweep(r, where, slots, speed, [&](place at, slot& s) SCANREC_LAMBDA {
      const auto read = r.template load<lane>(at);
      const lane after = r.next(read, s.state);
      r.finish(at, read, s.state, after, s.sums);
      s.state = after;
    });
  }

  // Calls body(place, items[i]) for every step of every pack i, each pack's steps in order.
  //
  // A descending walk prefetches the next lower stretch in ascending address order, the only order
  // that hardware prefetchers follow over short runs: step t fetches step mirror - t.
  template <class Item, class Body>
  static SCANREC_INLINE void sweep(const R& r, const block& where, Item* items, tempo speed,
                                   Body body) {
    const std::int64_t rows = where.end - where.begin;
    for (std::int64_t row = 0; row < rows; row += speed.steps) {
      const std::int64_t last = std::min(row + speed.steps, rows);
      const std::int64_t mirror =
          speed.ahead == 0 ? 0 : 2 * (row / speed.ahead + 1) * speed.ahead - 1;
      for (std::int64_t c = 0; c < where.channels; c += lanes) {
        Item item = items[c / lanes];
        place at{where.begin + row, where.channel + c, row, c, count_of(where, c)};
        for (;;) {
          if (at.row < mirror - at.row && mirror - at.row < rows)
            r.template prefetch<lane>(at, mirror - 2 * at.row);
          body(at, item);
          if (++at.row == last) break;
          ++at.time;
        }
        items[c / lanes] = item;
      }
    }
  }

  static SCANREC_INLINE void seek(R& r, std::int64_t time, std::int64_t channel) {
    const auto move = [=](auto& field) SCANREC_LAMBDA { field.seek(time, channel); };
    R::for_reads(r, move), R::for_writes(r, move);
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
