// SPDX-License-Identifier: BSD-3-Clause
// The adjoint kernel of selective scans. A block processes time from the end, with the gradients of
// the states of its channels in registers. States are recomputed in three stages:
// - From a checkpoint on, the kernel keeps the state before every chunk (selective_plan.cuh).
// - From the state before a chunk on, it keeps the state before every fourth step.
// - From each of these states, it repeats four steps with their gates and states in registers.
//
// g is the gradient of y = sum_n C x, and l that of x. n counts states, d channels, and `step` is
// the step size:
//
//     l[t] = g[t] C[t] + a[t+1] l[t+1]
//
// The gradients of u, the step size, A, B and C are, at step t or summed over t:
//
//     u:      step sum_n l B + D g              A:  sum_t step l a x[t-1]
//     step:   u sum_n l B + sum_n A l a x[t-1]  B:  sum_d l step u       C:  sum_d g x
//
// For complex states, a, A, B, C and x are conjugated, g is doubled except in D g, and the
// gradients of u and step are real parts.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_forward.cuh>
#include <scanrec/detail/cuda/selective_grad_elements.cuh>
#include <scanrec/detail/cuda/selective_products.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

template <class Shape, selective_kind Kind>
struct selective_vjp_kernel {
  using V = typename Shape::value;
  static constexpr int threads = selective_threads;
  using number = typename Shape::number;
  static constexpr int blocks_together = Shape::own * sizeof(number) > 16 || sizeof(V) > 4
                                             ? 2
                                             : (Shape::own == 2 ? 4 : 3);
  static constexpr bool synchronises = true;
  /// Chunks per checkpoint interval.
  static constexpr int chunks = memory::checkpoint_interval / Shape::steps;
  /// Elements of selective_vjp_room::states per block.
  static constexpr std::int64_t kept_states = (chunks - 1) * Shape::own * selective_threads;

  selective_device_vjp<number> p;
  selective_tiles tiles;
  selective_vjp_room<number> room;

  static std::int64_t shared_bytes(const selective_device_vjp<number>& p) {
    if (p.intervals_grad.present()) return Shape::vjp_soft + Shape::soft_bytes;
    return Shape::vjp_bytes + (p.resets.present() ? Shape::reset_mask_bytes : 0);
  }

  SCANREC_DEVICE void operator()() const {
    const std::int64_t block = device::block_index();
    block_run own(p, room, tiles, block);
    own.run();
  }

 private:
  struct block_run : selective_grad_elements<Shape, Kind> {
    using base = selective_grad_elements<Shape, Kind>;
    using base::p, base::room, base::y, base::y_grad, base::sums, base::of_d, base::of_bias;
    using X = typename base::X;
    using stored = stored_state_t<number>;
    static constexpr int S = base::S, L = base::L, row = Shape::row;
    static constexpr bool plain = base::plain;
    static constexpr int own_sums = plain ? 1 : S;

    device::shared_array<stored> before;
    stored* chunk_states;
    X x[S], gate[S], carry[S];
    // Running sums of a checkpoint interval. The sums of the intervals already processed are in the
    // workspace, or in all_d and all_bias.
    X of_rate[S], of_b[own_sums], of_c[own_sums];
    double all_d = 0, all_bias = 0;

    SCANREC_DEVICE block_run(const selective_device_vjp<number>& problem,
                             const selective_vjp_room<number>& given_room,
                             const selective_tiles& tiles, std::int64_t block)
        : base(problem, given_room, tiles, block),
          before(Shape::before),
          chunk_states(given_room.states + block * kept_states + this->thread_) {
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) gate[i] = gate_rate(this->rate_[i]);
    }

