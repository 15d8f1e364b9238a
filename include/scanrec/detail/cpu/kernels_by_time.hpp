// SPDX-License-Identifier: BSD-3-Clause
// Runs tiles with lanes along time: consecutive steps in one pack, scanned in registers.
//
// A pack has four vectors, of simd::lanes_v lanes each. The maps of neighbouring steps are composed
// until one vector of maps is left. It is scanned in log2(simd::lanes_v) doubling shifts, and the
// scanned maps are applied to the carry. The other states are then computed from these states.
//
// A pack is processed step by step if its lanes do not compose (at a reset or the edge of the
// sequence) or if its last state is not finite. Such a state may come from a product of factors
// that overflowed where the sequential loop stays finite, or that underflowed to 0 and turned an
// infinity into NaN. docs/numerics.md lists the cases that the last state does not show.
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
  /// Steps after which sums are flushed: each of their lanes has then added tile_policy::sum_steps
  /// terms.
  static constexpr std::int64_t flush_steps = tile_policy::sum_steps * lanes;
  /// Whether run() flushes its own sums.
  static constexpr bool flushes_itself = true;
  using lane = simd::lane_t<value, lanes>;
  using few = simd::lane_t<value, vector>;
  using wide_few = simd::lane_t<wide_t<value>, vector>;
  using scalar = simd::lane_t<value, 1>;
  using carry = typename kernels_by_time::affine_carries::carry;
  using map = affine<carry>;
  using assume = recurrence::assume;
  template <assume Assume>
  using position_if = recurrence::position<recurrence::lane_axis::time, Assume>;
  using position = position_if<assume::nothing>;

  /// The carry from pack to pack of one channel. Its size is the same on all instruction sets.
  struct alignas(may_sum<R> ? 64 : alignof(scalar)) slot {
    scalar state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };

  /// The map of all steps so far.
  struct reduction {
    map all;
    [[nodiscard]] const map& composed() const { return all; }
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      slots[i] = slot{r.template begin<scalar>(position{0, where.channel + i}), {}};
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i)
      r.end(position{where.end, where.channel + i}, slots[i].state);
  }
  static void flush(const R& r, const block& where, slot* slots) {
    for (std::int64_t i = 0; i < where.channels; ++i) flush_one(r, where, i, slots[i]);
  }

  static void clear(const block& where, reduction* reductions) {
    for (std::int64_t i = 0; i < where.channels; ++i) reductions[i].all = map::identity();
  }
  /// Composes the maps of the block's steps with those in `reductions`.
  static void reduce(const R& r, const block& where, reduction* reductions, const step_plan& plan) {
    for_time_pieces<lanes>(r, where, plan.lanes, plan.shape.time, false,
                           [&](const R& piece, const block& b) {
                             map& all = reductions[b.channel - where.channel].all;
                             all = combine(all, reduce_packs(piece, b, plan.lanes.reversed));
                           });
  }

  /// Processes the block from the states in `slots`, and writes every output once. If the block has
  /// more than `flush_steps` steps, sums are flushed on the way.
  static void run(const R& r, const block& where, slot* slots, const step_plan& plan) {
    const bool plain = assumption(r, plan.lanes) == assume::plain;
    const bool flushes = where.end - where.begin > flush_steps && sums_run(r);
    for_time_pieces<lanes>(
        r, where, plan.lanes, plan.shape.time, true, [&](const R& piece, const block& b) {
          const std::int64_t i = b.channel - where.channel;
          slot& own = slots[i];
          carry state = simd::to_wide<carry>(own.state);
          no_maps none;
          if (plain) {
            run_plain(piece, b, state, own, none, plan);
          } else {
            for (std::int64_t t = b.begin, end; t < b.end; t = end) {
              const std::int64_t next_flush = t + flush_steps - (t - where.begin) % flush_steps;
              end = flushes ? std::min(next_flush, b.end) : b.end;
              run_packs<assume::nothing>(piece, b, {t, end}, state, own, none, plan);
              if (flushes && end == next_flush && end < where.end) flush_one(r, where, i, own);
            }
          }
          own.state = simd::from_wide<scalar>(state);
        });
  }

  /// Runs and reduces all steps of a tile. Gives the same bits as reduce() and run(). Reads memory
  /// once under assume::plain (position.hpp) if outputs do not overwrite factors, otherwise twice.
  static void run_and_reduce(const R& r, const block& where, std::int64_t /*tile*/, slot* slots,
                             reduction* reductions, const step_plan& plan) {
    if (assumption(r, plan.lanes) != assume::plain || overwrites_factors(r)) {
      reduce(r, where, reductions, plan);
      return run(r, where, slots, plan);
    }
    for_time_pieces<lanes>(r, where, plan.lanes, plan.shape.time, true,
                           [&](const R& piece, const block& b) {
                             const std::int64_t i = b.channel - where.channel;
                             carry state = simd::to_wide<carry>(slots[i].state);
                             maps_of_packs maps;
                             run_plain(piece, b, state, slots[i], maps, plan);
                             maps = filled_up(piece, maps);
                             reductions[i].all = combine(reductions[i].all, maps.all);
                             slots[i].state = simd::from_wide<scalar>(state);
                           });
  }

 private:
  static void flush_one(const R& r, const block& where, std::int64_t i, slot& own) {
    r.flush(position{where.begin, where.channel + i, 0, 0, lanes}, own.sums);
  }

  // The map of all packs so far, except for up to three packs that wait for a fourth. Each pack is
  // composed down to a vector, four vectors to one vector, and the lanes of this vector to one map.
  //
  // The factor of four packs is computed again, in the wide type, if its absolute value exceeds 1/2
  // (see scan_states in maps/lane_scans.hpp). In this case these packs are read once more.
  struct maps_of_packs {
    static constexpr bool used = true;
    map all = map::identity();
    affine<few> one = affine<few>::identity(), two = one;
    position first{};  // of the first pack of the group of four
    int waiting = 0;   // packs in `one` and `two`
    int packs = 0;     // packs of the group that are not padding

    template <class Position>
    SCANREC_INLINE void add(const R& r, Position at, affine<few> m) {
      if (waiting == 0) first = {at.time, at.channel, at.row, at.index, lanes, at.reversed};
      ++packs;
      take(r, m);
    }
    SCANREC_INLINE void take(const R& r, affine<few> m) {
      if (waiting % 2 == 0) {
        one = m;
      } else {
        m = combine_packs(one, m);
        if (waiting < 2) {
          two = m;
        } else {
          affine<few> total = scan_lanes(combine_packs(two, m));
          carry a = simd::to_wide<carry>(simd::last(total.a));
          if constexpr (!std::is_same_v<carry, scalar>)
            if (simd::size_of(simd::last(total.a)) > 0.5f) a = factor_of_packs(r, first, packs);
          all = combine(all, map{a, simd::to_wide<carry>(simd::last(total.u))});
          packs = 0;
        }
      }
      waiting = (waiting + 1) % 4;
    }
  };
  struct no_maps {
    static constexpr bool used = false;
  };
  // Adds identity maps until the group of four packs is complete. Takes the maps by value, so that
  // the loop over packs keeps them in registers.
  [[gnu::noinline]] static maps_of_packs filled_up(const R& r, maps_of_packs maps) {
    while (maps.waiting != 0) maps.take(r, affine<few>::identity());
    return maps;
  }

  // The product of the factors of a pack, or of several packs, in the wide type. These functions
  // are out of line and load the maps again, so that the loop over packs need not keep the maps in
  // registers.
  template <class Position>
  [[gnu::noinline]] static carry factor_of(R r, Position at) {
    return simd::product(fold_factors<wide_few>(r.map(at, r.template load<lane>(at))));
  }
  [[gnu::noinline]] static carry factor_of_packs(R r, position at, int packs) {
    auto product = simd::constant<wide_few>(1);
    for (; packs > 0; --packs) {
      product = simd::mul(product, fold_factors<wide_few>(r.map(at, r.template load<lane>(at))));
      at.time += lanes, at.index += at.reversed ? -lanes : lanes;
    }
    return simd::product(product);
  }

  // The kernels take the recurrence by value: no store can alias the copy, so it stays in
  // registers.
  [[gnu::noinline]] static map reduce_packs(R r, block where, bool reversed) {
    maps_of_packs maps;
    sweep<assume::nothing>(
        r, where, {where.begin, where.end}, reversed,
        [&](auto at) SCANREC_LAMBDA {
          r.template touch_rest<lane>(at);
          affine<lane> of_pack = r.map(at, r.template load<lane>(at));
          maps.add(r, at, combine_lanes<vector>(of_pack));
        },
        [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
          maps = filled_up(r, maps);
          maps.all = combine(maps.all, reduce_steps(r, where, first, last));
        });
    return filled_up(r, maps).all;
  }

  // Steps [begin, end) of a piece.
  struct range {
    std::int64_t begin, end;
  };
  // Processes a piece under assume::plain, except for the pack whose neighbour is outside of the
  // sequence.
  template <class Maps>
  static void run_plain(const R& piece, const block& b, carry& state, slot& own, Maps& maps,
                        const step_plan& plan) {
    const std::int64_t last_pack = b.begin + (b.end - b.begin - 1) / lanes * lanes;
    const std::int64_t first =
        halo_of<R> < 0 && b.begin == 0 ? std::min(b.begin + lanes, b.end) : b.begin;
    const std::int64_t last = halo_of<R> > 0 && b.end == plan.shape.time ? last_pack : b.end;
    if constexpr (halo_of<R> < 0)
      run_packs<assume::nothing>(piece, b, {b.begin, first}, state, own, maps, plan);
    run_packs<assume::plain>(piece, b, {first, last}, state, own, maps, plan);
    if constexpr (halo_of < R >> 0)
      run_packs<assume::nothing>(piece, b, {last, b.end}, state, own, maps, plan);
  }
  // Processes packs, and composes their maps with `composed` unless that is no_maps.
  template <assume Assume, class Maps>
  [[gnu::noinline]] static void run_packs(R r, block where, range steps, carry& carried, slot& own,
                                          Maps& composed, const step_plan& plan) {
    carry state = carried;
    auto sums = own.sums;
    Maps maps = composed;
    const bool prefetches(plan.ahead);
    R there = r;
    bind_row(there, plan.ahead.group, plan.ahead.batch);
    there = standing_at(there, plan.ahead.time, plan.ahead.channel);
    const auto run_range = [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
      scalar x = simd::from_wide<scalar>(state);
      state = simd::to_wide<carry>(run_steps(r, where, first, last, x));
    };
    sweep<Assume>(
        r, where, steps, plan.lanes.reversed,
        [&](auto at) SCANREC_LAMBDA {
          if (prefetches) prefetch<lane>(there, at, 0);
          auto read = r.template load<lane>(at);
          affine<lane> of_pack = r.map(at, read);
          const auto factor = [&]() SCANREC_LAMBDA { return factor_of(r, at); };
          const auto seen = [&](const affine<few>& m) SCANREC_LAMBDA {
            if constexpr (Maps::used) maps.add(r, at, m);
          };
          auto states = scan_states<vector>(of_pack, state, factor, seen);
          if (states.finite) [[likely]] {
            r.finish(at, read, states.before, states.after, sums);
            state = states.last;
          } else {
            run_range(at.time, at.time + lanes);
          }
        },
        [&](std::int64_t first, std::int64_t last) SCANREC_LAMBDA {
          if constexpr (Maps::used) {
            maps = filled_up(r, maps);
            maps.all = combine(maps.all, reduce_steps(r, where, first, last));
          }
          run_range(first, last);
        });
    carried = state;
    own.sums = sums;
    composed = maps;
  }

  // Calls pack(position) for every pack whose lanes compose, and steps(first, last) for all other
  // steps.
  template <assume Assume, class Pack, class Steps>
  static SCANREC_INLINE void sweep(const R& r, const block& where, range of, bool reversed,
                                   Pack pack, Steps steps) {
    const std::int64_t before = of.begin - where.begin, next = reversed ? -lanes : lanes;
    position_if<Assume> at{of.begin, where.channel, 0, reversed ? 1 - lanes - before : before,
                           lanes,    reversed};
    for (; at.time + lanes <= of.end; at.time += lanes, at.index += next) {
      if (r.template composes<lanes>(at)) [[likely]]
        pack(at);
      else
        steps(at.time, at.time + lanes);
    }
    if (at.time < of.end) steps(at.time, of.end);
  }

  // The sequential loop over steps [first, last) of the block that `r` points at.
  [[gnu::noinline]] static scalar run_steps(R r, block where, std::int64_t first, std::int64_t last,
                                            scalar x) {
    typename R::template sums<scalar> sums{};
    for (position at = scalar_position(where, first); last > at.time; ++at.time, ++at.row) {
      auto read = r.template load<scalar>(at);
      scalar after = r.next(at, read, x);
      r.finish(at, read, x, after, sums);
      x = after;
    }
    r.flush(scalar_position(where, first), sums);
    return x;
  }
  [[gnu::noinline]] static map reduce_steps(R r, block where, std::int64_t first,
                                            std::int64_t last) {
    map all = map::identity();
    for (position at = scalar_position(where, first); last > at.time; ++at.time, ++at.row)
      all = combine(all, widen_map<carry>(r.map(at, r.template load<scalar>(at))));
    return all;
  }
  static position scalar_position(const block& where, std::int64_t time) {
    return {time, where.channel, time - where.begin};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
