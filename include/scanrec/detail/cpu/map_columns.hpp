// SPDX-License-Identifier: BSD-3-Clause
// Loads the maps of steps into slots (see map_scan in materialised.hpp), and finishes steps from
// the states before them. The lanes of a pack are channels or steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/materialised_plan.hpp>
#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/maps/map_planes.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Lanes along channels: a slot holds the maps of one step for all packs of channels. Recurrences
/// that cannot use packs (`one_by_one`) are processed one element at a time.
template <class R>
struct channel_columns {
  static constexpr int lanes = lanes_of<R>;
  using value = typename R::value;
  using lane = simd::lane_t<value, lanes>;
  using map = typename R::template map_of<lane>;
  using state = typename R::template state_of<lane>;
  static constexpr bool along_time = false;
  using assume = recurrence::assume;
  template <assume Assume>
  using position_if = recurrence::position<recurrence::lane_axis::channel, Assume>;
  using position = position_if<assume::nothing>;
  static constexpr bool has_sums = !std::is_empty_v<typename R::template sums<lane>>;

  /// Stores the maps of the block's steps. The map of step t goes to slot t + shift.
  template <class Maps>
  static void load(const R& r, const block& where, const materialised_plan& plan,
                   std::int64_t steps, const Maps& to, std::int64_t shift) {
    for_parts(r, where, plan, steps, false, [&](auto known, const R& part, const block& b) {
      const std::int64_t first = (b.begin + shift) * plan.width + (b.channel - where.channel);
      load_packs<known>(part, b, to.from(first), plan.width);
    });
  }
  /// Processes the block's steps from the states before them. Slot t holds the state before step t.
  template <class Maps>
  static void finish(const R& r, const block& where, const materialised_plan& plan,
                     std::int64_t steps, const Maps& from) {
    for_parts(r, where, plan, steps, true, [&](auto known, const R& part, const block& b) {
      const std::int64_t first = b.begin * plan.width + (b.channel - where.channel);
      finish_packs<known>(part, b, from.from(first), plan.width, steps);
    });
  }
  /// Stores the state before the first step in a slot, as a constant map.
  template <class Maps>
  static void begin(const R& r, const block& where, const materialised_plan& plan, const Maps& to,
                    std::int64_t slot) {
    for_packs(where, 0, [&](position at, std::int64_t c) {
      to.template store_first<map>(slot * plan.width + c, r.template begin<lane>(at));
    });
  }
  /// Copies the initial state to the final state of a sequence without steps.
  static void pass(const R& r, const block& where) {
    for_packs(where, 0, [&](position at, std::int64_t) { r.end(at, r.template begin<lane>(at)); });
  }

 private:
  // Calls f(assumption, recurrence at the part, part) for all parts of a block.
  template <class F>
  static SCANREC_INLINE void for_parts(const R& r, const block& where,
                                       const materialised_plan& plan, std::int64_t steps,
                                       bool writes, F f) {
    using nothing = std::integral_constant<assume, assume::nothing>;
    bool plain = false;
    if constexpr (!R::one_by_one)
      plain = where.channels % lanes == 0 && assumption(r, plan.lanes) == assume::plain;
    for_channel_pieces<lanes>(
        r, where, plan.lanes, steps, writes, [&](const R& piece, const block& b) {
          if (!plain) return f(nothing{}, piece, b);
          if constexpr (!R::one_by_one)
            for_edges(piece, b, steps, [&](const R& part, const block& inner, bool inside) {
              if (inside)
                f(std::integral_constant<assume, assume::plain>{}, part, inner);
              else
                f(nothing{}, part, inner);
            });
        });
  }
  template <class F>
  static SCANREC_INLINE void for_packs(const block& where, std::int64_t time, F f) {
    for (std::int64_t c = 0; c < where.channels; c += lanes) f(position_of(where, time, 0, c), c);
  }
  template <assume Assume = assume::nothing>
  static SCANREC_INLINE position_if<Assume> position_of(const block& b, std::int64_t time,
                                                        std::int64_t row, std::int64_t c) {
    return {time, b.channel + c, row, c,
            static_cast<int>(std::min<std::int64_t>(lanes, b.channels - c))};
  }

  // The kernels take the recurrence by value: no store can alias the copy, so it stays in
  // registers.
  template <assume Assume, class Maps>
  [[gnu::noinline]] static void load_packs(R r, block b, Maps to, std::int64_t width) {
    for (std::int64_t row = 0; row < b.end - b.begin; ++row)
      for (std::int64_t c = 0; c < b.channels; c += lanes) {
        const auto at = position_of<Assume>(b, b.begin + row, row, c);
        auto read = r.template load<lane>(at);
        to.store_step(row * width + c, map(r.map(at, read)), read);
      }
  }
  template <assume Assume, class Maps>
  [[gnu::noinline]] static void finish_packs(R r, block b, Maps from, std::int64_t width,
                                             std::int64_t steps) {
    typename R::template sums<lane> running[has_sums ? materialised_plan::most_packs : 1]{};
    for (std::int64_t row = 0; row < b.end - b.begin; ++row)
      for (std::int64_t c = 0; c < b.channels; c += lanes) {
        const auto at = position_of<Assume>(b, b.begin + row, row, c);
        auto before = from.template load<state>(row * width + c);
        auto after =
            take_step(r, at, r.template load<lane>(at), before, running[has_sums ? c / lanes : 0]);
        if (at.time + 1 == steps) r.end(at, after);
      }
    if constexpr (has_sums)
      for_packs(b, b.begin, [&](position at, std::int64_t c) { r.flush(at, running[c / lanes]); });
  }
};

