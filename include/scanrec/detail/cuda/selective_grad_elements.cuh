// SPDX-License-Identifier: BSD-3-Clause
// What the adjoint of a selective scan does once per element: before a chunk is walked back, from
// u, delta, z and the gradients of outputs to steps and gradients of y; behind it, to the gradients
// of u, delta and z, and to what D, the bias and the intervals get of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_products.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A block of the adjoint with the elements of a chunk.
template <class Shape, selective_kind Kind>
class selective_grad_elements : public selective_products<Shape, Kind> {
  using base = selective_products<Shape, Kind>;
  using raw = typename base::raw;

 public:
  using base::p, base::room;
  using typename base::number;
  using typename base::V;
  using typename base::X;
  static constexpr int L = base::L, E = base::E, row = Shape::row;

  SCANREC_DEVICE selective_grad_elements(const selective_device_vjp<number>& problem,
                                         const selective_vjp_room<number>& given_room,
                                         const selective_tiles& tiles, std::int64_t block)
      : base(problem, given_room, tiles, block),
        y(Shape::y),
        y_grad(Shape::y_grad),
        keep(Shape::keep),
        soft(Shape::vjp_soft),
        sums(Shape::sums) {}

  /// What walking a chunk forward takes.
  SCANREC_DEVICE SCANREC_INLINE void place_steps() const {
    this->take_mixing(p.b, this->b_);
    SCANREC_KEEP_LOOP
    for (int first = 0; first < E; first += together) {
      raw u[together], delta[together];
      this->load(p.u, u, first), this->load(p.delta, delta, first);
      V step[together], of_u[together], of_slope[together];
      to_numbers(delta, p.delta.as, step), to_numbers(u, p.u.as, of_u);
      this->to_steps(step, of_slope, first);
      this->template for_slots<together>(first, [&](int e, int slot, int) SCANREC_LAMBDA {
        this->fed_.store(slot, {step[e], step[e] * of_u[e]});
        this->mark_cut(first + e);
      });
    }
  }
  /// What walking it back takes, too.
  SCANREC_DEVICE SCANREC_INLINE void place_all() const {
    this->take_mixing(p.b, this->b_);
    this->take_mixing(p.c, this->c_);
    SCANREC_KEEP_LOOP
    for (int first = 0; first < E; first += together) place_all(first);
  }
  /// What is left of the gradients of u, delta and z; leaves what D, the bias and the intervals get
  /// of them.
  SCANREC_DEVICE SCANREC_INLINE void put() const {
    SCANREC_KEEP_LOOP
    for (int first = 0; first < E; first += together) put(first);
  }
  /// The lanes of a channel share its steps.
  SCANREC_DEVICE SCANREC_INLINE void add_elements() {
    SCANREC_KEEP_LOOP
    for (int t = this->lane_; t < Shape::steps; t += L) {
      const auto x = sums.load(t * row + this->channel_);
      of_bias = of_bias + x.first, of_skip = of_skip + x.second;
    }
  }
  /// Leaves the sums over the channels of the block that make gradients of intervals.
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

  // y, and its gradient, of complex states twice that; at last what gradients of intervals sum in
  // y.
  device::shared_array<V> y, y_grad, keep, soft;
  device::shared_array<value_pair<V>> sums;  // over states: l B, and A l a x
  V of_skip, of_bias;                        // running sums of a stretch

 private:
  static constexpr int together = std::min(base::E, 4);  // elements
  enum kept { u_value, slope, z_slope, grad };           // of an element
  SCANREC_DEVICE SCANREC_INLINE static int kept_at(int which, int e) {
    return (which * E + e) * selective_threads;
  }

  SCANREC_DEVICE SCANREC_INLINE void place_all(int first) const {
    raw u[together], delta[together], z[together], g[together];
    this->load(p.u, u, first), this->load(p.delta, delta, first);
    this->load(p.z, z, first), this->load(p.out_grad, g, first);
    V step[together], of_u[together], of_slope[together], of_out[together], of_y[together];
    to_numbers(delta, p.delta.as, step), to_numbers(u, p.u.as, of_u);
    this->soften(step, of_slope, first);
    if constexpr (!base::plain) {
      if (p.intervals_grad.present()) {
        SCANREC_UNROLL
        for (int e = 0; e < together; ++e)
          soft.store((first + e) * selective_threads + this->thread_, step[e]);
      }
    }
    this->scale(step, of_slope, first);
    if (p.out_grad.present()) {
      to_numbers(g, p.out_grad.as, of_out);
    } else {
      SCANREC_UNROLL
      for (int e = 0; e < together; ++e) of_out[e] = 0;
    }
    SCANREC_UNROLL
    for (int e = 0; e < together; ++e) of_y[e] = of_out[e];
    if (p.z.present()) {
      V of_z[together];
      to_numbers(z, p.z.as, of_z);
      SCANREC_UNROLL
      for (int e = 0; e < together; ++e) {
        const auto s = selective_sigmoid(of_z[e]);
        of_y[e] = of_out[e] * (of_z[e] * s.value);
        keep.store(kept_at(z_slope, first + e) + this->thread_,
                   s.value * simd::fma(of_z[e], s.complement, V(1)));
      }
    }
    SCANREC_UNROLL
    for (int e = 0; e < together; ++e) {
      keep.store(kept_at(u_value, first + e) + this->thread_, of_u[e]);
      keep.store(kept_at(slope, first + e) + this->thread_, of_slope[e]);
      keep.store(kept_at(grad, first + e) + this->thread_, of_out[e]);
    }
    this->template for_slots<together>(first, [&](int e, int slot, int) SCANREC_LAMBDA {
      this->fed_.store(slot, {step[e], step[e] * of_u[e]});
      y_grad.store(slot, sum_of_pairs<X>(of_y[e]));
      this->mark_cut(first + e);
    });
  }

  SCANREC_DEVICE SCANREC_INLINE void put(int first) const {
    V of_u[together], of_delta[together], of_z[together];
    this->template for_slots<together>(first, [&](int e, int slot, int channel) SCANREC_LAMBDA {
      const auto kept = [&](int which) SCANREC_LAMBDA {
        return keep.load(kept_at(which, first + e) + this->thread_);
      };
      const auto sum = sums.load(slot);
      V of_y = y_grad.load(slot);
      if constexpr (base::parts == 2) of_y = V(0.5) * of_y;
      const V u = kept(u_value), skip = this->skip_.load(channel);
      const V of_step = simd::fma(u, sum.first, sum.second);
      of_delta[e] = of_step * kept(slope);
      of_u[e] = simd::fma(skip, of_y, this->fed_.load(slot).first * sum.first);
      if (p.z_grad.present())
        of_z[e] = kept(grad) * simd::fma(skip, u, y.load(slot)) * kept(z_slope);
      const bool there = this->whole() || this->at(first + e).there;
      sums.store(slot, there ? value_pair<V>{of_delta[e], of_y * u} : value_pair<V>{0, 0});
      if constexpr (!base::plain) {
        if (p.intervals_grad.present()) {
          const V by = soft.load((first + e) * selective_threads + this->thread_);
          y.store(slot, there ? of_step * by : V(0));
        }
      }
    });
    this->store(p.delta_grad, of_delta, first, p.update);
    this->store(p.u_grad, of_u, first, p.update);
    this->store(p.z_grad, of_z, first, p.update);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
