// SPDX-License-Identifier: BSD-3-Clause
// The common part of the kernels of selective scans. It loads B and C of a chunk to shared memory,
// where all channels of the block use them. It also sums over the states of a channel.
#pragma once

#include <cstdint>

#include <scanrec/detail/cpu/selective_state_lanes.hpp>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_elements.cuh>
#include <scanrec/detail/cuda/selective_plan.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

template <class T, int Count>
struct several {
  T of[Count];
};

/// Sums four values over L lanes. Lane j of every four lanes returns the j-th sum. Two exchanges
/// between the four lanes reduce the number of values per lane from four to one. Further exchanges
/// add up this value over lanes farther away.
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

/// The states of a block, and B and C of its current chunk. The L lanes of a channel share its
/// states. Slot i, the i-th state register of lane j of channel c, holds state (i ^ (c mod Turned))
/// * L + j. So any `Turned` neighbouring channels store their states in different orders.
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
                                const selective_position& at, std::int64_t offsets_byte,
                                std::int64_t reset_mask_byte)
      : elements(p, at, offsets_byte + Shape::bc_offset_bytes, reset_mask_byte),
        b_(Shape::b, 0),
        c_(Shape::c, 1),
        lane_(thread_ % L),
        channel_(thread_ / L),
        bc_offsets_(offsets_byte) {
    find_bc(p.b.steps, b_.k), find_bc(p.c.steps, c_.k);
    if constexpr (parts == 2) find_bc(p.b.imaginary, b_.k + 1), find_bc(p.c.imaginary, c_.k + 1);
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i) {
      rate_[i] = own_state(i) ? simd::load_one<X>(p.a.at(0, own_channel(), state(i))) : zero();
      if constexpr (!plain) {
        b_constant_[i] = own_state(i) && p.b.channels.present()
                             ? simd::load_one<X>(p.b.channels.at(0, own_channel(), state(i)))
                             : zero();
        c_constant_[i] = own_state(i) && p.c.channels.present()
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
  SCANREC_DEVICE SCANREC_INLINE void load_states(const value_array<number>& from, X (&x)[S],
                                                 std::int64_t time = 0) const {
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i)
      x[i] = from.present() && own_state(i)
                 ? simd::load_one<X>(from.at(at_.batch, own_channel(), state(i), time))
                 : zero();
  }
  SCANREC_DEVICE SCANREC_INLINE void store_states(const value_array<number>& to, const X (&x)[S],
                                                  std::int64_t time = 0, bool add = false) const {
    if (!to.present()) return;
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i)
      if (own_state(i)) {
        number* const position = to.at(at_.batch, own_channel(), state(i), time);
        simd::store_one(position, add ? simd::load_one<X>(position) + x[i] : x[i]);
      }
  }

  // ---- B and C of a chunk -----------------------------------------------------------------------

  /// B or C in shared memory, as (part, state, step). The offset of its first
  /// part is element k of bc_offsets_.
  struct mixed_array {
    device::shared_array<V> numbers;
    device::shared_array<four_steps<V>> fours;
    int k;

    SCANREC_DEVICE SCANREC_INLINE mixed_array(std::int64_t first_byte, int which)
        : numbers(first_byte), fours(first_byte), k(2 * which) {}
  };
  /// The number of elements of B or C that a thread loads at once; registers limit it. They are
  /// states of one step if states are contiguous, else steps of one state.
  static constexpr int M = 4;
  static constexpr bool mixed_early = Shape::bc_elements == M;

  SCANREC_DEVICE SCANREC_INLINE void load_bc(const bc_array<number, device_rows>& from,
                                             const mixed_array& of, int first,
                                             raw (&to)[parts][M]) const {
    load_bc(from.steps, of.k, first, to[0]);
    if constexpr (parts == 2) load_bc(from.imaginary, of.k + 1, first, to[1]);
  }
  SCANREC_DEVICE SCANREC_INLINE void stage_bc(const bc_array<number, device_rows>& from,
                                              const mixed_array& to, int first,
                                              const raw (&x)[parts][M]) const {
    stage_bc(from.steps, to, 0, first, x[0]);
    if constexpr (parts == 2) stage_bc(from.imaginary, to, 1, first, x[1]);
  }
  /// Loads and stages B or C of the chunk.
  SCANREC_DEVICE SCANREC_INLINE void take_bc(const bc_array<number, device_rows>& from,
                                             const mixed_array& to) const {
    SCANREC_KEEP_LOOP
    for (int first = 0; first < Shape::bc_elements; first += M) {
      raw x[parts][M];
      load_bc(from, to, first, x), stage_bc(from, to, first, x);
    }
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> b_of(int t, int i) const {
    return bc_elements(p_.b, b_.fours, b_constant_, t, i);
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> c_of(int t, int i) const {
    return bc_elements(p_.c, c_.fours, c_constant_, t, i);
  }

  mixed_array b_, c_;
  int lane_, channel_;
  X rate_[S], b_constant_[plain ? 1 : S], c_constant_[plain ? 1 : S];

 private:
  /// The first step and state of the M elements of B or C that a thread loads.
  struct bc_position {
    int step, state;
  };
  SCANREC_DEVICE SCANREC_INLINE bc_position mixed_at(bool along_states, int first) const {
    const int unit = first / M * selective_threads + thread_;
    constexpr int in_step = Shape::states / M, of_state = Shape::steps / M;
    if (along_states) return {unit / in_step, unit % in_step * M};
    return {unit % of_state * M, unit / of_state};
  }
  SCANREC_DEVICE SCANREC_INLINE static bool along_states(const device_rows<V>& rows) {
    return rows.strides.channel == 1;
  }
  SCANREC_DEVICE SCANREC_INLINE void find_bc(const device_rows<V>& rows, int k) {
    if (!rows.present()) return;
    const auto& s = rows.strides;
    const std::int64_t first = rows.offset(at_.batch, 0, 0, at_.group);
    if (thread_ == 0) bc_offsets_.store(k, first);
    const std::int64_t beside = along_states(rows) ? s.channel : s.time;
    const std::int64_t between = along_states(rows) ? s.time : s.channel;
    this->remember(first_bc + k, beside == 1 && between % M == 0 && p_.states == Shape::states &&
                                     rows.aligned(first + p_.time % M * s.time, M));
  }
  SCANREC_DEVICE SCANREC_INLINE bool in_runs(int k) const {
    return idle_ == 0 && this->remembered(first_bc + k);
  }
  SCANREC_DEVICE SCANREC_INLINE void load_bc(const device_rows<V>& from, int k, int first,
                                             raw (&to)[M]) const {
    if (!from.present()) return elements::forget(to);
    const auto& s = from.strides;
    const bool states = along_states(from);
    const bc_position at = mixed_at(states, first);
    const std::int64_t position =
        bc_offsets_.load(k) + (begin_ + at.step) * s.time + at.state * s.channel;
    if (in_runs(k)) return from.template load_runs<M>(to, position, 0);
    const std::int64_t near = states ? s.channel : s.time;
    from.load(to, [&](int e) SCANREC_LAMBDA {
      const int step = at.step + (states ? 0 : e), state = at.state + (states ? e : 0);
      return step >= idle_ && state < p_.states ? position + e * near : device_rows<V>::none;
    });
  }
  SCANREC_DEVICE SCANREC_INLINE void stage_bc(const device_rows<V>& from, const mixed_array& to,
                                              int part, int first, const raw (&x)[M]) const {
    if (!from.present()) return;
    four_steps<V> of;
    to_numbers<M>(x, from.as, in_runs(to.k + part), of.of);
    const bc_position at = mixed_at(along_states(from), first);
    const int position = (part * Shape::states + at.state) * Shape::state_row + at.step;
    if (!along_states(from)) return to.fours.store(position / 4, of);
    SCANREC_UNROLL
    for (int e = 0; e < M; ++e) to.numbers.store(position + e * Shape::state_row, of.of[e]);
  }
  SCANREC_DEVICE SCANREC_INLINE mixed_steps<X> bc_elements(
      const bc_array<number, device_rows>& of, const device::shared_array<four_steps<V>>& rows,
      const X (&of_channel)[plain ? 1 : S], int t, int i) const {
    if constexpr (!plain)
      if (of.channels.present()) return mixed_steps<X>::same(of_channel[i]);
    constexpr int row = Shape::state_row / 4;
    const int position = state(i) * row + (t >> 2);
    if constexpr (parts == 2)
      return {rows.load(position), rows.load(position + Shape::states * row)};
    else
      return rows.load(position);
  }

  // remember() records in bit first_bc + k whether array k of B and C can be loaded in runs.
  static constexpr int first_bc = 8;
  device::shared_array<std::int64_t> bc_offsets_;  // offsets of B and C for this block
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
