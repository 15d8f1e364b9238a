// SPDX-License-Identifier: BSD-3-Clause
// What the kernels of selective scans do alike: bring the rows of a chunk to shared memory, where
// steps are made once per element and B and C serve all channels of the block; add over the states
// of a channel.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_functions.cuh>
#include <scanrec/detail/cuda/selective_plan.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>
#include <scanrec/detail/selective/state_lanes.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// What kernels are compiled for: B and C of every step, no resets and no intervals; or anything.
enum class selective_kind { plain, any };

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
class selective_tile {
 public:
  using V = typename Shape::value;
  using X = typename Shape::state;
  using number = typename Shape::number;
  static constexpr int parts = Shape::parts;
  using raw = raw_element<V>;
  static constexpr int S = Shape::own, L = Shape::lanes, E = Shape::elements;
  static constexpr bool plain = Kind == selective_kind::plain;
  static constexpr bool even = Shape::steps * Shape::channels % selective_threads == 0;
  static constexpr int row = Shape::row, turned = Turned;

  /// An element of a chunk that this thread takes, of E.
  struct element {
    int step, channel;
    bool there;
  };

  SCANREC_DEVICE selective_tile(const selective_device_problem<number>& p,
                                const selective_place& at, std::int64_t marks_byte)
      : p_(p),
        at_(at),
        fed_(Shape::fed),
        b_(Shape::b),
        c_(Shape::c),
        b_rows_(Shape::b),
        c_rows_(Shape::c),
        skip_(Shape::skip),
        bias_(Shape::bias),
        marks_(marks_byte),
        thread_(device::thread_index()),
        lane_(thread_ % L),
        channel_(thread_ / L) {
    // Neighbouring threads take neighbouring elements of memory.
    if (p.u.strides.channel == 1 || p.u.strides.time * p.u.strides.time != 1) {
      step_ = thread_ / Shape::channels, of_channel_ = thread_ % Shape::channels;
      more_steps_ = L, more_channels_ = 0;
    } else {
      step_ = thread_ % Shape::steps, of_channel_ = thread_ / Shape::steps;
      more_steps_ = 0, more_channels_ = selective_threads / Shape::steps;
    }
    if (thread_ < Shape::channels) {
      const std::int64_t c = at.channel + thread_;
      const bool there = thread_ < at.count;
      skip_.store(thread_, there && p.skip.present() ? *p.skip.at(0, c) : V(0));
      bias_.store(thread_, there && p.bias.present() ? *p.bias.at(0, c) : V(0));
    }
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

  // ---- elements of a chunk ----------------------------------------------------------------------

  /// Goes to the chunk that begins at a step, or before the first one.
  SCANREC_DEVICE SCANREC_INLINE void stand_at(std::int64_t begin) {
    begin_ = begin;
    idle_ = begin < 0 ? static_cast<int>(-begin) : 0;
  }
  SCANREC_DEVICE SCANREC_INLINE element at(int e) const {
    element x{step_ + e * more_steps_, of_channel_ + e * more_channels_, false};
    x.there = (even || x.step < Shape::steps) && x.channel < at_.count && x.step >= idle_;
    return x;
  }
  SCANREC_DEVICE SCANREC_INLINE static int slot(const element& x) {
    return x.step * Shape::row + x.channel;
  }
  /// Calls f(e, its place in shared memory, its channel) for elements that have one.
  template <int Count, class F>
  SCANREC_DEVICE SCANREC_INLINE void for_slots(int first, const F& f) const {
    const element x = at(first);
    int place = slot(x), channel = x.channel;
    const int more = more_steps_ * Shape::row + more_channels_;
    device::pin(place), device::pin(channel);
    SCANREC_UNROLL
    for (int e = 0; e < Count; ++e, place += more, channel += more_channels_)
      if (placed(at(first + e))) f(e, place, channel);
  }
  /// Whether an element has a place in shared memory.
  SCANREC_DEVICE SCANREC_INLINE static bool placed(const element& x) {
    return even || (x.step < Shape::steps && x.channel < Shape::channels);
  }
  /// Whether all elements of all threads are there.
  SCANREC_DEVICE SCANREC_INLINE bool whole() const {
    return even && idle_ == 0 && at_.count == Shape::channels;
  }
  /// The elements from the first one on. Where they are is worked out anew: kept addresses would
  /// take the registers of states.
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void load(const device_rows<V>& from, raw (&to)[Count],
                                          int first = 0) const {
    if (!from.present()) return;
    std::int64_t place, more;
    find(from, first, place, more);
    if (whole()) return from.load(to, place, more);
    from.load(to, [&](int e) SCANREC_LAMBDA {
      return at(first + e).there ? place + e * more : device_rows<V>::none;
    });
  }
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void store(const device_rows<V>& to, const V (&x)[Count],
                                           int first = 0, bool add = false) const {
    if (!to.present()) return;
    std::int64_t place, more;
    find(to, first, place, more);
    to.store(x, place, more, add, whole(),
             [&](int e) SCANREC_LAMBDA { return at(first + e).there; });
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
    if (idle_ == 0 && p_.states == Shape::states) return from.load(to, place, more);
    from.load(to, [&](int e) SCANREC_LAMBDA {
      return at.step + e * at.more_steps >= idle_ && at.state + e * at.more_states < p_.states
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
    to_numbers(x, from.as, numbers);
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

  // ---- steps ------------------------------------------------------------------------------------

  /// The sizes of steps, 0 where there is none, and their slopes, from deltas.
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void to_steps(V (&step)[Count], V (&slope)[Count],
                                              int first = 0) const {
    soften(step, slope, first), scale(step, slope, first);
  }
  /// The same but for their intervals.
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void soften(V (&step)[Count], V (&slope)[Count],
                                            int first = 0) const {
    int channel = at(first).channel;
    device::pin(channel);
    SCANREC_UNROLL
    for (int e = 0; e < Count; ++e, channel += more_channels_) {
      if (even || channel < Shape::channels) step[e] = step[e] + bias_.load(channel);
      slope[e] = 1;
    }
    if (p_.softplus) {
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) {
        const auto soft = selective_softplus(step[e]);
        step[e] = soft.value, slope[e] = soft.slope;
      }
    }
    if (whole()) return;
    SCANREC_UNROLL
    for (int e = 0; e < Count; ++e) step[e] = at(first + e).there ? step[e] : V(0);
  }
  /// Takes the intervals into account.
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void scale(V (&step)[Count], V (&slope)[Count],
                                           int first = 0) const {
    if constexpr (!plain) {
      if (!p_.intervals.present()) return;
      V by[Count];
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) {
        const element x = at(first + e);
        by[e] = x.there ? *p_.intervals.at(at_.batch, 0, 0, begin_ + x.step) : V(1);
      }
      SCANREC_UNROLL
      for (int e = 0; e < Count; ++e) step[e] = step[e] * by[e], slope[e] = slope[e] * by[e];
    }
  }
  SCANREC_DEVICE SCANREC_INLINE void mark_cut(int e) const {
    if constexpr (!plain) {
      if (p_.cuts.data == nullptr) return;
      const element x = at(e);
      const bool cut = x.there && p_.cuts.at(at_.batch, begin_ + x.step, at_.channel + x.channel);
      marks_.store(slot(x), cut ? 1u : 0u);
    }
  }
  /// Whether step t of this thread's channel is cut from the one before.
  SCANREC_DEVICE SCANREC_INLINE bool cut(int t) const {
    if constexpr (plain)
      return false;
    else
      return p_.cuts.data && marks_.load(t * Shape::row + channel_) != 0;
  }

  const selective_device_problem<number>& p_;
  selective_place at_;
  device::shared_array<value_pair<V>> fed_;  // (step, its product with u) of (step, channel)
  device::shared_array<V> b_, c_;            // (part, state, step)
  device::shared_array<four_steps<V>> b_rows_, c_rows_;
  device::shared_array<V> skip_, bias_;  // (channel)
  device::shared_array<std::uint32_t> marks_;
  int thread_, lane_, channel_;
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

  SCANREC_DEVICE SCANREC_INLINE void find(const device_rows<V>& rows, int first,
                                          std::int64_t& place, std::int64_t& more) const {
    const element x = at(first);
    place = rows.offset(at_.batch, begin_ + x.step, at_.channel + x.channel);
    more = more_steps_ * rows.strides.time + more_channels_ * rows.strides.channel;
    device::pin(place), device::pin(more);
  }

  int step_, of_channel_, more_steps_, more_channels_;
  std::int64_t begin_ = 0;
  int idle_ = 0;  // steps of the chunk that are before the first one
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