    SCANREC_DEVICE SCANREC_INLINE stored& chunk_state(int chunk, int i) const {
      return chunk_states[(chunk * S + i) * selective_threads];
    }
    // Computes the vjp of four steps from the states before them.
    SCANREC_DEVICE SCANREC_INLINE void vjp_four_steps(int t) {
      using scanrec::detail::add_real_dot, scanrec::detail::add_real_product;
      using scanrec::detail::add_scaled, scanrec::detail::add_scaled_conj;
      using scanrec::detail::scaled, scanrec::detail::scaled_conj, scanrec::detail::times_conj;
      const int lane = this->thread_ % device::warp_size;
      const int own = this->lane_ * row + this->channel_;  // lane j has the sums of step t + j
      const X none = base::zero();
      X a[4][S], before_step[4][S], product[4][S];
      V g[4];
      mixed_steps<X> factor[S];
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) factor[i] = this->c_of(t, i);
      SCANREC_UNROLL
      for (int j = 0; j < 4; ++j) g[j] = y_grad.load((t + j) * row + this->channel_);
      several<V, 4> out{};
      run_four_steps(*this, gate, t, x,
                     [&](int j, int i, X of_gate, X last, X state) SCANREC_LAMBDA {
                       a[j][i] = of_gate, before_step[j][i] = last;
                       out.of[j] = add_real_product(factor[i].at(j), state, out.of[j]);
                       product[j][i] = scaled_conj(g[j], state);
                       if constexpr (!plain) of_c[i] = add_scaled_conj(g[j], state, of_c[i]);
                     });
      if (p.z_grad.present()) {
        const V total = sum_over_lanes<L>(out, lane);
        if (L == 4 || this->lane_ < 4) y.store(own + t * row, sum_of_pairs<X>(total));
      }
      if (room.c != nullptr) this->add_channels(product, 1, t);

