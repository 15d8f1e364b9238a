// SPDX-License-Identifier: BSD-3-Clause
// The work per element of the adjoint of a selective scan. Before a chunk is processed backwards,
// u, delta, z and the gradients of outputs are turned into step sizes and gradients of y.
// Afterwards the gradients of u, delta and z are computed. So are the contributions of the elements
// to the gradients of D, the bias and the intervals. Here y = sum_n C x, and the output is
// (y + D u) silu(z), or y + D u if z is absent. The letters l, a and x are those of
// selective_adjoint.cuh.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_products.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The part of the adjoint kernel that loads, transforms and writes the elements of a chunk.
template <class Shape, selective_kind Kind>
class selective_grad_elements : public selective_products<Shape, Kind> {
  using base = selective_products<Shape, Kind>;
  using raw = typename base::raw;

 public:
  using base::p, base::room;
  using typename base::number;
  using typename base::V;
  using typename base::X;
  static constexpr int L = base::L, row = Shape::row, together = base::run, runs = base::runs;
  using run_of_values = typename base::run_of_values;

  SCANREC_DEVICE selective_grad_elements(const selective_device_vjp<number>& problem,
                                         const selective_vjp_room<number>& given_room,
                                         const selective_tiles& tiles, std::int64_t block)
      : base(problem, given_room, tiles, block),
        y(Shape::y),
        y_grad(Shape::y_grad),
        keep(Shape::keep),
        soft(Shape::vjp_soft),
        sums(Shape::sums) {
    this->find(p.u, of_u), this->find(p.delta, of_delta), this->find(p.z, of_z);
    this->find(p.out_grad, of_out_grad), this->find(p.u_grad, of_u_grad);
    this->find(p.delta_grad, of_delta_grad), this->find(p.z_grad, of_z_grad);
  }

  /// Stages the data that the forward steps of a chunk need.
  SCANREC_DEVICE SCANREC_INLINE void stage_steps() const {
    this->take_bc(p.b, this->b_);
    this->along([&](auto along) SCANREC_LAMBDA {
      SCANREC_KEEP_LOOP
      for (int of_run = 0; of_run < runs; ++of_run) this->template stage_steps<along.value>(of_run);
    });
  }
  /// Stages the data that the forward and the adjoint steps of a chunk need.
  SCANREC_DEVICE SCANREC_INLINE void stage_all() const {
    this->take_bc(p.b, this->b_);
    this->take_bc(p.c, this->c_);
    this->along([&](auto along) SCANREC_LAMBDA {
      SCANREC_KEEP_LOOP
      for (int of_run = 0; of_run < runs; ++of_run) this->template stage_all<along.value>(of_run);
    });
  }
  /// Writes the gradients of u, delta and z. Leaves the contributions to the gradients of D, the
  /// bias and the intervals in shared memory.
  SCANREC_DEVICE SCANREC_INLINE void put() const {
    this->along([&](auto along) SCANREC_LAMBDA {
      SCANREC_KEEP_LOOP
      for (int of_run = 0; of_run < runs; ++of_run) this->template put<along.value>(of_run);
    });
  }
  /// Adds a chunk's contributions to the gradients of D and the bias to this thread's running sums.
  /// The lanes of a channel share the steps.
  SCANREC_DEVICE SCANREC_INLINE void add_elements() {
    SCANREC_KEEP_LOOP
    for (int t = this->lane_; t < Shape::steps; t += L) {
      const auto x = sums.load(t * row + this->channel_);
      of_bias = of_bias + x.first, of_d = of_d + x.second;
    }
  }
  /// Writes to the workspace the gradients of intervals, summed over the channels of the block.
  SCANREC_DEVICE SCANREC_INLINE void put_intervals(std::int64_t begin) const {
    if constexpr (!base::plain) {
      for (int t = this->thread_; t < Shape::steps; t += selective_threads) {
        V sum = 0;
        SCANREC_UNROLL_BY_4
        for (int c = 0; c < Shape::channels; ++c) sum = sum + y.load(t * row + c);
        if (begin + t >= 0) room.intervals[this->tile_number * p.time + begin + t] = sum;
      }
    }
  }

  // y and its gradient, which is doubled for complex states. After put(), y holds the terms of the
  // gradients of intervals, if these are computed.
  device::shared_array<V> y, y_grad;
  device::shared_array<run_of_values> keep, soft;
  // Sums over states of l B and of A l a x, where x is the state before the step. After put(), they
  // are replaced by the terms of the gradients of the bias and of D.
  device::shared_array<value_pair<V>> sums;
  V of_d, of_bias;  // running sums of a checkpoint interval

