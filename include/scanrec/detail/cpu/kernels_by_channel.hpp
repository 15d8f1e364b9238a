// SPDX-License-Identifier: BSD-3-Clause
// Walking tiles with lanes along the channels: each lane walks time in order, as the plain loop
// does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/channel_packs.hpp>
#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/maps/affine_carries.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct kernels_by_channel
    : affine_carries<simd::lane_t<wide_t<typename R::value>, walked_lanes_of<R>>> {
  using loops = channel_packs<R>;
  using value = typename loops::value;
  static constexpr int lanes = loops::lanes;
  using lane = typename loops::lane;
  using slot = typename loops::slot;
  using carry = typename kernels_by_channel::affine_carries::carry;
  using map = affine<carry>;
  using assume = recurrence::assume;
  template <assume Assume>
  using place_if = typename loops::template place_if<Assume>;
  using place = typename loops::place;

  /// Steps that a lane may add up before its sums are drained.
  static constexpr std::int64_t drain_steps = tile_policy::sum_steps;
  static constexpr bool drains_itself = false;

  /// Packs that are walked side by side, as the lanes of one wider pack.
  static constexpr int abreast =
      std::max(1, R::registers_abreast* simd::leaf_count<lane> / simd::lane_count<lane> /
                      (simd::is_complex_lanes<lane> ? 2 : 1));
  /// Steps composed in the compute type before they are folded into the wide type; also the steps
  /// walked of a pack at a time where a row has few packs.
  static constexpr std::int64_t few_steps = 32;
  /// The map of at most the last few steps: the factor in the wide type (see scan_states).
  struct recent_steps {
    carry factor;
    lane u;
  };
  /// What is composed from step to step for one pack of channels.
  struct reduction {
    map all;  // of the steps before the recent ones
    recent_steps recent;
  };

  static void begin(const R& r, const block& where, slot* slots) {
    loops::for_packs(where, 0, [&](std::int64_t i, place at) {
      slots[i] = slot{r.template begin<lane>(at), {}};
    });
  }
  static void end(const R& r, const block& where, const slot* slots) {
    loops::for_packs(where, where.end,
                     [&](std::int64_t i, place at) { r.end(at, slots[i].state); });
  }
  static void drain(const R& r, const block& where, slot* slots) {
    loops::for_packs(where, where.begin,
                     [&](std::int64_t i, place at) { r.drain(at, slots[i].sums); });
  }
  static void clear(const block& where, reduction* reductions) {
    loops::for_packs(where, 0, [&](std::int64_t i, place) { reductions[i].all = map::identity(); });
  }

  /// Composes the maps of the block's steps, in the wide type, after those in `reductions`.
  static void reduce(const R& r, const block& where, reduction* reductions, const tile_plan& plan) {
    for_pieces(r, where, plan, false, [&](const R& piece, const block& b, std::int64_t steps) {
      reduction* const own = reductions + (b.channel - where.channel) / lanes;
      reduce_packs(piece, b, own, {steps, plan.descending});
    });
  }

  /// Walks the block from the states in `slots`, writing every output once.
  static void walk(const R& r, const block& where, slot* slots, const walk_plan& plan) {
    const assume known = known_of(r, where, plan);
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, std::int64_t steps) {
      slot* const own = slots + (b.channel - where.channel) / lanes;
      walk_piece(piece, b, own, known, plan.shape.time,
                 {steps, plan.descending, plan.prefetch_steps});
    });
  }

  /// Both, a few steps at a time, so that memory is read once. Same bits as one after the other.
  static void walk_and_reduce(const R& r, const block& where, slot* slots, reduction* reductions,
                              const tile_plan& plan) {
    const assume known = known_of(r, where, plan);
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, std::int64_t steps) {
      const std::int64_t first = (b.channel - where.channel) / lanes;
      const course way{steps, plan.descending, plan.prefetch_steps};
      R at = piece;
      for (block few = b; few.begin < b.end; few.begin = few.end) {
        few.end = std::min(few.begin + (by_rows(b) ? few_steps : 8 * few_steps), b.end);
        const bool inside =
            known == assume::plain && !reaches_over(few, halo_of<R>, plan.shape.time);
        if (!walk_composing(at, few, slots + first, reductions + first, inside, way)) {
          reduce_packs(at, few, reductions + first, way);
          walk_piece(at, few, slots + first, known, plan.shape.time, way);
        }
        at = standing_at(at, few.end - few.begin, 0);
      }
    });
  }

 private:
  using course = typename loops::course;
  static constexpr bool has_sums = loops::has_sums;

  // Calls f(recurrence at the piece, piece, steps to take of a pack before the next) for the whole
  // packs in place, and for what has to be staged.
  template <class F>
  static SCANREC_INLINE void for_pieces(const R& r, const block& where, const walk_plan& plan,
                                        bool writes, F f) {
    for_channel_pieces<lanes>(r, where, plan.lanes, plan.shape.time, writes,
                              [&](const R& piece, const block& b) {
                                // From memory: row by row, so that arrays go by in address order.
                                // In cache, and where a row is few packs: some steps of these at a
                                // time, so that what is carried stays in registers.
                                const bool few = b.channels <= abreast * lanes;
                                f(piece, b, few ? few_steps : plan.steps_per_carry);
                              });
  }

  static assume known_of(const R& r, const block& where, const walk_plan& plan) {
    return where.channels % lanes == 0 ? assumption(r, plan.lanes) : assume::nothing;
  }
  static void walk_piece(const R& piece, const block& b, slot* own, assume known,
                         std::int64_t sequence_steps, course way) {
    if (known == assume::nothing) return walk_packs<assume::nothing>(piece, b, own, way);
    // The step whose neighbour lies outside the sequence is walked on its own.
    for_edges(piece, b, sequence_steps, [&](const R& at, const block& part, bool inside) {
      if (inside && known == assume::plain)
        walk_inside<assume::plain>(at, part, own, way);
      else if (R::walks_whole && inside)
        walk_inside<R::walks_whole ? assume::whole : assume::nothing>(at, part, own, way);
      else
        walk_packs<assume::nothing>(at, part, own, way);
    });
  }

  // The kernels copy the recurrence: what no store can reach stays in registers. (A parameter
  // passed by value is not always enough: where GCC passes it by reference, it is read again and
  // again.)
  //
  // A few steps are composed in the compute type before the wide type takes them.
  [[gnu::noinline]] static void reduce_packs(const R& given, block where, reduction* reductions,
                                             course way) {
    R r = given;
    for (block few = where; few.begin < where.end; few.begin = few.end) {
      few.end = std::min(few.begin + few_steps, where.end);
      begin_recent(where, reductions);
      const auto take = [&](auto at, recent_steps& recent) SCANREC_LAMBDA {
        r.template touch_rest<lane>(at);
        compose(r.map(at, r.template load<lane>(at)), recent);
      };
      if (by_rows(where))
        loops::template for_rows<assume::nothing>(few, way,
                                                  [&](auto at, std::int64_t i) SCANREC_LAMBDA {
                                                    recent_steps recent = reductions[i].recent;
                                                    take(at, recent);
                                                    reductions[i].recent = recent;
                                                  });
      else
        loops::template sweep<assume::nothing, 1>(
            few, way, [=](std::int64_t i, auto) SCANREC_LAMBDA { return reductions[i].recent; },
            take,
            [=](std::int64_t i, const recent_steps& recent)
                SCANREC_LAMBDA { reductions[i].recent = recent; });
      add_recent(where, reductions);
      r = standing_at(r, few.end - few.begin, 0);
    }
  }
  static SCANREC_INLINE void begin_recent(const block& where, reduction* reductions) {
    loops::for_packs(where, 0, [&](std::int64_t i, place) {
      reductions[i].recent = {simd::constant<carry>(1), simd::constant<lane>(0)};
    });
  }
  template <class Map>
  static SCANREC_INLINE void compose(const Map& step, recent_steps& recent) {
    recent.factor = simd::mul(recent.factor, wide_factor<carry>(step));
    recent.u = step.act(recent.u);
  }
  static SCANREC_INLINE void add_recent(const block& where, reduction* reductions) {
    loops::for_packs(where, 0, [&](std::int64_t i, place) {
      const recent_steps& recent = reductions[i].recent;
      reductions[i].all =
          combine(reductions[i].all, map{recent.factor, simd::to_wide<carry>(recent.u)});
    });
  }

  // Walks a few steps and composes their maps as it goes, row by row, where no more than a fused
  // multiply-add is in a step and nothing is in the way; else returns false and does nothing.
  static bool walk_composing(const R& r, const block& where, slot* slots, reduction* reductions,
                             bool plain, course way) {
    if constexpr (short_steps) {
      if (!plain || !by_rows(where)) return false;
      begin_recent(where, reductions);
      walk_and_compose(r, where, slots, reductions, way);
      add_recent(where, reductions);
      return true;
    } else {
      return false;
    }
  }
  // Whether a tile is reduced row by row, as memory has it: not where steps are long, nor where
  // they would wait for what one or two packs carry through memory.
  static constexpr bool short_steps = R::registers_abreast > 1;
  static bool by_rows(const block& where) { return short_steps && where.channels > 2 * lanes; }
  [[gnu::noinline]] static void walk_and_compose(const R& given, block where, slot* slots,
                                                 reduction* reductions, course way) {
    const R r = given;
    loops::template for_rows<assume::plain>(where, way,
                                            [&](auto at, std::int64_t i) SCANREC_LAMBDA {
                                              if (way.prefetch > 0)
                                                prefetch<lane>(r, at, way.prefetch);
                                              typename R::template sums<lane> none{};
                                              recent_steps recent = reductions[i].recent;
                                              const lane before = slots[i].state;
                                              const auto read = r.template load<lane>(at);
                                              const lane after = r.next(at, read, before);
                                              compose(r.map(at, read), recent);
                                              r.finish(at, read, before, after, none);
                                              slots[i].state = after;
                                              reductions[i].recent = recent;
                                            });
  }
  // From memory a row is walked from end to end before the next: descending walks that rise within
  // groups of packs defeat hardware prefetchers (the adjoint took 1.7 times as long). In cache some
  // steps of a pack are walked at a time, or of packs side by side: as many as there are registers,
  // so not where their lanes are added up, in an order that must not depend on that.
  template <assume Assume>
  static void walk_inside(const R& r, const block& where, slot* slots, course way) {
    if (way.steps == 1 || way.prefetch > 0 || sums_at_once(r))
      walk_rows<Assume>(r, where, slots, way);
    else
      walk_packs<Assume, abreast>(r, where, slots, way);
  }
  template <assume Assume>
  [[gnu::noinline]] static void walk_rows(const R& given, block where, slot* slots, course way) {
    const R r = given;
    const std::int64_t rows = where.end - where.begin, packs = where.channels / lanes;
    const std::int64_t first = way.descending ? packs - 1 : 0, next = way.descending ? -1 : 1;
    const std::int64_t end = way.descending ? -1 : packs;
    const auto walk_row = [&](std::int64_t row, auto prefetches) SCANREC_LAMBDA {
      for (std::int64_t i = first; i != end; i += next) {
        const std::int64_t c = i * lanes;
        const place_if<Assume> at{where.begin + row, where.channel + c, row, c, lanes};
        if (prefetches) prefetch<lane>(r, at, way.prefetch);
        typename R::template sums<lane> sums{};
        if constexpr (Assume != assume::plain && has_sums) r.copy_sums(slots[i].sums, sums);
        const lane before = slots[i].state;
        const auto read = r.template load<lane>(at);
        const lane after = r.next(at, read, before);
        r.finish(at, read, before, after, sums);
        slots[i].state = after;
        if constexpr (Assume != assume::plain && has_sums) r.copy_sums(sums, slots[i].sums);
      }
    };
    // Two loops: what a prefetch takes of registers and instructions is felt by the smallest types.
    if (way.prefetch > 0)
      for (std::int64_t row = 0; row < rows; ++row) walk_row(row, std::true_type{});
    else
      for (std::int64_t row = 0; row < rows; ++row) walk_row(row, std::false_type{});
  }
  template <assume Assume, int Abreast = 1>
  [[gnu::noinline]] static void walk_packs(const R& given, block where, slot* slots, course way) {
    const R r = given;
    const auto walk_step = [&]<class Lane>(auto at, Lane state, auto& sums) SCANREC_LAMBDA {
      if (Assume == assume::nothing && way.prefetch > 0) prefetch<Lane>(r, at, way.prefetch);
      const auto read = r.template load<Lane>(at);
      const Lane after = r.next(at, read, state);
      r.finish(at, read, state, after, sums);
      return after;
    };
    if (where.begin == where.end) return;
    if constexpr (Assume == assume::plain) {
      // No running sums: the state alone is carried.
      loops::template sweep<Assume, Abreast>(
          where, way,
          [=](std::int64_t i, auto packs)
              SCANREC_LAMBDA { return loops::template states_of<packs.value>(slots + i); },
          [&]<class Lane>(auto at, Lane& state) SCANREC_LAMBDA {
            typename R::template sums<Lane> none{};
            state = walk_step(at, state, none);
          },
          [=](std::int64_t i, auto state) SCANREC_LAMBDA { loops::put_states(slots + i, state); });
    } else {
      loops::template sweep<Assume, Abreast>(
          where, way,
          [&](std::int64_t i, auto packs)
              SCANREC_LAMBDA { return loops::template take_slots<packs.value>(r, slots + i); },
          [&](auto at, auto& s) SCANREC_LAMBDA { s.state = walk_step(at, s.state, s.sums); },
          [&](std::int64_t i, const auto& s)
              SCANREC_LAMBDA { loops::give_slots(r, s, slots + i); });
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
