// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along time: consecutive steps in one pack, scanned in registers.
//
// A pack of maps is scanned in log2(lanes) doubling shifts, then acts on the carried state at once.
// Where the result is not finite (a product that overflowed while the loop would stay finite, an
// infinity that a vanishing product would drop) and where a pack does not compose (a cut, the edge
// of the sequence) the pack is walked step by step.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/backend/stage.hpp>
#include <scanrec/backend/tile_plan.hpp>
#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct time_lanes {
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using scalar = simd::lane_t<value, 1>;
  using carry = simd::lane_t<wide_t<value>, 1>;
  using map = affine<carry>;
  using place = recurrence::place<recurrence::lane_axis::time>;

  /// What is carried from pack to pack for one channel.
  struct slot {
    scalar state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      slots[i] = slot{r.template begin<scalar>(place{0, where.channel + i}), {}};
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      r.end(place{where.end, where.channel + i}, slots[i].state);
  }
  static void drain(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      r.drain(place{where.begin, where.channel + i, 0, 0, lanes}, slots[i].sums);
  }

  /// Composes the maps of the block's steps, in the wide type.
  static void reduce(const R& r, const block& where, map* maps, const tile_plan& plan) {
    for (std::int64_t i = 0; i < where.channels; ++i) maps[i] = map::identity();
    for_pieces(r, where, plan, false, [&](const R& piece, const block& b, std::int64_t ahead) {
      map& all = maps[b.channel - where.channel];
      all = combine(all, reduce_packs(piece, b, plan.lanes.reversed, ahead));
    });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& r, const block& where, slot* slots, const tile_plan& plan) {
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, std::int64_t ahead) {
      walk_packs(piece, b, slots[b.channel - where.channel], plan.lanes.reversed, ahead);
    });
  }

 private:
  // Calls f(recurrence at the piece, piece of one channel, prefetch distance), each channel's pieces
  // in order.
  template <class F>
  static SCANREC_INLINE void for_pieces(const R& r, const block& where, const tile_plan& plan,
                                        bool writes, F f) {
    const std::int64_t steps =
        plan.lanes.whole ? where.end - where.begin : staged_block<R>::elements;
    for (std::int64_t i = 0; i < where.channels; ++i)
      for (std::int64_t t = where.begin; t < where.end; t += steps) {
        const block piece{t, std::min(t + steps, where.end), where.channel + i, 1};
        R here = r;
        const auto seek = [&](auto& field) { field.seek(t, piece.channel); };
        R::for_reads(here, seek), R::for_writes(here, seek);
        if (plan.lanes.whole) {
          f(here, piece, plan.prefetch_steps * lanes);
        } else {
          staged_block<R> staged(here, plan.lanes, piece, lanes, plan.shape.time,
                               writes);
          f(staged.recurrence(), piece, 0);
          staged.write_back();
        }
      }
  }

  [[gnu::noinline]] static map reduce_packs(R r, block where, bool reversed, std::int64_t ahead) {
    map all = map::identity();
    sweep(
        r, where, reversed, ahead,
        [&](place at) SCANREC_LAMBDA {
          const auto m = scan_lanes(r.map(r.template load<lane>(at)));
          all = combine(all, widen_map<carry>(affine<scalar>{simd::last(m.a), simd::last(m.u)}));
        },
        [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
          all = combine(all, reduce_steps(r, where, first, last));
        });
    return all;
  }

  [[gnu::noinline]] static void walk_packs(R r, block where, slot& carried, bool reversed,
                                           std::int64_t ahead) {
    lane state = simd::splat<lane>(carried.state);
    auto sums = carried.sums;
    sweep(
        r, where, reversed, ahead,
        [&](place at) SCANREC_LAMBDA {
          const auto read = r.template load<lane>(at);
          const lane after = scan_lanes(r.map(read)).act(state);
          if (simd::all_zero(simd::zero_if_finite(after))) [[likely]] {
            r.finish(at, read, simd::slide_in<1>(state, after), after, sums);
            state = simd::splat_last(after);
          } else {
            const scalar x = simd::last(state);
            state = simd::splat<lane>(walk_steps(r, where, at.time, at.time + lanes, x));
          }
        },
        [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
          const scalar x = simd::last(state);
          state = simd::splat<lane>(walk_steps(r, where, first, last, x));
        });
    carried.state = simd::last(state);
    carried.sums = sums;
  }

  // Calls pack(place) for every pack that composes and steps(first, last) for what lies between.
  // As along channels, a descending walk fetches the next stretch in ascending order.
  template <class Pack, class Steps>
  static SCANREC_INLINE void sweep(const R& r, const block& where, bool reversed,
                                   std::int64_t ahead, Pack pack, Steps steps) {
    place at{where.begin, where.channel, 0, reversed ? 1 - lanes : 0, lanes, reversed};
    const std::int64_t stride = reversed ? -lanes : lanes;
    std::int64_t mirror = 0;
    for (; at.time + lanes <= where.end; at.time += lanes, at.index += stride) {
      if (ahead > 0) {
        if ((at.time - where.begin) % ahead == 0) mirror = 2 * (at.time + ahead) - lanes;
        if (mirror - at.time + lanes <= where.end)
          r.template prefetch<lane>(at, mirror - 2 * at.time);
      }
      if (r.template composes<lanes>(at)) [[likely]]
        pack(at);
      else
        steps(at.time, at.time + lanes);
    }
    if (at.time < where.end) steps(at.time, where.end);
  }

  // The plain loop over steps [first, last) of the block where `r` stands.
  [[gnu::noinline]] static scalar walk_steps(R r, block where, std::int64_t first,
                                             std::int64_t last, scalar x) {
    typename R::template sums<scalar> sums{};
    for (place at = scalar_place(where, first); at.time < last; ++at.time, ++at.row) {
      const auto read = r.template load<scalar>(at);
      const scalar after = r.next(read, x);
      r.finish(at, read, x, after, sums);
      x = after;
    }
    r.drain(scalar_place(where, first), sums);
    return x;
  }
  [[gnu::noinline]] static map reduce_steps(R r, block where, std::int64_t first,
                                            std::int64_t last) {
    map all = map::identity();
    for (place at = scalar_place(where, first); at.time < last; ++at.time, ++at.row)
      all = combine(all, widen_map<carry>(r.map(r.template load<scalar>(at))));
    return all;
  }
  static place scalar_place(const block& where, std::int64_t time) {
    return {time, where.channel, time - where.begin};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