 private:
  enum arrays { of_u, of_delta, of_z, of_out_grad, of_u_grad, of_delta_grad, of_z_grad };
  enum kept { u_value, slope, z_slope, grad };  // the values kept for each run
  SCANREC_DEVICE SCANREC_INLINE int kept_at(int which, int of_run) const {
    return (which * runs + of_run) * selective_threads + this->thread_;
  }

  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE void stage_steps(int of_run) const {
    raw u[together], delta[together];
    this->template load<Along>(p.u, of_u, u, of_run);
    this->template load<Along>(p.delta, of_delta, delta, of_run);
    V step[together], of_slope[together];
    run_of_values u_of;
    this->numbers(p.delta, of_delta, delta, step), this->numbers(p.u, of_u, u, u_of.of);
    this->template to_steps<Along>(step, of_slope, of_run);
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k) {
      const int slot = this->template slot<Along>(of_run, k);
      if (!this->has_elements()) continue;
      this->delta_u_.store(slot, {step[k], step[k] * u_of.of[k]});
      this->template set_reset<Along>(of_run, k);
    }
  }

  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE void stage_all(int of_run) const {
    raw u[together], delta[together], z[together], g[together];
    this->template load<Along>(p.u, of_u, u, of_run);
    this->template load<Along>(p.delta, of_delta, delta, of_run);
    this->template load<Along>(p.z, of_z, z, of_run);
    this->template load<Along>(p.out_grad, of_out_grad, g, of_run);
    V step[together], y_of[together];
    run_of_values u_of, slope_of, out_of;
    this->numbers(p.delta, of_delta, delta, step), this->numbers(p.u, of_u, u, u_of.of);
    this->template soften<Along>(step, slope_of.of, of_run);
    if constexpr (!base::plain) {
      if (p.intervals_grad.present()) {
        run_of_values soft_of;
        SCANREC_UNROLL
        for (int k = 0; k < together; ++k) soft_of.of[k] = step[k];
        soft.store(kept_at(0, of_run), soft_of);
      }
    }
    this->template scale<Along>(step, slope_of.of, of_run);
    // An absent gradient was loaded as 0.
    this->numbers(p.out_grad, of_out_grad, g, out_of.of);
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k) y_of[k] = out_of.of[k];
    if (p.z.present()) {
      V z_of[together];
      run_of_values slopes;
      this->numbers(p.z, of_z, z, z_of);
      SCANREC_UNROLL
      for (int k = 0; k < together; ++k) {
        const auto s = selective_sigmoid(z_of[k]);
        y_of[k] = out_of.of[k] * (z_of[k] * s.value);
        slopes.of[k] = s.value * simd::fma(z_of[k], s.complement, V(1));
      }
      keep.store(kept_at(z_slope, of_run), slopes);
    }
    keep.store(kept_at(u_value, of_run), u_of);
    keep.store(kept_at(slope, of_run), slope_of);
    keep.store(kept_at(grad, of_run), out_of);
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k) {
      const int slot = this->template slot<Along>(of_run, k);
      if (!this->has_elements()) continue;
      this->delta_u_.store(slot, {step[k], step[k] * u_of.of[k]});
      y_grad.store(slot, sum_of_pairs<X>(y_of[k]));
      this->template set_reset<Along>(of_run, k);
    }
  }

  template <selective_runs Along>
  SCANREC_DEVICE SCANREC_INLINE void put(int of_run) const {
    V u_grad[together], delta_grad[together], z_grad[together];
    const run_of_values u = keep.load(kept_at(u_value, of_run));
    const run_of_values of_slope = keep.load(kept_at(slope, of_run));
    const run_of_values d = this->template d_of<Along>(of_run);
    const bool whole = this->whole();
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k) {
      const int slot = this->template slot<Along>(of_run, k);
      if (!this->has_elements()) continue;
      const auto sum = sums.load(slot);
      V of_y = y_grad.load(slot);
      if constexpr (base::parts == 2) of_y = V(0.5) * of_y;
      const V of_step = simd::fma(u.of[k], sum.first, sum.second);
      delta_grad[k] = of_step * of_slope.of[k];
      u_grad[k] = simd::fma(d.of[k], of_y, this->delta_u_.load(slot).first * sum.first);
      const bool there = whole || this->template there<Along>(of_run, k);
      sums.store(slot, there ? value_pair<V>{delta_grad[k], of_y * u.of[k]} : value_pair<V>{0, 0});
      if (p.z_grad.present()) z_grad[k] = simd::fma(d.of[k], u.of[k], y.load(slot));
      if constexpr (!base::plain) {
        if (p.intervals_grad.present())
          y.store(slot, there ? of_step * soft.load(kept_at(0, of_run)).of[k] : V(0));
      }
    }
    this->template store<Along>(p.delta_grad, of_delta_grad, delta_grad, of_run, p.update);
    this->template store<Along>(p.u_grad, of_u_grad, u_grad, of_run, p.update);
    if (!p.z_grad.present()) return;
    const run_of_values out = keep.load(kept_at(grad, of_run));
    const run_of_values slopes = keep.load(kept_at(z_slope, of_run));
    SCANREC_UNROLL
    for (int k = 0; k < together; ++k) z_grad[k] = out.of[k] * z_grad[k] * slopes.of[k];
    this->template store<Along>(p.z_grad, of_z_grad, z_grad, of_run, p.update);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
