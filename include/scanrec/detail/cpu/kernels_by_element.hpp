// SPDX-License-Identifier: BSD-3-Clause
// Runs tiles one element at a time, for elements of any operator, and for states that are small
// vectors unless kernels_by_channel.hpp can process them in packs.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/maps/element_maps.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct kernels_by_element : element_maps<R> {
  static constexpr int lanes = 1;
  /// Steps whose terms a lane may add before its sums are flushed.
  static constexpr std::int64_t flush_steps = tile_policy::sum_steps;
  static constexpr bool flushes_itself = false;
  using lane = simd::lane_t<typename R::value, 1>;
  using map = typename element_maps<R>::map;
  using carry = typename element_maps<R>::carry;
  using position = recurrence::position<recurrence::lane_axis::channel>;

  /// The carry from step to step of one channel.
  struct slot {
    typename R::template state_of<lane> state;
    [[no_unique_address]] typename R::template sums<lane> sums;
  };
  /// The map of all steps so far.
  struct reduction {
    map all;
    [[nodiscard]] const map& composed() const { return all; }
  };

  static void begin(const R& r, const block& where, slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      slots[c] = slot{r.template begin<lane>(position{0, where.channel + c}), {}};
  }
  static void end(const R& r, const block& where, const slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      r.end(position{where.end, where.channel + c}, slots[c].state);
  }
  static void flush(const R& r, const block& where, slot* slots) {
    for (std::int64_t c = 0; c < where.channels; ++c)
      r.flush(position{where.begin, where.channel + c}, slots[c].sums);
  }

  /// Steps whose maps are composed before the result is composed with the map of all steps before
  /// them. run_and_reduce() reduces this many steps at a time and then processes them.
  static constexpr std::int64_t few_steps = 256;
  /// Replaces few_steps if there are several channels.
  static constexpr std::int64_t few_rows = 32;

  static void clear(const block&, reduction*) {}  // the map of the first step initialises it

  /// Sets `reductions` to the composed maps of the block, which has at least one step.
  static void reduce(const R& r, const block& where, reduction* reductions, const step_plan& plan) {
    for_few(where, where.begin, plan,
            [&](const block& few) { add_few(r, few, few.begin == where.begin, reductions); });
  }

  /// Processes the block from the states in `slots`, and writes every output once.
  static void run(const R& r, const block& where, slot* slots, const step_plan&) {
    const auto take = [](const R& here, position at, slot& s) SCANREC_LAMBDA {
      s.state = take_step(here, at, here.template load<lane>(at), s.state, s.sums);
    };
    if (where.channels == 1) {
      const R here = standing_at(r, where.begin, where.channel);
      slot own = slots[0];  // stays in registers
      for (position at{where.begin, where.channel}; where.end > at.time; ++at.time, ++at.row)
        take(here, at, own);
      slots[0] = own;
      return;
    }
    sweep(r, where, [&](const R& here, position at, std::int64_t c) SCANREC_LAMBDA {
      take(here, at, slots[c]);
    });
  }

  /// Runs and reduces a block, the next steps of a tile that begins at step `tile`, a few steps at
  /// a time. Gives the same bits as reduce() and run().
  static void run_and_reduce(const R& r, const block& where, std::int64_t tile, slot* slots,
                             reduction* reductions, const step_plan& plan) {
    for_few(where, tile, plan, [&](const block& few) {
      add_few(r, few, few.begin == tile, reductions);
      run(r, few, slots, plan);
    });
  }

 private:
  template <class F>
  static void for_few(const block& where, std::int64_t tile, const step_plan& plan, F f) {
    const std::int64_t steps = plan.shape.channel == 1 ? few_steps : few_rows;
    for (block few = where; few.begin < where.end; few.begin = few.end) {
      few.end = std::min(few.begin + steps - (few.begin - tile) % steps, where.end);
      f(few);
    }
  }
  // Composes the maps of a few steps, and then the result with the map of all steps before them.
  // If these steps are the first of the tile, stores the result. Composing step by step with the
  // map of the whole tile would be slow: its factor may become subnormal, and arithmetic on
  // subnormal numbers may take a hundred times as long.
  static void add_few(const R& r, const block& few, bool first, reduction* reductions) {
    const auto algebra = algebra_of(r);
    const R here = standing_at(r, few.begin, few.channel);
    const auto map_at = [&](position at) SCANREC_LAMBDA {
      here.template touch_rest<lane>(at);
      return element_maps<R>::widened(here.map(at, here.template load<lane>(at)));
    };
    for (std::int64_t c = 0; c < few.channels; ++c) {
      position at{few.begin, few.channel + c, 0, c};
      map recent = map_at(at);
      for (++at.time, ++at.row; few.end > at.time; ++at.time, ++at.row)
        recent = algebra.compose(recent, map_at(at));
      map& all = reductions[c].all;
      all = first ? recent : algebra.compose(all, recent);
    }
  }
  // Calls step(recurrence at the block, position, index of the channel) for all elements. All
  // channels of a step are processed before the next step, so that they hide each other's latency.
  template <class Step>
  static SCANREC_INLINE void sweep(const R& r, const block& where, Step step) {
    const R here = standing_at(r, where.begin, where.channel);
    position at{where.begin, where.channel};
    for (; where.end > at.time; ++at.time, ++at.row)
      for (std::int64_t c = 0; c < where.channels; ++c) {
        position one = at;
        one.channel += c;
        one.index = c;
        step(here, one, c);
      }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
