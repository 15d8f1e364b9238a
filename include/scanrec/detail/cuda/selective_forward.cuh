// SPDX-License-Identifier: BSD-3-Clause
// Selective scans forward: a block walks time with the states of its channels in registers. While
// a chunk is walked the elements of the next one are on their way to registers.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Takes the states of a thread's channel through four steps from t on. `each(j, i, b, fed, x)` is
/// told of every state behind its step.
template <class Tile, class V, int S, class Each>
SCANREC_DEVICE SCANREC_INLINE void walk_four_steps(const Tile& tile, const V (&rate)[S], int t,
                                                   V (&x)[S], const Each& each) {
  four_steps<V> b[S];
  SCANREC_UNROLL
  for (int i = 0; i < S; ++i) b[i] = tile.b_of(t, i);
  SCANREC_UNROLL
  for (int j = 0; j < 4; ++j) {
    const auto fed = tile.fed_.load((t + j) * Tile::row + tile.channel_);
    V step = fed.first;
    if (tile.cut(t + j)) {
      step = 0;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) x[i] = 0;
    }
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i) {
      const V a = selective_gate(step, rate[i]), passed = a * x[i];
      x[i] = simd::fma(a, x[i], b[i].of[j] * fed.second);
      each(j, i, a, passed, x[i]);
    }
  }
}

template <class Shape, selective_kind Kind>
struct walk_selective {
  using V = typename Shape::value;
  static constexpr int threads = selective_threads;
  static constexpr int blocks_together = Shape::own > 4 || sizeof(V) > 4 ? 2 : 4;
  static constexpr bool synchronises = true;

  selective_device_problem<V> p;
  selective_tiles tiles;

  static std::int64_t shared_bytes(const selective_device_problem<V>& p) {
    return Shape::forward_bytes + (p.cuts.data ? Shape::mark_bytes : 0);
  }

  SCANREC_DEVICE void operator()() const {
    walk own(p, tiles.of(device::block_index()));
    own.run();
  }

 private:
  struct walk : selective_tile<Shape, Kind> {
    using tile = selective_tile<Shape, Kind>;
    using raw = typename tile::raw;
    static constexpr int S = tile::S, E = tile::E, row = Shape::row;

    device::shared_array<V> y, keep;
    raw u[E], delta[E], z[E], b[tile::M], c[tile::M];  // on their way
    V x[S], gate[S];

    SCANREC_DEVICE walk(const selective_device_problem<V>& problem, const selective_place& at)
        : tile(problem, at, Shape::forward_marks), y(Shape::y), keep(Shape::forward_keep) {}

    SCANREC_DEVICE SCANREC_INLINE void fetch(std::int64_t begin) {
      this->load(this->p_.u, begin, u), this->load(this->p_.delta, begin, delta);
      if (this->p_.out.present()) this->load(this->p_.z, begin, z);
      if constexpr (tile::mixed_early) {
        this->load_mixing(this->p_.b.steps, begin, 0, b);
        if (this->p_.out.present()) this->load_mixing(this->p_.c.steps, begin, 0, c);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void place(std::int64_t begin) {
      const auto& p = this->p_;
      SCANREC_UNROLL
      for (int e = 0; e < E; ++e) {
        const auto at = this->at(e, begin);
        if (!tile::placed(at)) continue;
        const V step = at.there ? this->step_of(number_of<V>(delta[e], p.delta.as), at).value : 0;
        const V of_u = number_of<V>(u[e], p.u.as);
        this->fed_.store(this->slot(at), {step, step * of_u});
        keep.store(e * selective_threads + this->thread_, of_u);
        if (p.z.present() && p.out.present())
          keep.store((E + e) * selective_threads + this->thread_, number_of<V>(z[e], p.z.as));
        this->mark_cut(at, begin);
      }
      if constexpr (tile::mixed_early) {
        this->place_mixing(p.b.steps, 0, b, this->b_);
        if (p.out.present()) this->place_mixing(p.c.steps, 0, c, this->c_);
      } else {
        this->take_mixing(p.b.steps, begin, this->b_);
        if (p.out.present()) this->take_mixing(p.c.steps, begin, this->c_);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void take_steps() {
      const bool out = this->p_.out.present();
      SCANREC_KEEP_LOOP
      for (int t = 0; t < Shape::steps; t += 4) {
        if (!out) {
          walk_four_steps(*this, gate, t, x, [](int, int, V, V, V) SCANREC_LAMBDA {});
          continue;
        }
        four_steps<V> rows[S];
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) rows[i] = this->c_of(t, i);
        several<V, 4> sum{};
        walk_four_steps(*this, gate, t, x, [&](int j, int i, V, V, V state) SCANREC_LAMBDA {
          const V factor = rows[i].of[j];
          sum.of[j] = simd::fma(factor, state, sum.of[j]);
        });
        const V total = sum_over_lanes<Shape::lanes>(sum, this->thread_ % device::warp_size);
        if (this->lane_ < 4) y.store((t + this->lane_) * row + this->channel_, total);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void put(std::int64_t begin) const {
      const auto& p = this->p_;
      SCANREC_UNROLL
      for (int e = 0; e < E; ++e) {
        const auto at = this->at(e, begin);
        if (!at.there) continue;
        V sum = y.load(this->slot(at));
        if (p.skip.present())
          sum = simd::fma(this->skip_.load(at.channel),
                          keep.load(e * selective_threads + this->thread_), sum);
        if (p.z.present()) {
          const V of_z = keep.load((E + e) * selective_threads + this->thread_);
          sum = sum * (of_z * selective_sigmoid(of_z).value);
        }
        this->store(p.out, begin, at, sum);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void run() {
      const auto& p = this->p_;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) gate[i] = gate_rate(this->rate_[i]);
      this->load_states(p.initial, x);
      const std::int64_t chunks = (p.time + Shape::steps - 1) / Shape::steps;
      std::int64_t begin = p.time - chunks * Shape::steps;
      if (chunks > 0) fetch(begin);
      device::synchronise_block();  // D and bias are there
      for (; begin < p.time; begin += Shape::steps) {
        place(begin);
        device::synchronise_block();
        const std::int64_t end = begin + Shape::steps;
        if (end < p.time) fetch(end);
        take_steps();
        device::synchronise_block();
        if (p.out.present()) put(begin);
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
