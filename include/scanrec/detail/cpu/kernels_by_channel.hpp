// SPDX-License-Identifier: BSD-3-Clause
// Runs tiles with lanes along the channels. Each lane processes time in order, like the sequential
// loop. In this file, a row is one step of all channels of a block.
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
    : affine_carries<simd::lane_t<wide_t<typename R::value>, run_lanes_of<R>>> {
  using loops = channel_packs<R>;
  using value = typename loops::value;
  static constexpr int lanes = loops::lanes;
  using lane = typename loops::lane;
  using slot = typename loops::slot;
  using carry = typename kernels_by_channel::affine_carries::carry;
  using map = affine<carry>;
  using assume = recurrence::assume;
  template <assume Assume>
  using position_if = typename loops::template position_if<Assume>;
  using position = typename loops::position;

  /// Steps whose terms a lane may add before its sums are flushed.
  static constexpr std::int64_t flush_steps = tile_policy::sum_steps;
  static constexpr bool flushes_itself = false;

  /// Most packs that are processed side by side, as the lanes of one wider pack.
  static constexpr int abreast =
      std::max(1, R::registers_abreast* simd::leaf_count<lane> / simd::lane_count<lane> /
                      (simd::is_complex_lanes<lane> ? 2 : 1));
  /// Steps of a pack that are processed before the next pack, if a row has few packs.
  static constexpr std::int64_t few_steps = 32;
  /// Most steps whose factors are multiplied one by one into the same product. The product of a
  /// whole tile may become subnormal, and arithmetic on subnormal numbers may take 100 times as
  /// long.
  static constexpr std::int64_t factor_steps = 256;
  static_assert(flush_steps % factor_steps == 0);
  /// The map of a tile for one pack of channels: its factor, and its value at a state of 0. The
  /// factor has the wide type, because rounding products of factors near 1 has a bias (see
  /// scan_states in maps/lane_scans.hpp).
  struct reduction {
    using wide_factor = factor_t<carry>;
    wide_factor before;  // product over the steps before those of `recent`
    wide_factor recent;  // product over the last steps, at most factor_steps
    lane u;

    [[nodiscard]] SCANREC_INLINE map composed() const {
      return {simd::mul(recent, before), simd::to_wide<carry>(u)};
    }
    template <class Map>
    SCANREC_INLINE void compose(const Map& step, bool multiply) {
      if (multiply) recent = simd::mul(detail::wide_factor<carry>(step), recent);
      u = step.act(u);
    }
  };
  /// The packs of a row that multiply their factors step by step. If all steps have the same
  /// factor, multiply_steady takes a power. If all channels have the same factors, the first pack
  /// multiplies, and copy_factors copies the product to the others.
  struct multiplying {
    bool first, others;

    explicit multiplying(const R& r) : first(!is_steady(r)), others(first && !shares_factors(r)) {}
    [[nodiscard]] SCANREC_INLINE bool of_pack(std::int64_t i) const {
      return first && (others || i == 0);
    }
  };

  static void begin(const R& r, const block& where, slot* slots) {
    loops::for_packs(where, 0, [&](std::int64_t i, position at) {
      slots[i] = slot{r.template begin<lane>(at), {}};
    });
  }
  static void end(const R& r, const block& where, const slot* slots) {
    loops::for_packs(where, where.end,
                     [&](std::int64_t i, position at) { r.end(at, slots[i].state); });
  }
  static void flush(const R& r, const block& where, slot* slots) {
    loops::for_packs(where, where.begin,
                     [&](std::int64_t i, position at) { r.flush(at, slots[i].sums); });
  }
  static void clear(const block& where, reduction* reductions) {
    auto one = map::identity().a;
    loops::for_packs(where, 0, [&](std::int64_t i, position) {
      reductions[i] = {one, one, simd::constant<lane>(0)};
    });
  }

  /// Composes the maps of the block's steps with those in `reductions`.
  static void reduce(const R& r, const block& where, reduction* reductions, const step_plan& plan) {
    for_pieces(r, where, plan, false, [&](const R& piece, const block& b, std::int64_t steps) {
      reduction* const own = reductions + (b.channel - where.channel) / lanes;
      for_few(piece, b, where.begin, own, [&](const R& at, const block& few) {
        reduce_block(at, few, own, {steps, plan.descending});
      });
    });
  }

  /// Processes the block from the states in `slots`, and writes every output once.
  static void run(const R& r, const block& where, slot* slots, const step_plan& plan) {
    const assume known = assumption(r, plan.lanes);
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, std::int64_t steps) {
      slot* const own = slots + (b.channel - where.channel) / lanes;
      run_piece(piece, b, own, nullptr, known, plan.shape.time,
                {steps, plan.descending, plan.ahead.time});
    });
  }

  /// Runs and reduces a block, the next steps of a tile that begins at step `tile`. Gives the same
  /// bits as reduce() and run(). Under assume::plain (position.hpp), each step is read once. In
  /// other cases it may be read twice, at most factor_steps steps apart.
  static void run_and_reduce(const R& r, const block& where, std::int64_t tile, slot* slots,
                             reduction* reductions, const step_plan& plan) {
    const assume known = assumption(r, plan.lanes);
    for_pieces(r, where, plan, true, [&](const R& piece, const block& b, std::int64_t steps) {
      const std::int64_t first = (b.channel - where.channel) / lanes;
      reduction* const own = reductions + first;
      for_few(piece, b, tile, own, [&](const R& at, const block& few) {
        run_piece(at, few, slots + first, own, known, plan.shape.time,
                  {steps, plan.descending, plan.ahead.time});
      });
    });
  }

 private:
  using course = typename loops::course;
  static constexpr bool has_sums = loops::has_sums;

  // Calls f(recurrence at the piece, piece, steps of a pack before the next pack) for the pieces of
  // a block.
  template <class F>
  static SCANREC_INLINE void for_pieces(const R& r, const block& where, const step_plan& plan,
                                        bool writes, F f) {
    for_channel_pieces<lanes>(r, where, plan.lanes, plan.shape.time, writes,
                              [&](const R& piece, const block& b) {
                                // If the arrays are in memory, rows are processed one by one, in
                                // the order of addresses. If they are in cache, or a row has few
                                // packs, several steps of a pack are processed before the next
                                // pack, so that its state stays in registers.
                                const bool few = b.channels <= abreast * lanes;
                                f(piece, b, few ? few_steps : plan.steps_per_carry);
                              });
  }

  // Divides a piece into blocks of at most factor_steps steps. Calls f(recurrence at the block,
  // block) for each, and then sets the factors of the packs for which f does not multiply them.
  template <class F>
  static SCANREC_INLINE void for_few(const R& piece, const block& b, std::int64_t tile,
                                     reduction* own, F f) {
    R at = piece;
    for (block few = b; few.begin < b.end; few.begin = few.end) {
      const std::int64_t before = few.begin - tile;
      if (before > 0 && before % factor_steps == 0) begin_factors(b, own);
      few.end = std::min(few.begin + factor_steps - before % factor_steps, b.end);
      f(at, few);
      if (const multiplying multiply(at); !multiply.first)
        multiply_steady(at, few, own);
      else if (!multiply.others)
        copy_factors(few, own);
      at = standing_at(at, few.end - few.begin, 0);
    }
  }
  static void multiply_steady(const R& r, const block& b, reduction* own) {
    loops::for_packs(b, b.begin, [&](std::int64_t i, position at) {
      auto power = detail::wide_factor<carry>(r.map(at, r.template load<lane>(at)));
      for (std::int64_t steps = b.end - b.begin; steps > 0; steps /= 2) {
        if (steps % 2 == 1) own[i].recent = simd::mul(own[i].recent, power);
        power = simd::mul(power, power);
      }
    });
  }
  static void copy_factors(const block& b, reduction* own) {
    loops::for_packs(b, 0, [&](std::int64_t i, position) { own[i].recent = own[0].recent; });
  }
  static void begin_factors(const block& b, reduction* own) {
    loops::for_packs(b, 0, [&](std::int64_t i, position) {
      own[i].before = simd::mul(own[i].recent, own[i].before);
      own[i].recent = map::identity().a;
    });
  }

  // Processes a piece. `composed` is null, or has one reduction per pack, with which the maps of
  // the steps are composed.
  template <class Composed>
  static void run_piece(const R& piece, const block& b, slot* own, Composed composed, assume known,
                        std::int64_t sequence_steps, course way) {
    const auto run_any = [&](const R& at, const block& part) {
      if constexpr (composes<Composed>) reduce_block(at, part, composed, way);
      if (lacks_lanes(part))
        run_packs<assume::nothing, 1>(at, part, own, nullptr, way);
      else
        run_packs<assume::all_lanes, 1>(at, part, own, nullptr, way);
    };
    if (known == assume::nothing) return run_any(piece, b);
    // The step whose neighbour is outside of the sequence is processed on its own.
    for_edges(piece, b, sequence_steps, [&](const R& at, const block& part, bool inside) {
      if (inside && known == assume::plain)
        return run_inside<assume::plain>(at, part, own, composed, way);
      if constexpr (R::runs_whole)
        if (inside) return run_inside<assume::whole>(at, part, own, composed, way);
      run_any(at, part);
    });
  }
  // Whether the last pack of the block has lanes past the last channel. Such blocks have kernels of
  // their own, because the tests for missing lanes take registers.
  static bool lacks_lanes(const block& b) { return b.channels % lanes != 0; }
  template <class Composed>
  static constexpr bool composes = !std::is_null_pointer_v<Composed>;

  // The kernels copy the recurrence. No store can alias the copy, so it stays in registers. (GCC
  // may pass a parameter by reference although it is declared by value, and then reads it at each
  // step.)
  template <assume Assume>
  [[gnu::noinline]] static void reduce_packs(const R& given, block where, reduction* reductions,
                                             course way) {
    const R r = given;
    multiplying multiply(r);
    const auto take = [&](auto at, reduction& own, bool multiplies) SCANREC_LAMBDA {
      r.template touch_rest<lane>(at);
      own.compose(r.map(at, r.template load<lane>(at)), multiplies);
    };
    if (by_rows(where))
      loops::template for_rows<Assume>(where, way, [&](auto at, std::int64_t i) SCANREC_LAMBDA {
        take(at, reductions[i], multiply.of_pack(i));
      });
    else
      loops::template sweep<Assume, 1>(
          where, way, [=](std::int64_t i, auto) SCANREC_LAMBDA { return reductions[i]; },
          [&](auto at, reduction& own) SCANREC_LAMBDA { take(at, own, multiply.first); },
          [=](std::int64_t i, const reduction& own) SCANREC_LAMBDA { reductions[i] = own; });
  }
  static void reduce_block(const R& r, const block& where, reduction* reductions, course way) {
    if (lacks_lanes(where))
      reduce_packs<assume::nothing>(r, where, reductions, way);
    else
      reduce_packs<assume::all_lanes>(r, where, reductions, way);
  }
  // Whether maps are composed row by row, in memory order. For a block of a single pack they are
  // not, because its map would then go through memory at every step.
  static bool by_rows(const block& where) { return where.channels > lanes; }
  // If the arrays are in memory, each row is processed from end to end before the next. Reading
  // groups of packs in ascending order within a descending block defeats hardware prefetchers (the
  // adjoint took 1.7 times as long). If the arrays are in cache, several steps of a pack, or of
  // packs side by side, are processed at a time. The number of packs side by side depends on the
  // number of registers. It must not affect the order of sums, so calls that add to accumulators at
  // every step are processed row by row. So are blocks whose last pack lacks lanes, and blocks of
  // several packs whose maps are composed. A block that is narrower than a pack is processed as one
  // pack, whose state stays in registers.
  template <assume Assume, class Composed>
  static void run_inside(const R& r, const block& where, slot* slots, Composed composed,
                         course way) {
    if (where.channels < lanes)
      run_packs<assume::inside, 1>(r, where, slots, composed, way);
    else if (way.prefetch > 0 || lacks_lanes(where) ||
             (composes<Composed> ? by_rows(where) : way.steps == 1 || sums_at_once(r)))
      run_rows<Assume>(r, where, slots, composed, way);
    else
      run_packs<Assume, composes<Composed> ? 1 : abreast>(r, where, slots, composed, way);
  }
  template <assume Assume, class Composed>
  [[gnu::noinline]] static void run_rows(const R& given, block where, slot* slots,
                                         Composed composed, course way) {
    const R r = given;
    multiplying multiply(r);
    const std::int64_t rows = where.end - where.begin, packs = where.channels / lanes;
    const std::int64_t first = way.descending ? packs - 1 : 0, next = way.descending ? -1 : 1;
    const std::int64_t end = way.descending ? -1 : packs;
    const auto run_row = [&](std::int64_t row, auto prefetches) SCANREC_LAMBDA {
      for (std::int64_t i = first; i != end; i += next) {
        const std::int64_t c = i * lanes;
        const position_if<Assume> at{where.begin + row, where.channel + c, row, c, lanes};
        if (prefetches) prefetch<lane>(r, at, way.prefetch);
        run_pack<Assume>(r, at, i, slots, composed, multiply);
      }
    };
    // Each case has its own loop, because prefetches and calls of run_rest would cost the other
    // cases registers and instructions.
    if (lacks_lanes(where))
      for (std::int64_t row = 0; row < rows; ++row) {
        if (way.descending) run_rest(given, where, row, slots, composed, way);
        run_row(row, way.prefetch > 0);
        if (!way.descending) run_rest(given, where, row, slots, composed, way);
      }
    else if (way.prefetch > 0)
      for (std::int64_t row = 0; row < rows; ++row) run_row(row, std::true_type{});
    else
      for (std::int64_t row = 0; row < rows; ++row) run_row(row, std::false_type{});
  }
  // Processes one step of pack i.
  template <assume Assume, class Composed>
  static SCANREC_INLINE void run_pack(const R& r, position_if<Assume> at, std::int64_t i,
                                      slot* slots, Composed composed, const multiplying& multiply) {
    typename R::template sums<lane> sums{};
    if constexpr (Assume != assume::plain && has_sums) r.copy_sums(slots[i].sums, sums);
    lane before = slots[i].state;
    auto read = r.template load<lane>(at);
    lane after = r.next(at, read, before);
    if constexpr (composes<Composed>) composed[i].compose(r.map(at, read), multiply.of_pack(i));
    r.finish(at, read, before, after, sums);
    slots[i].state = after;
    if constexpr (Assume != assume::plain && has_sums) r.copy_sums(sums, slots[i].sums);
  }
  // Processes the channels of a row past its last whole pack. Runs right after the whole packs of
  // that row, or right before them if packs are processed in descending order. A second pass over
  // the rows would leave the memory idle: rows of 250 channels took 1.4 times as long.
  template <class Composed>
  [[gnu::noinline]] static void run_rest(const R& r, const block& where, std::int64_t row,
                                         slot* slots, Composed composed, course way) {
    const std::int64_t i = where.channels / lanes, c = i * lanes;
    const position_if<assume::inside> at{where.begin + row, where.channel + c, row, c,
                                         loops::count_of(where, c)};
    if (way.prefetch > 0) prefetch<lane>(r, at, way.prefetch);
    run_pack<assume::inside>(r, at, i, slots, composed, multiplying(r));
  }
  template <assume Assume, int Abreast, class Composed>
  [[gnu::noinline]] static void run_packs(const R& given, block where, slot* slots,
                                          Composed composed, course way) {
    const R r = given;
    multiplying multiply(r);
    const auto run_step = [&]<class Lane>(auto at, Lane state, auto& sums, auto& own)
                              SCANREC_LAMBDA {
                                if (Assume <= assume::all_lanes && way.prefetch > 0)
                                  prefetch<Lane>(r, at, way.prefetch);
                                auto read = r.template load<Lane>(at);
                                Lane after = r.next(at, read, state);
                                if constexpr (composes<Composed>)
                                  own.compose(r.map(at, read), multiply.first);
                                r.finish(at, read, state, after, sums);
                                return after;
                              };
    if (where.begin == where.end) return;
    if constexpr (composes<Composed>) {
      struct both {
        slot current;
        reduction own;
      };
      loops::template sweep<Assume, 1>(
          where, way,
          [&](std::int64_t i, auto) SCANREC_LAMBDA {
            return both{loops::template take_slots<1>(r, slots + i), composed[i]};
          },
          [&](auto at, both& s) SCANREC_LAMBDA {
            s.current.state = run_step(at, s.current.state, s.current.sums, s.own);
          },
          [&](std::int64_t i, const both& s) SCANREC_LAMBDA {
            loops::give_slots(r, s.current, slots + i);
            composed[i] = s.own;
          });
    } else if constexpr (Assume == assume::plain) {
      // There are no running sums, so the carry is the state alone.
      loops::template sweep<Assume, Abreast>(
          where, way,
          [=](std::int64_t i, auto packs)
              SCANREC_LAMBDA { return loops::template states_of<packs.value>(slots + i); },
          [&]<class Lane>(auto at, Lane& state) SCANREC_LAMBDA {
            typename R::template sums<Lane> none{};
            state = run_step(at, state, none, none);
          },
          [=](std::int64_t i, auto state) SCANREC_LAMBDA { loops::put_states(slots + i, state); });
    } else {
      loops::template sweep<Assume, Abreast>(
          where, way,
          [&](std::int64_t i, auto packs)
              SCANREC_LAMBDA { return loops::template take_slots<packs.value>(r, slots + i); },
          [&](auto at, auto& s) SCANREC_LAMBDA { s.state = run_step(at, s.state, s.sums, s.sums); },
          [&](std::int64_t i, const auto& s)
              SCANREC_LAMBDA { loops::give_slots(r, s, slots + i); });
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
