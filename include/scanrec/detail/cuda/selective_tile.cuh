// SPDX-License-Identifier: BSD-3-Clause
// What the kernels of selective scans do alike: bring the rows of a chunk to shared memory, where
// steps are made once per element and B and C serve all channels of the block; add over the states
// of a channel.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_elements.cuh>
#include <scanrec/detail/cuda/selective_plan.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>
#include <scanrec/detail/selective/state_lanes.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

template <class T, int Count>
struct several {
  T of[Count];
};

/// Halves four values of a lane with the lane `apart` away, then two: lane j of every four has the
/// sum over those four lanes of the j-th value. Then the lanes further away, up to L.
template <int L, class T>
SCANREC_DEVICE SCANREC_INLINE T sum_over_lanes(const several<T, 4>& x, int lane) {
  const bool upper = (lane & 2) != 0, odd = (lane & 1) != 0;
  const several<T, 2> sent{{upper ? x.of[0] : x.of[2], upper ? x.of[1] : x.of[3]}};
  several<T, 2> two{{upper ? x.of[2] : x.of[0], upper ? x.of[3] : x.of[1]}};
  const auto there = device::exchange_across(sent, 2);
  two.of[0] = two.of[0] + there.of[0], two.of[1] = two.of[1] + there.of[1];
  T one = odd ? two.of[1] : two.of[0];
  one = one + device::exchange_across(odd ? two.of[0] : two.of[1], 1);
  SCANREC_UNROLL
  for (int apart = 4; apart < L; apart *= 2) one = one + device::exchange_across(one, apart);
  return one;
}
template <class V>
SCANREC_DEVICE SCANREC_INLINE value_pair<V> operator+(const value_pair<V>& x,
                                                      const value_pair<V>& y) {
  return {x.first + y.first, x.second + y.second};
}

/// A block at a place. State i of a lane is the lane's i-th one, but of `Turned` neighbouring
/// channels in as many orders: the i ^ c-th of channel c of them.
template <class Shape, selective_kind Kind, int Turned = 1>
class selective_tile : public selective_elements<Shape, Kind> {
 public:
  using elements = selective_elements<Shape, Kind>;
  using typename elements::number;
  using typename elements::raw;
  using typename elements::V;
  using X = typename Shape::state;
  using elements::p_, elements::at_, elements::thread_, elements::begin_, elements::idle_,
      elements::plain, elements::row;
  static constexpr int parts = Shape::parts;
  static constexpr int S = Shape::own, L = Shape::lanes, turned = Turned;