      mixed_steps<X> into[S];
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) into[i] = this->b_of(t, i);
      several<value_pair<V>, 4> sum;
      SCANREC_UNROLL
      for (int j = 3; j >= 0; --j) {
        const auto delta_u = this->delta_u_.load((t + j) * row + this->channel_);
        const bool reset = this->reset(t + j, this->channel_);
        V delta_u_sum = 0, gate_sum = 0;
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) {
          const X l = add_scaled_conj(g[j], factor[i].at(j), carry[i]);
          const X through = times_conj(l, a[j][i]),
                  gate_grad = times_conj(through, before_step[j][i]);
          delta_u_sum = add_real_dot(l, into[i].at(j), delta_u_sum);
          gate_sum = add_real_dot(this->rate_[i], gate_grad, gate_sum);
          of_rate[i] = add_scaled(delta_u.first, gate_grad, of_rate[i]);
          product[j][i] = scaled(delta_u.second, l);
          if constexpr (!plain) of_b[i] = add_scaled(delta_u.second, l, of_b[i]);
          carry[i] = reset ? none : through;
        }
        sum.of[j] = {delta_u_sum, gate_sum};
      }
      const auto total = sum_over_lanes<L>(sum, lane);
      if (L == 4 || this->lane_ < 4) sums.store(own + t * row, total);
      if (room.b != nullptr) this->add_channels(product, 0, t);
    }

    SCANREC_DEVICE SCANREC_INLINE void vjp_chunk(std::int64_t begin) {
      constexpr int last = Shape::steps - 4;
      const auto saved = [&](int t, int i) SCANREC_LAMBDA {
        return (t / 4 * S + i) * selective_threads + this->thread_;
      };
      SCANREC_KEEP_LOOP
      for (int t = 0; t < last; t += 4) {
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) before.store(saved(t, i), stored_state(x[i]));
        run_four_steps(*this, gate, t, x, [](int, int, X, X, X) SCANREC_LAMBDA {});
      }
      const bool sums_over_channels = room.b != nullptr || room.c != nullptr;
      SCANREC_KEEP_LOOP
      for (int first = Shape::steps - Shape::sum_steps; first >= 0; first -= Shape::sum_steps) {
        SCANREC_KEEP_LOOP
        for (int t = first + Shape::sum_steps - 4; t >= first; t -= 4) {
          if (t < last) {
            SCANREC_UNROLL
            for (int i = 0; i < S; ++i) x[i] = loaded_state(before.load(saved(t, i)));
          }
          vjp_four_steps(t);
        }
        if (sums_over_channels) this->put_products(begin + first);
      }
    }

    template <int Count>
    SCANREC_DEVICE SCANREC_INLINE static void clear(X (&x)[Count]) {
      SCANREC_UNROLL
      for (X& of : x) of = base::zero();
    }
    // Adds to the sums of this thread in the workspace, in double. Overwrites these sums instead if
    // `first`.
    SCANREC_DEVICE SCANREC_INLINE void add_states(double* sums_of, const X (&x)[S],
                                                  bool first) const {
      if (sums_of == nullptr) return;
      constexpr int parts = base::parts;
      const std::int64_t row = this->at_.batch * p.channels + this->own_channel();
      double* const to = sums_of + row * p.states * parts;
      const auto add = [&](double& sum, V more) SCANREC_LAMBDA {
        sum = (first ? 0.0 : sum) + static_cast<double>(more);
      };
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) {
        if (!this->own_state(i)) continue;
        double* const own = to + this->state(i) * parts;
        add(own[0], scanrec::detail::part_of<0>(x[i]));
        if constexpr (parts == 2) add(own[1], x[i].im);
      }
    }
    // Turns the gradients of the states after a checkpoint interval into those of the states before
    // it. The intervals are numbered from the end.
    SCANREC_DEVICE SCANREC_INLINE void vjp_interval(std::int64_t number) {
      const std::int64_t begin = p.time - (number + 1) * memory::checkpoint_interval;
      this->load_states(begin > 0 ? p.checkpoints : p.initial, x, begin > 0 ? number : 0);
      const auto at = [&](int chunk) SCANREC_LAMBDA { return begin + chunk * Shape::steps; };
      int first = 0;
      while (at(first + 1) <= 0) ++first;
      for (int chunk = first; chunk < chunks - 1; ++chunk) {
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) chunk_state(chunk, i) = stored_state(x[i]);
        this->stand_at(at(chunk));
        this->stage_steps();
        device::synchronise_block();
        SCANREC_UNROLL_BY_2
        for (int t = 0; t < Shape::steps; t += 4)
          run_four_steps(*this, gate, t, x, [](int, int, X, X, X) SCANREC_LAMBDA {});
        device::synchronise_block();
      }
      clear(of_rate), clear(of_b), clear(of_c);
      of_d = of_bias = 0;
      const bool channel_elements = room.d != nullptr || room.bias != nullptr;
      const bool interval_elements = !plain && room.intervals != nullptr;
      const bool elements = channel_elements || interval_elements;
      for (int chunk = chunks - 1; chunk >= first; --chunk) {
        if (chunk < chunks - 1) {
          SCANREC_UNROLL
          for (int i = 0; i < S; ++i) x[i] = loaded_state(chunk_state(chunk, i));
        }
        this->stand_at(at(chunk));
        this->stage_all();
        device::synchronise_block();
        vjp_chunk(at(chunk));
        device::synchronise_block();
        this->put();
        if (!elements) continue;
        device::synchronise_block();
        if (channel_elements) this->add_elements();
        if (interval_elements) this->put_intervals(at(chunk));
      }
      add_states(room.a, of_rate, number == 0);
      if constexpr (!plain)
        add_states(room.b_constant, of_b, number == 0),
            add_states(room.c_constant, of_c, number == 0);
      all_d += static_cast<double>(of_d), all_bias += static_cast<double>(of_bias);
    }

    SCANREC_DEVICE SCANREC_INLINE void run() {
      this->load_states(p.final_grad, carry);
      device::synchronise_block();  // publishes D, bias and the offsets of B and C
      const std::int64_t checkpoint_intervals =
          (p.time + memory::checkpoint_interval - 1) / memory::checkpoint_interval;
      for (std::int64_t number = 0; number < checkpoint_intervals; ++number) vjp_interval(number);
      this->store_states(p.initial_grad, carry, 0, p.update);

      if (checkpoint_intervals == 0) {
        clear(of_rate), add_states(room.a, of_rate, true);
        if constexpr (!plain)
          add_states(room.b_constant, of_rate, true), add_states(room.c_constant, of_rate, true);
      }
      if (room.d == nullptr && room.bias == nullptr) return;
      value_pair<double> of_channel{all_bias, all_d};
      SCANREC_UNROLL
      for (int apart = 1; apart < L; apart *= 2)
        of_channel = of_channel + device::exchange_across(of_channel, apart);
      if (this->lane_ != 0 || !this->own()) return;
      const std::int64_t position = this->at_.batch * p.channels + this->own_channel();
      if (room.bias != nullptr) room.bias[position] = of_channel.first;
      if (room.d != nullptr) room.d[position] = of_channel.second;
    }
  };
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
