// SPDX-License-Identifier: BSD-3-Clause
// Loops over the packs of a block of channels, and the carries of these packs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/recurrence/block.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class R>
struct channel_packs {
  using value = typename R::value;
  static constexpr int lanes = run_lanes_of<R>;
  using lane = simd::lane_t<value, lanes>;
  using assume = recurrence::assume;
  template <assume Assume>
  using position_if = recurrence::position<recurrence::lane_axis::channel, Assume>;
  using position = position_if<assume::nothing>;
  static constexpr bool has_sums = !std::is_empty_v<typename R::template sums<lane>>;

  /// The state and running sums of one pack of channels, or of several packs joined to a wider
  /// lane.
  template <class Lane>
  struct carried {
    Lane state;
    [[no_unique_address]] typename R::template sums<Lane> sums;
  };
  /// The carry of one pack of channels.
  using slot = carried<lane>;

  template <class F>
  static SCANREC_INLINE void for_packs(const block& where, std::int64_t time, F f) {
    for (std::int64_t c = 0; c < where.channels; c += lanes)
      f(c / lanes, position{time, where.channel + c, 0, c, count_of(where, c)});
  }
  static SCANREC_INLINE int count_of(const block& where, std::int64_t c) {
    return static_cast<int>(std::min<std::int64_t>(lanes, where.channels - c));
  }

  // The order in which a block is processed: `steps` steps of one pack, then the same steps of the
  // next pack. If `descending`, packs are processed from last to first. This is for calls that read
  // most bytes towards lower addresses. Hardware prefetchers follow addresses that only rise or
  // only fall. They lose track if each row is read upwards but the next row lies below it.
  struct course {
    std::int64_t steps;
    bool descending;
    std::int64_t prefetch = 0;  // steps ahead; 0: none
  };

  // Calls f(position, pack) for all packs, row by row.
  template <assume Assume, class F>
  static SCANREC_INLINE void for_rows(const block& where, course way, F f) {
    const std::int64_t rows = where.end - where.begin;
    const std::int64_t packs = (where.channels + lanes - 1) / lanes;
    const std::int64_t first = way.descending ? packs - 1 : 0, next = way.descending ? -1 : 1;
    const std::int64_t end = way.descending ? -1 : packs;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = first; i != end; i += next) {
        const std::int64_t c = i * lanes;
        f(position_if<Assume>{where.begin + row, where.channel + c, row, c,
                              recurrence::may_lack_lanes(Assume) ? count_of(where, c) : lanes},
          i);
      }
  }

  // states_of joins the states of consecutive packs to one wider lane. put_states splits it again.
  template <int Packs>
  static SCANREC_INLINE auto states_of(const slot* from) {
    if constexpr (Packs == 1)
      return from->state;
    else
      return simd::join(states_of<Packs / 2>(from), states_of<Packs / 2>(from + Packs / 2));
  }
  template <class Lane>
  static SCANREC_INLINE void put_states(slot* to, Lane state) {
    if constexpr (std::is_same_v<Lane, lane>) {
      to->state = state;
    } else {
      put_states(to, simd::half_of<0>(state));
      put_states(to + simd::lane_count<Lane> / lanes / 2, simd::half_of<1>(state));
    }
  }
  // take_slots and give_slots join and split carries: states and running sums. Only sums over
  // time are copied.
  template <int Packs>
  static SCANREC_INLINE auto take_slots(const R& r, const slot* from) {
    carried<simd::lane_t<value, Packs * lanes>> to{};
    if constexpr (Packs == 1) {
      to.state = from->state;
      if constexpr (has_sums) r.copy_sums(from->sums, to.sums);
    } else {
      auto low = take_slots<Packs / 2>(r, from), high = take_slots<Packs / 2>(r, from + Packs / 2);
      to.state = simd::join(low.state, high.state);
      if constexpr (has_sums) r.join_sums(low.sums, high.sums, to.sums);
    }
    return to;
  }
  template <class Lane>
  static SCANREC_INLINE void give_slots(const R& r, const carried<Lane>& from, slot* to) {
    if constexpr (std::is_same_v<Lane, lane>) {
      to->state = from.state;
      if constexpr (has_sums) r.copy_sums(from.sums, to->sums);
    } else {
      carried<decltype(simd::half_of<0>(from.state))> low{simd::half_of<0>(from.state), {}},
          high{simd::half_of<1>(from.state), {}};
      if constexpr (has_sums) r.split_sums(from.sums, low.sums, high.sums);
      give_slots(r, low, to);
      give_slots(r, high, to + simd::lane_count<Lane> / lanes / 2);
    }
  }

  // Processes `way.steps` steps at a time. For these steps of every pack i, or of up to `Abreast`
  // packs joined to one lane, calls take(i, number of packs), then body(position, carry) for each
  // step, then give(i, carry). The loop over single packs does not use the lambda of sweep_abreast:
  // GCC 12 would not unswitch it there, and gated cells would lose up to a tenth of their speed.
  template <assume Assume, int Abreast, class Take, class Body, class Give>
  static SCANREC_INLINE void sweep(const block& where, course way, Take take, Body body,
                                   Give give) {
    if constexpr (Abreast > 1) {
      sweep_abreast<Assume, Abreast>(where, way, take, body, give);
    } else {
      const std::int64_t rows = where.end - where.begin;
      const std::int64_t packs = (where.channels + lanes - 1) / lanes;
      const std::int64_t first = way.descending ? packs - 1 : 0, next = way.descending ? -1 : 1;
      const std::int64_t end = way.descending ? -1 : packs;
      for (std::int64_t row = 0; row < rows; row += way.steps) {
        const std::int64_t last = std::min(row + way.steps, rows);
        for (std::int64_t i = first; i != end; i += next) {
          const std::int64_t c = i * lanes;
          auto carried = take(i, std::integral_constant<int, 1>{});
          position_if<Assume> at{where.begin + row, where.channel + c, row, c,
                                 recurrence::may_lack_lanes(Assume) ? count_of(where, c) : lanes};
          for (;;) {
            body(at, carried);
            if (++at.row == last) break;
            ++at.time;
          }
          give(i, carried);
        }
      }
    }
  }
  template <assume Assume, int Abreast, class Take, class Body, class Give>
  static SCANREC_INLINE void sweep_abreast(const block& where, course way, Take take, Body body,
                                           Give give) {
    const std::int64_t rows = where.end - where.begin;
    const std::int64_t packs = (where.channels + lanes - 1) / lanes;
    for (std::int64_t row = 0; row < rows; row += way.steps) {
      const std::int64_t last = std::min(row + way.steps, rows);
      std::int64_t left = packs;
      const auto run_by = [&](auto together) SCANREC_LAMBDA {
        for (; left >= together.value; left -= together.value) {
          const std::int64_t i = way.descending ? left - together.value : packs - left;
          auto carried = take(i, together);
          position_if<Assume> at{where.begin + row, where.channel + i * lanes, row, i * lanes,
                                 together.value * lanes};
          for (;;) {
            body(at, carried);
            if (++at.row == last) break;
            ++at.time;
          }
          give(i, carried);
        }
      };
      if constexpr (Abreast >= 4) run_by(std::integral_constant<int, 4>{});
      run_by(std::integral_constant<int, 2>{});
      run_by(std::integral_constant<int, 1>{});
    }
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