  SCANREC_DEVICE selective_tile(const selective_device_problem<number>& p,
                                const selective_place& at, std::int64_t places_byte,
                                std::int64_t marks_byte)
      : elements(p, at, places_byte, marks_byte),
        b_(Shape::b),
        c_(Shape::c),
        b_rows_(Shape::b),
        c_rows_(Shape::c),
        lane_(thread_ % L),
        channel_(thread_ / L) {
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i) {
      rate_[i] = own_state(i) ? simd::load_one<X>(p.a.at(0, own_channel(), state(i))) : zero();
      if constexpr (!plain) {
        b_own_[i] = own_state(i) && p.b.channels.present()
                        ? simd::load_one<X>(p.b.channels.at(0, own_channel(), state(i)))
                        : zero();
        c_own_[i] = own_state(i) && p.c.channels.present()
                        ? simd::load_one<X>(p.c.channels.at(0, own_channel(), state(i)))
                        : zero();
      }
    }
  }

  // ---- states of this thread's channel --------------------------------------------------------

  SCANREC_DEVICE SCANREC_INLINE static X zero() { return simd::constant<X>(0); }
  SCANREC_DEVICE SCANREC_INLINE int state(int i) const {
    return (i ^ (channel_ & (turned - 1))) * L + lane_;
  }
  SCANREC_DEVICE SCANREC_INLINE bool own() const { return channel_ < at_.count; }
  SCANREC_DEVICE SCANREC_INLINE bool own_state(int i) const {
    return own() && state(i) < p_.states;
  }
  SCANREC_DEVICE SCANREC_INLINE std::int64_t own_channel() const { return at_.channel + channel_; }
  SCANREC_DEVICE SCANREC_INLINE void load_states(const device_values<number>& from, X (&x)[S],
                                                 std::int64_t time = 0) const {
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i)
      x[i] = from.present() && own_state(i)
                 ? simd::load_one<X>(from.at(at_.batch, own_channel(), state(i), time))
                 : zero();
  }
  SCANREC_DEVICE SCANREC_INLINE void store_states(const device_values<number>& to, const X (&x)[S],
                                                  std::int64_t time = 0, bool add = false) const {
    if (!to.present()) return;
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i)
      if (own_state(i)) {
        number* const place = to.at(at_.batch, own_channel(), state(i), time);
        simd::store_one(place, add ? simd::load_one<X>(place) + x[i] : x[i]);
      }
  }

  // ---- B and C of a chunk -----------------------------------------------------------------------

  static constexpr bool mixed_early = Shape::mixed <= 4;
  /// As many of B or C at once as registers are lent.
  static constexpr int M = mixed_early ? Shape::mixed : 4;

  SCANREC_DEVICE SCANREC_INLINE void load_mixing(const device_mixing<number>& from, int first,
                                                 raw (&to)[parts][M]) const {
    load_mixing(from.steps, first, to[0]);
    if constexpr (parts == 2) load_mixing(from.imaginary, first, to[1]);
  }
  SCANREC_DEVICE SCANREC_INLINE void load_mixing(const device_rows<V>& from, int first,
                                                 raw (&to)[M]) const {
    if (!from.present()) return;
    const mixed_place at = mixed_places(from, first);
    std::int64_t place = from.offset(at_.batch, begin_ + at.step, at.state, at_.group);
    std::int64_t more = at.more_steps * from.strides.time + at.more_states * from.strides.channel;
    device::pin(place), device::pin(more);
    const bool all = idle_ == 0 && p_.states == Shape::states;
    from.load(to, [&](int e) SCANREC_LAMBDA {
      return all || (at.step + e * at.more_steps >= idle_ &&
                     at.state + e * at.more_states < p_.states)
                 ? place + e * more
                 : device_rows<V>::none;
    });
  }
  SCANREC_DEVICE SCANREC_INLINE void place_mixing(const device_mixing<number>& from, int first,
                                                  const raw (&x)[parts][M],
                                                  const device::shared_array<V>& to) const {
    place_mixing(from.steps, first, x[0], to, 0);
    if constexpr (parts == 2) place_mixing(from.imaginary, first, x[1], to, Shape::states);
  }
  SCANREC_DEVICE SCANREC_INLINE void place_mixing(const device_rows<V>& from, int first,
                                                  const raw (&x)[M],
                                                  const device::shared_array<V>& to,
                                                  int first_row) const {
    if (!from.present()) return;
    const mixed_place at = mixed_places(from, first);
    int place = (first_row + at.state) * Shape::state_row + at.step;
    const int more = at.more_states * Shape::state_row + at.more_steps;
    device::pin(place);
    V numbers[M];
    to_numbers<1>(x, from.as, false, numbers);
    SCANREC_UNROLL
    for (int e = 0; e < M; ++e, place += more) to.store(place, numbers[e]);
  }
  /// B or C, all at once.
  SCANREC_DEVICE SCANREC_INLINE void take_mixing(const device_mixing<number>& from,
                                                 const device::shared_array<V>& to) const {
    SCANREC_KEEP_LOOP
    for (int first = 0; first < Shape::mixed; first += M) {
      raw x[parts][M];
      load_mixing(from, first, x), place_mixing(from, first, x, to);
    }
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> b_of(int t, int i) const {
    return mixed(p_.b, b_rows_, b_own_, t, i);
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> c_of(int t, int i) const {
    return mixed(p_.c, c_rows_, c_own_, t, i);
  }

  device::shared_array<V> b_, c_;  // (part, state, step)
  device::shared_array<four_steps<V>> b_rows_, c_rows_;
  int lane_, channel_;
  X rate_[S], b_own_[plain ? 1 : S], c_own_[plain ? 1 : S];

 private:
  /// Where a thread finds M of B or C, from the first one on.
  struct mixed_place {
    int step, state, more_steps, more_states;
  };
  SCANREC_DEVICE SCANREC_INLINE mixed_place mixed_places(const device_rows<V>& from,
                                                         int first) const {
    constexpr int threads = selective_threads, steps = Shape::steps;
    if (from.strides.channel != 1)
      return {thread_ % steps, thread_ / steps + first * (threads / steps), 0, threads / steps};
    if constexpr (Shape::states <= threads) {
      constexpr int apart = threads / Shape::states;
      return {thread_ / Shape::states + first * apart, thread_ % Shape::states, apart, 0};
    } else {
      // The states of a step take all threads several times: half of the steps each time.
      constexpr int rounds = Shape::states / threads, each = Shape::mixed / rounds;
      static_assert(each % M == 0);
      return {first % each, thread_ + first / each * threads, 1, 0};
    }
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> mixed(
      const device_mixing<number>& of, const device::shared_array<four_steps<V>>& rows,
      const X (&of_channel)[plain ? 1 : S], int t, int i) const {
    if constexpr (!plain)
      if (of.channels.present()) return mixed_steps<X>::same(of_channel[i]);
    constexpr int row = Shape::state_row / 4;
    const int place = state(i) * row + (t >> 2);
    if constexpr (parts == 2)
      return {rows.load(place), rows.load(place + Shape::states * row)};
    else
      return rows.load(place);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