/// Lanes along time: a slot holds the map of one step of one channel.
template <class R>
struct time_columns {
  using value = typename R::value;
  static constexpr int lanes = simd::lanes_v<value>;
  using lane = simd::lane_t<value, lanes>;
  using scalar = simd::lane_t<value, 1>;
  using map = typename R::template map_of<lane>;
  using state = lane;
  static constexpr bool along_time = true;
  using assume = recurrence::assume;
  template <assume Assume>
  using position_if = recurrence::position<recurrence::lane_axis::time, Assume>;
  using position = position_if<assume::nothing>;

  template <class Maps>
  static void load(const R& r, const block& where, const materialised_plan& plan,
                   std::int64_t steps, const Maps& to, std::int64_t shift) {
    const auto load_packs_of = assumption(r, plan.lanes) == assume::plain
                                   ? load_packs<assume::plain, Maps>
                                   : load_packs<assume::nothing, Maps>;
    for_time_pieces<lanes>(r, where, plan.lanes, steps, false, [&](const R& piece, const block& b) {
      load_packs_of(piece, b, to.from(b.begin + shift), plan.lanes.reversed);
    });
  }
  template <class Maps>
  static void finish(const R& r, const block& where, const materialised_plan& plan,
                     std::int64_t steps, const Maps& from) {
    const auto finish_packs_of = assumption(r, plan.lanes) == assume::plain
                                     ? finish_packs<assume::plain, Maps>
                                     : finish_packs<assume::nothing, Maps>;
    for_time_pieces<lanes>(r, where, plan.lanes, steps, true, [&](const R& piece, const block& b) {
      finish_packs_of(piece, b, from.from(b.begin), plan.lanes.reversed, steps);
    });
  }
  template <class Maps>
  static void begin(const R& r, const block& where, const materialised_plan&, const Maps& to,
                    std::int64_t slot) {
    using map_of_one = typename R::template map_of<scalar>;
    to.template store_first<map_of_one>(slot, r.template begin<scalar>(position{0, where.channel}));
  }
  static void pass(const R& r, const block& where) {
    const position at{0, where.channel};
    r.end(at, r.template begin<scalar>(at));
  }

 private:
  template <assume Assume, class Maps>
  [[gnu::noinline]] static void load_packs(R r, block b, Maps to, bool reversed) {
    const auto load_at = [&](auto one, auto at) SCANREC_LAMBDA {
      auto read = r.template load<decltype(one)>(at);
      using map_of_lane = typename R::template map_of<decltype(one)>;
      to.store_step(at.time - b.begin, map_of_lane(r.map(at, read)), read);
    };
    for_positions<Assume>(r, b, reversed, load_at);
  }
  template <assume Assume, class Maps>
  [[gnu::noinline]] static void finish_packs(R r, block b, Maps from, bool reversed,
                                             std::int64_t steps) {
    typename R::template sums<lane> running{};
    typename R::template sums<scalar> few{};
    for_positions<Assume>(r, b, reversed, [&](auto one, auto at) SCANREC_LAMBDA {
      using any_lane = decltype(one);
      auto before = from.template load<any_lane>(at.time - b.begin);
      auto read = r.template load<any_lane>(at);
      auto after = r.next(at, read, before);
      if constexpr (simd::lane_count<any_lane> == 1)
        r.finish(at, read, before, after, few);
      else
        r.finish(at, read, before, after, running);
      if (at.time + simd::lane_count<any_lane> == steps) {
        if constexpr (simd::lane_count<any_lane> == 1)
          r.end(position{steps, b.channel}, after);
        else
          r.end(position{steps, b.channel}, simd::last(after));
      }
    });
    r.flush(position{b.begin, b.channel, 0, 0, lanes}, running);
    r.flush(position{b.begin, b.channel}, few);
  }

  // Calls f(lane, position) for packs whose lanes compose, and f(scalar, position) for every other
  // step.
  template <assume Assume, class F>
  static SCANREC_INLINE void for_positions(const R& r, const block& b, bool reversed, F f) {
    position_if<Assume> at{b.begin, b.channel, 0, reversed ? 1 - lanes : 0, lanes, reversed};
    while (at.time < b.end) {
      const bool whole = at.time + lanes <= b.end;
      if (whole && r.template composes<lanes>(at)) {
        f(lane{}, at);
      } else {
        const std::int64_t end = whole ? at.time + lanes : b.end;
        for (position one{at.time, b.channel, at.time - b.begin}; end > one.time;
             ++one.time, ++one.row)
          f(scalar{}, one);
      }
      at.time += lanes;
      at.index += reversed ? -lanes : lanes;
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
