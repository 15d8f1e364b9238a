// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along time: consecutive steps in one pack, scanned in registers.
//
// Packs are a few vectors long. Neighbouring steps are composed until one vector is left, which is
// scanned in log2(lanes) doubling shifts and acts on the carried state; the states in between
// follow on the way back. A pack is processed step by step where it does not compose (at a reset,
// at the edge of the sequence), and where its last state is not finite: a product may overflow
// where the loop stays finite, or vanish and drop an infinity. docs/numerics.md says which cases
// the last state does not show.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/maps/affine_carries.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct kernels_by_time : affine_carries<simd::lane_t<wide_t<typename R::value>, 1>> {
  using value = typename R::value;
  static constexpr int vector = simd::lanes_v<value>;
  static constexpr int lanes = 4 * vector;
  /// Steps that a pack may add up before its sums are drained.
  static constexpr std::int64_t drain_steps = tile_policy::sum_steps * lanes;
  /// Whether walk() drains its own sums.
  static constexpr bool drains_itself = true;
  using lane = simd::lane_t<value, lanes>;
  using few = simd::lane_t<value, vector>;
  using wide_few = simd::lane_t<wide_t<value>, vector>;
  using scalar = simd::lane_t<value, 1>;
  using carry = typename kernels_by_time::affine_carries::carry;
  using map = affine<carry>;
  using assume = recurrence::assume;
  template <assume Assume>
  using place_if = recurrence::place<recurrence::lane_axis::time, Assume>;
  using place = place_if<assume::nothing>;

  /// The carry from pack to pack for one channel. Its size is the same for all instruction sets.
  struct alignas(may_sum<R> ? 64 : alignof(scalar)) slot {
    scalar state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };

  /// The map of all steps so far.
  struct reduction {
    map all;
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
    for (std::int64_t i = 0; i < where.channels; ++i) drain_one(r, where, i, slots[i]);
  }

  static void clear(const block& where, reduction* reductions) {
    for (std::int64_t i = 0; i < where.channels; ++i) reductions[i].all = map::identity();
  }
  /// Composes the maps of the block's steps, in the wide type, after those in `reductions`.
  static void reduce(const R& r, const block& where, reduction* reductions, const tile_plan& plan) {
    for_time_pieces<lanes>(r, where, plan.lanes, plan.shape.time, false,
                           [&](const R& piece, const block& b) {
                             map& all = reductions[b.channel - where.channel].all;
                             all = combine(all, reduce_packs(piece, b, plan.lanes.reversed));
                           });
  }

  /// Walks the block from the states in `slots`, writing every output once. Sums of more than
  /// `drain_steps` are drained on the way.
  static void walk(const R& r, const block& where, slot* slots, const walk_plan& plan) {
    const auto walk_packs_of = assumption(r, plan.lanes) == assume::plain
                                   ? walk_packs<assume::plain>
                                   : walk_packs<assume::nothing>;
    const bool drains = where.end - where.begin > drain_steps && sums_run(r);
    for_time_pieces<lanes>(
        r, where, plan.lanes, plan.shape.time, true, [&](const R& piece, const block& b) {
          const std::int64_t i = b.channel - where.channel;
          slot& own = slots[i];
          carry state = simd::to_wide<carry>(own.state);
          const auto walk_from = [&](const R& at, const block& part) {
            walk_packs_of(at, part, state, own.sums, plan.lanes.reversed, plan.prefetch_steps);
          };
          if (!drains) {
            walk_from(piece, b);
          } else {
            for (std::int64_t t = b.begin, end; t < b.end; t = end) {
              const std::int64_t next_drain = t + drain_steps - (t - where.begin) % drain_steps;
              end = std::min(next_drain, b.end);
              walk_from(standing_at(piece, t - b.begin, 0), {t, end, b.channel, 1});
              if (end == next_drain && end < where.end) drain_one(r, where, i, own);
            }
          }
          own.state = simd::from_wide<scalar>(state);
        });
  }

 private:
  static void drain_one(const R& r, const block& where, std::int64_t i, slot& own) {
    r.drain(place{where.begin, where.channel + i, 0, 0, lanes}, own.sums);
  }

  // The kernels take the recurrence by value: a copy that no store can reach stays in registers.
  //
  // Packs are composed down to vectors, and four vectors to one, before lanes are composed one by
  // one in the wide type.
  [[gnu::noinline]] static map reduce_packs(R r, block where, bool reversed) {
    four_vectors maps;
    sweep<assume::nothing>(
        r, where, reversed,
        [&](auto at) SCANREC_LAMBDA {
          r.template touch_rest<lane>(at);
          const auto of_pack = r.map(at, r.template load<lane>(at));
          maps.factor = simd::mul(maps.factor, fold_factors<wide_few>(of_pack));
          maps.add(combine_lanes<vector>(affine<lane>(of_pack)));
        },
        [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
          maps = filled_up(maps);
          maps.all = combine(maps.all, reduce_steps(r, where, first, last));
        });
    return filled_up(maps).all;
  }
  // The map of all packs so far, except up to three vectors that wait for a fourth.
  struct four_vectors {
    map all = map::identity();
    affine<few> one = affine<few>::identity(), two = one;
    wide_few factor = simd::constant<wide_few>(1);  // of the packs added
    int waiting = 0;                                // vectors in `one` and `two`

    SCANREC_INLINE void add(affine<few> m) {
      if (waiting % 2 == 0) {
        one = m;
      } else {
        m = combine_packs(one, m);
        if (waiting < 2) {
          two = m;
        } else {
          const affine<few> total = scan_lanes(combine_packs(two, m));
          all = combine(all, map{simd::product(factor), simd::to_wide<carry>(simd::last(total.u))});
          factor = simd::constant<wide_few>(1);
        }
      }
      waiting = (waiting + 1) % 4;
    }
  };
  // By value, so that the vectors of the loop over packs stay in registers.
  [[gnu::noinline]] static four_vectors filled_up(four_vectors maps) {
    while (maps.waiting != 0) maps.add(affine<few>::identity());
    return maps;
  }

  // Out of line, so that the maps need not be kept for it.
  template <class Place>
  [[gnu::noinline]] static carry factor_of(R r, Place at) {
    return simd::product(fold_factors<wide_few>(r.map(at, r.template load<lane>(at))));
  }

  template <assume Assume>
  [[gnu::noinline]] static void walk_packs(R r, block where, carry& carried,
                                           typename R::template sums<lane>& running, bool reversed,
                                           std::int64_t prefetch_steps) {
    carry state = carried;
    auto sums = running;
    const auto walk_range = [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
      const scalar x = simd::from_wide<scalar>(state);
      state = simd::to_wide<carry>(walk_steps(r, where, first, last, x));
    };
    sweep<Assume>(
        r, where, reversed,
        [&](auto at) SCANREC_LAMBDA {
          if (prefetch_steps > 0) prefetch<lane>(r, at, prefetch_steps);
          const auto read = r.template load<lane>(at);
          const affine<lane> maps = r.map(at, read);
          const auto factor = [&]() SCANREC_LAMBDA { return factor_of(r, at); };
          const auto states = scan_states<vector>(maps, state, factor);
          if (states.finite) [[likely]] {
            r.finish(at, read, states.before, states.after, sums);
            state = states.last;
          } else {
            walk_range(at.time, at.time + lanes);
          }
        },
        walk_range);
    carried = state;
    running = sums;
  }

  // Calls pack(place) for every pack that composes, and steps(first, last) for the steps in
  // between.
  template <assume Assume, class Pack, class Steps>
  static SCANREC_INLINE void sweep(const R& r, const block& where, bool reversed, Pack pack,
                                   Steps steps) {
    place_if<Assume> at{where.begin, where.channel, 0, reversed ? 1 - lanes : 0, lanes, reversed};
    const std::int64_t next = reversed ? -lanes : lanes;
    for (; at.time + lanes <= where.end; at.time += lanes, at.index += next) {
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
    for (place at = scalar_place(where, first); last > at.time; ++at.time, ++at.row) {
      const auto read = r.template load<scalar>(at);
      const scalar after = r.next(at, read, x);
      r.finish(at, read, x, after, sums);
      x = after;
    }
    r.drain(scalar_place(where, first), sums);
    return x;
  }
  [[gnu::noinline]] static map reduce_steps(R r, block where, std::int64_t first,
                                            std::int64_t last) {
    map all = map::identity();
    for (place at = scalar_place(where, first); last > at.time; ++at.time, ++at.row)
      all = combine(all, widen_map<carry>(r.map(at, r.template load<scalar>(at))));
    return all;
  }
  static place scalar_place(const block& where, std::int64_t time) {
    return {time, where.channel, time - where.begin};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
