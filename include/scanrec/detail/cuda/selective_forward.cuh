// SPDX-License-Identifier: BSD-3-Clause
// The forward kernel of selective scans. A block processes time with the states of its channels in
// registers. It loads the elements of the next chunk to registers while it processes the current
// one.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Advances the states of a thread by four steps from t on. Calls each(j, i, a, last, x) for state
/// i at step t + j, where a is the gate, and last and x are the states before and after the step.
/// If the step has a reset, a is 1 and last is 0.
template <class Tile, class X, int S, class Each>
SCANREC_DEVICE SCANREC_INLINE void run_four_steps(const Tile& tile, const X (&rate)[S], int t,
                                                  X (&x)[S], const Each& each) {
  mixed_steps<X> b[S];
  SCANREC_UNROLL
  for (int i = 0; i < S; ++i) b[i] = tile.b_of(t, i);
  SCANREC_UNROLL
  for (int j = 0; j < 4; ++j) {
    const auto delta_u = tile.delta_u_.load((t + j) * Tile::row + tile.channel_);
    auto step = delta_u.first;
    if (tile.reset(t + j, tile.channel_)) {
      step = 0;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) x[i] = Tile::zero();
    }
    SCANREC_UNROLL
    for (int i = 0; i < S; ++i) {
      const X a = selective_gate(step, rate[i]), last = x[i];
      x[i] = simd::fma(a, last, scanrec::detail::scaled(delta_u.second, b[i].at(j)));
      each(j, i, a, last, x[i]);
    }
  }
}

template <class Shape, selective_kind Kind>
struct selective_forward_kernel {
  using V = typename Shape::value;
  static constexpr int threads = selective_threads;
  using number = typename Shape::number;
  static constexpr int blocks_together = Shape::own * sizeof(number) > 16 || sizeof(V) > 4 ? 2 : 4;
  static constexpr bool synchronises = true;

  selective_device_problem<number> p;
  selective_tiles tiles;

  static std::int64_t shared_bytes(const selective_device_problem<number>& p) {
    return Shape::forward_bytes + (p.resets.present() ? Shape::reset_mask_bytes : 0);
  }

  SCANREC_DEVICE void operator()() const {
    block_run own(p, tiles.of(device::block_index()));
    own.run();
  }

 private:
  struct block_run : selective_tile<Shape, Kind> {
    using tile = selective_tile<Shape, Kind>;
    using X = typename tile::X;
    using raw = typename tile::raw;
    static constexpr int S = tile::S, E = tile::E, row = Shape::row;

    using run_of_values = typename tile::run_of_values;
    enum arrays { of_u, of_delta, of_z, of_out };

    device::shared_array<V> y;
    device::shared_array<run_of_values> keep;  // (u or z, run, thread)
    raw u[E], delta[E], z[E];                  // loaded ahead
    raw b[tile::parts][tile::M], c[tile::parts][tile::M];
    X x[S], gate[S];

    SCANREC_DEVICE block_run(const selective_device_problem<number>& problem,
                             const selective_position& at)
        : tile(problem, at, Shape::forward_offsets, Shape::forward_reset_mask),
          y(Shape::y),
          keep(Shape::forward_keep) {
      this->find(problem.u, of_u), this->find(problem.delta, of_delta);
      this->find(problem.z, of_z), this->find(problem.out, of_out);
    }

