// SPDX-License-Identifier: BSD-3-Clause
// Selective scans forward: a block walks time with the states of its channels in registers. While
// a chunk is walked the elements of the next one are on their way to registers.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Takes the states of a thread's channel through four steps from t on. `each(j, i, a, last, x)` is
/// told of every state behind its step and before it.
template <class Tile, class X, int S, class Each>
SCANREC_DEVICE SCANREC_INLINE void walk_four_steps(const Tile& tile, const X (&rate)[S], int t,
                                                   X (&x)[S], const Each& each) {
  mixed_steps<X> b[S];
  SCANREC_UNROLL
  for (int i = 0; i < S; ++i) b[i] = tile.b_of(t, i);
  SCANREC_UNROLL
  for (int j = 0; j < 4; ++j) {
    const auto fed = tile.fed_.load((t + j) * Tile::row + tile.channel_);
    auto step = fed.first;
    if (tile.cut(t + j)) {
      step = 0;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) x[i] = Tile::zero();
    }
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i) {
      const X a = selective_gate(step, rate[i]), last = x[i];
      x[i] = simd::fma(a, last, scanrec::detail::scaled(fed.second, b[i].at(j)));
      each(j, i, a, last, x[i]);
    }
  }
}

template <class Shape, selective_kind Kind>
struct walk_selective {
  using V = typename Shape::value;
  static constexpr int threads = selective_threads;
  using number = typename Shape::number;
  static constexpr int blocks_together = Shape::own * sizeof(number) > 16 || sizeof(V) > 4 ? 2 : 4;
  static constexpr bool synchronises = true;

  selective_device_problem<number> p;
  selective_tiles tiles;

  static std::int64_t shared_bytes(const selective_device_problem<number>& p) {
    return Shape::forward_bytes + (p.cuts.data ? Shape::mark_bytes : 0);
  }

  SCANREC_DEVICE void operator()() const {
    walk own(p, tiles.of(device::block_index()));
    own.run();
  }

 private:
  struct walk : selective_tile<Shape, Kind> {
    using tile = selective_tile<Shape, Kind>;
    using X = typename tile::X;
    using raw = typename tile::raw;
    static constexpr int S = tile::S, E = tile::E, row = Shape::row;

    device::shared_array<V> y, keep;
    raw u[E], delta[E], z[E];  // on their way
    raw b[tile::parts][tile::M], c[tile::parts][tile::M];
    X x[S], gate[S];

    SCANREC_DEVICE walk(const selective_device_problem<number>& problem, const selective_place& at)
        : tile(problem, at, Shape::forward_marks), y(Shape::y), keep(Shape::forward_keep) {}

    SCANREC_DEVICE SCANREC_INLINE void fetch() {
      const auto& p = this->p_;
      this->load(p.u, u), this->load(p.delta, delta);
      if (p.out.present()) this->load(p.z, z);
      if constexpr (tile::mixed_early) {
        this->load_mixing(p.b, 0, b);
        if (p.out.present()) this->load_mixing(p.c, 0, c);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void place() const {
      const auto& p = this->p_;
      V step[E], slope[E], of_u[E];
      to_numbers(delta, p.delta.as, step), to_numbers(u, p.u.as, of_u);
      this->to_steps(step, slope);
      this->template for_slots<E>(0, [&](int e, int slot, int) SCANREC_LAMBDA {
        this->fed_.store(slot, {step[e], step[e] * of_u[e]});
        keep.store(e * selective_threads + this->thread_, of_u[e]);
        this->mark_cut(e);
      });
      if (p.z.present() && p.out.present()) {
        V of_z[E];
        to_numbers(z, p.z.as, of_z);
        SCANREC_UNROLL
        for (int e = 0; e < E; ++e)
          keep.store((E + e) * selective_threads + this->thread_, of_z[e]);
      }
      if constexpr (tile::mixed_early) {
        this->place_mixing(p.b, 0, b, this->b_);
        if (p.out.present()) this->place_mixing(p.c, 0, c, this->c_);
      } else {
        this->take_mixing(p.b, this->b_);
        if (p.out.present()) this->take_mixing(p.c, this->c_);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void take_steps() {
      const bool out = this->p_.out.present();
      SCANREC_KEEP_LOOP
      for (int t = 0; t < Shape::steps; t += 4) {
        if (!out) {
          walk_four_steps(*this, gate, t, x, [](int, int, X, X, X) SCANREC_LAMBDA {});
          continue;
        }
        mixed_steps<X> rows[S];
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) rows[i] = this->c_of(t, i);
        several<V, 4> sum{};
        walk_four_steps(*this, gate, t, x, [&](int j, int i, X, X, X state) SCANREC_LAMBDA {
          sum.of[j] = scanrec::detail::add_real_product(rows[i].at(j), state, sum.of[j]);
        });
        const V total = sum_over_lanes<Shape::lanes>(sum, this->thread_ % device::warp_size);
        if (this->lane_ < 4)
          y.store((t + this->lane_) * row + this->channel_, sum_of_pairs<X>(total));
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void put() const {
      const auto& p = this->p_;
      V sum[E];
      this->template for_slots<E>(0, [&](int e, int slot, int channel) SCANREC_LAMBDA {
        sum[e] = simd::fma(this->skip_.load(channel),
                           keep.load(e * selective_threads + this->thread_), y.load(slot));
      });
      if (p.z.present()) {
        SCANREC_UNROLL
        for (int e = 0; e < E; ++e) {
          const V of_z = keep.load((E + e) * selective_threads + this->thread_);
          sum[e] = sum[e] * (of_z * selective_sigmoid(of_z).value);
        }
      }
      this->store(p.out, sum);
    }
    SCANREC_DEVICE SCANREC_INLINE void run() {
      const auto& p = this->p_;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) gate[i] = gate_rate(this->rate_[i]);
      this->load_states(p.initial, x);
      const std::int64_t chunks = (p.time + Shape::steps - 1) / Shape::steps;
      std::int64_t begin = p.time - chunks * Shape::steps;
      this->stand_at(begin);
      if (chunks > 0) fetch();
      device::synchronise_block();  // D and bias are there
      for (; begin < p.time; begin += Shape::steps) {
        this->stand_at(begin);
        place();
        device::synchronise_block();
        const std::int64_t end = begin + Shape::steps;
        this->stand_at(end);
        if (end < p.time) fetch();
        take_steps();
        this->stand_at(begin);
        device::synchronise_block();
        if (p.out.present()) put();
        // Checkpoint k has the states before step time - 128 (k + 1).
        if (end < p.time && (p.time - end) % selective_stretch == 0)
          this->store_states(p.checkpoints, x, (p.time - end) / selective_stretch - 1);
      }
      this->store_states(p.final_state, x);
    }
  };
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