    template <selective_runs Along>
    SCANREC_DEVICE SCANREC_INLINE void fetch() {
      const auto& p = this->p_;
      this->template load<Along>(p.u, of_u, u);
      this->template load<Along>(p.delta, of_delta, delta);
      if (p.out.present()) this->template load<Along>(p.z, of_z, z);
    }
    SCANREC_DEVICE SCANREC_INLINE void fetch_all() {
      const auto& p = this->p_;
      this->along([&](auto runs) SCANREC_LAMBDA { this->template fetch<runs.value>(); });
      if constexpr (tile::mixed_early) {
        this->load_bc(p.b, this->b_, 0, b);
        if (p.out.present()) this->load_bc(p.c, this->c_, 0, c);
      }
    }
    // After the last chunk nothing is loaded ahead. Clearing the registers tells the compiler that
    // their values are no longer needed.
    SCANREC_DEVICE SCANREC_INLINE void drop() {
      tile::forget(u), tile::forget(delta), tile::forget(z);
    }
    template <selective_runs Along>
    SCANREC_DEVICE SCANREC_INLINE void position() const {
      const auto& p = this->p_;
      V step[E], slope[E], u_value[E];
      this->numbers(p.delta, of_delta, delta, step), this->numbers(p.u, of_u, u, u_value);
      this->template to_steps<Along>(step, slope);
      SCANREC_UNROLL
      for (int e = 0; e < E; ++e) {
        if (!this->has_elements()) continue;
        this->delta_u_.store(this->template slot<Along>(e / tile::run, e % tile::run),
                             {step[e], step[e] * u_value[e]});
        this->template set_reset<Along>(e / tile::run, e % tile::run);
      }
      keep_values(0, u_value);
      if (p.z.present() && p.out.present()) {
        V z_value[E];
        this->numbers(p.z, of_z, z, z_value), keep_values(1, z_value);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void stage_all() const {
      const auto& p = this->p_;
      this->along([&](auto runs) SCANREC_LAMBDA { this->template position<runs.value>(); });
      if constexpr (tile::mixed_early) {
        this->stage_bc(p.b, this->b_, 0, b);
        if (p.out.present()) this->stage_bc(p.c, this->c_, 0, c);
      } else {
        this->take_bc(p.b, this->b_);
        if (p.out.present()) this->take_bc(p.c, this->c_);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE int kept_at(int which, int of_run) const {
      return (which * tile::runs + of_run) * selective_threads + this->thread_;
    }
    SCANREC_DEVICE SCANREC_INLINE void keep_values(int which, const V (&x)[E]) const {
      SCANREC_UNROLL
      for (int e = 0; e < E; e += tile::run) {
        run_of_values of;
        SCANREC_UNROLL
        for (int k = 0; k < tile::run; ++k) of.of[k] = x[e + k];
        keep.store(kept_at(which, e / tile::run), of);
      }
    }
    SCANREC_DEVICE SCANREC_INLINE void take_steps() {
      if (!this->p_.out.present()) {
        SCANREC_KEEP_LOOP
        for (int t = 0; t < Shape::steps; t += 4)
          run_four_steps(*this, gate, t, x, [](int, int, X, X, X) SCANREC_LAMBDA {});
        return;
      }
      // Lane j of a channel has the sum of step t + j.
      const int own = this->lane_ * row + this->channel_;
      SCANREC_UNROLL_BY_2
      for (int t = 0; t < Shape::steps; t += 4) {
        mixed_steps<X> rows[S];
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) rows[i] = this->c_of(t, i);
        several<V, 4> sum{};
        run_four_steps(*this, gate, t, x, [&](int j, int i, X, X, X state) SCANREC_LAMBDA {
          sum.of[j] = scanrec::detail::add_real_product(rows[i].at(j), state, sum.of[j]);
        });
        const V total = sum_over_lanes<Shape::lanes>(sum, this->thread_ % device::warp_size);
        if (Shape::lanes == 4 || this->lane_ < 4) y.store(own + t * row, sum_of_pairs<X>(total));
      }
    }
    template <selective_runs Along>
    SCANREC_DEVICE SCANREC_INLINE void put() const {
      const auto& p = this->p_;
      V sum[E];
      SCANREC_UNROLL
      for (int e = 0; e < E; e += tile::run) {
        const run_of_values d = this->template d_of<Along>(e / tile::run);
        const run_of_values of = keep.load(kept_at(0, e / tile::run));
        SCANREC_UNROLL
        for (int k = 0; k < tile::run; ++k)
          if (this->has_elements())
            sum[e + k] =
                simd::fma(d.of[k], of.of[k], y.load(this->template slot<Along>(e / tile::run, k)));
      }
      if (p.z.present()) {
        SCANREC_UNROLL
        for (int e = 0; e < E; e += tile::run) {
          const run_of_values of = keep.load(kept_at(1, e / tile::run));
          SCANREC_UNROLL
          for (int k = 0; k < tile::run; ++k)
            sum[e + k] = sum[e + k] * (of.of[k] * selective_sigmoid(of.of[k]).value);
        }
      }
      this->template store<Along>(p.out, of_out, sum);
    }
    SCANREC_DEVICE SCANREC_INLINE void run() {
      const auto& p = this->p_;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) gate[i] = gate_rate(this->rate_[i]);
      this->load_states(p.initial, x);
      const std::int64_t chunks = (p.time + Shape::steps - 1) / Shape::steps;
      std::int64_t begin = p.time - chunks * Shape::steps;
      this->stand_at(begin);
      device::synchronise_block();  // publishes D, bias and offsets
      if (chunks > 0) fetch_all();
      for (; begin < p.time; begin += Shape::steps) {
        this->stand_at(begin);
        stage_all();
        device::synchronise_block();
        const std::int64_t end = begin + Shape::steps;
        this->stand_at(end);
        if (end < p.time)
          fetch_all();
        else
          drop();
        take_steps();
        this->stand_at(begin);
        device::synchronise_block();
        if (p.out.present())
          this->along([&](auto runs) SCANREC_LAMBDA { this->template put<runs.value>(); });
        // Checkpoint k holds the states before step time - 128 (k + 1).
        if (end < p.time && (p.time - end) % memory::checkpoint_interval == 0)
          this->store_states(p.checkpoints, x, (p.time - end) / memory::checkpoint_interval - 1);
      }
      this->store_states(p.final_state, x);
    }
  };
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
