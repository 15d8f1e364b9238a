// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of selective scans: a block walks time from the end with the gradients of the states
// of its channels in registers. States are walked anew, from checkpoints to chunks, in a chunk to
// every fourth step, and from there with the gates in registers.
//
//     l[t] = g[t] C[t] + a[t+1] l[t+1]          gradient of x[t]; g: of the sum of C x
//     u:      step sum_n l B + D g              A:  sum_t step l a x[t-1]
//     step:   u sum_n l B + sum_n A l a x[t-1]  B:  sum_d l step u       C:  sum_d g x
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_forward.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Where the adjoint leaves what is summed further, and keeps what it needs again.
template <class V>
struct selective_vjp_room {
  V *b = nullptr, *c = nullptr;  // (row of groups, tile, time, state): sums over its channels
  double *a = nullptr, *b_own = nullptr, *c_own = nullptr;  // (batch, channel, state)
  double *skip = nullptr, *bias = nullptr;                  // (batch, channel)
  // Before every chunk of a stretch but the last, (block, chunk, state, thread).
  V* states = nullptr;
};

template <class Shape, selective_kind Kind>
struct pull_selective {
  using V = typename Shape::value;
  static constexpr int threads = selective_threads;
  static constexpr int blocks_together = Shape::own > 4 || sizeof(V) > 4 ? 2 : 3;
  static constexpr bool synchronises = true;
  /// Chunks of a stretch.
  static constexpr int chunks = selective_stretch / Shape::steps;
  /// Numbers per block of selective_vjp_room::states.
  static constexpr std::int64_t kept_states = (chunks - 1) * Shape::own * selective_threads;

  selective_device_vjp<V> p;
  selective_tiles tiles;
  selective_vjp_room<V> room;

  static std::int64_t shared_bytes(const selective_device_problem<V>& p) {
    return Shape::vjp_bytes + (p.cuts.data ? Shape::mark_bytes : 0);
  }

  SCANREC_DEVICE void operator()() const {
    const std::int64_t block = device::block_index();
    pull own(p, room, tiles, block);
    own.run();
  }

 private:
  struct pull : selective_tile<Shape, Kind> {
    using tile = selective_tile<Shape, Kind>;
    using raw = typename tile::raw;
    static constexpr int S = tile::S, L = tile::L, E = tile::E, row = Shape::row;
    static constexpr bool plain = tile::plain;
    static constexpr int own_sums = plain ? 1 : S;
    static constexpr int together = std::min(E, 4);  // elements
    enum kept { u_value, slope, z_slope, grad };     // of an element

    const selective_device_vjp<V>& p;
    const selective_vjp_room<V>& room;
    std::int64_t tile_number;  // of all
    device::shared_array<V> y, y_grad, keep, before, products;
    device::shared_array<value_pair<V>> sums;  // over states: l B, and A l a x
    V* chunk_states;
    V x[S], gate[S], carry[S];
    // Running sums of a stretch; those before are in the workspace, but for two.
    V of_rate[S], of_b[own_sums], of_c[own_sums], of_skip, of_bias;
    double all_skip = 0, all_bias = 0;

    SCANREC_DEVICE pull(const selective_device_vjp<V>& problem,
                        const selective_vjp_room<V>& given_room, const selective_tiles& tiles,
                        std::int64_t block)
        : tile(problem, tiles.of(block), Shape::vjp_marks),
          p(problem),
          room(given_room),
          tile_number(block),
          y(Shape::y),
          y_grad(Shape::y_grad),
          keep(Shape::keep),
          before(Shape::before),
          products(Shape::products),
          sums(Shape::sums),
          chunk_states(given_room.states + block * kept_states + this->thread_) {
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) gate[i] = gate_rate(this->rate_[i]);
    }

    SCANREC_DEVICE SCANREC_INLINE V& chunk_state(int chunk, int i) const {
      return chunk_states[(chunk * S + i) * selective_threads];
    }
    SCANREC_DEVICE SCANREC_INLINE static int kept_at(int which, int e) {
      return (which * E + e) * selective_threads;
    }

    /// What walking a chunk forward takes.
    SCANREC_DEVICE SCANREC_INLINE void place_steps() const {
      this->take_mixing(p.b.steps, this->b_);
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
      this->take_mixing(p.b.steps, this->b_);
      this->take_mixing(p.c.steps, this->c_);
      SCANREC_KEEP_LOOP
      for (int first = 0; first < E; first += together) place_all(first);
    }
    SCANREC_DEVICE SCANREC_INLINE void place_all(int first) const {
      raw u[together], delta[together], z[together], g[together];
      this->load(p.u, u, first), this->load(p.delta, delta, first);
      this->load(p.z, z, first), this->load(p.out_grad, g, first);
      V step[together], of_u[together], of_slope[together], of_out[together], of_y[together];
      to_numbers(delta, p.delta.as, step), to_numbers(u, p.u.as, of_u);
      this->to_steps(step, of_slope, first);
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
        y_grad.store(slot, of_y[e]);
        this->mark_cut(first + e);
      });
    }

    // Sums over the channels of a warp go to `products`, (B or C, warp, step, state).
    template <int Count>
    SCANREC_DEVICE SCANREC_INLINE void add_channels(V (&v)[Count], int which, int t) const {
      constexpr int in_warp = device::warp_size / L;  // channels
      static_assert(Count % in_warp == 0);
      const int lane = this->thread_ % device::warp_size;
      int first = 0;
      halve<Count, L>(v, lane, first);
      SCANREC_UNROLL
      for (int m = 0; m < Count / in_warp; ++m) {
        const int j = (first + m) / S, i = (first + m) % S;
        const int step = (t + j) % Shape::sum_steps;
        const int warp = which * Shape::warps + this->thread_ / device::warp_size;
        products.store((warp * Shape::sum_steps + step) * Shape::states + this->state(i), v[m]);
      }
    }
    template <int Count, int Apart>
    SCANREC_DEVICE SCANREC_INLINE static void halve(V* v, int lane, int& first) {
      if constexpr (Apart < device::warp_size) {
        constexpr int half = Count / 2;
        const bool upper = (lane & Apart) != 0;
        several<V, half> sent;
        SCANREC_UNROLL
        for (int m = 0; m < half; ++m) {
          sent.of[m] = upper ? v[m] : v[m + half];
          v[m] = upper ? v[m + half] : v[m];
        }
        const auto there = device::exchange(sent, lane ^ Apart);
        SCANREC_UNROLL
        for (int m = 0; m < half; ++m) v[m] = v[m] + there.of[m];
        first += upper ? half : 0;
        halve<half, 2 * Apart>(v, lane, first);
      }
    }
    // Adds the sums of the warps, and leaves those of the block for the next kernel.
    SCANREC_DEVICE SCANREC_INLINE void put_products(std::int64_t begin) const {
      device::synchronise_block();
      constexpr int numbers = Shape::sum_steps * Shape::states;
      for (int which = 0; which < 2; ++which) {
        V* const to = which == 0 ? room.b : room.c;
        if (to == nullptr) continue;
        for (int k = this->thread_; k < numbers; k += selective_threads) {
          const int n = k % Shape::states;
          const std::int64_t t = begin + k / Shape::states;
          V sum = 0;
          SCANREC_UNROLL
          for (int warp = 0; warp < Shape::warps; ++warp)
            sum = sum + products.load((which * Shape::warps + warp) * numbers + k);
          if (t >= 0 && n < p.states) to[(tile_number * p.time + t) * p.states + n] = sum;
        }
      }
      device::synchronise_block();
    }

    // Four steps back, from the states before them.
    SCANREC_DEVICE SCANREC_INLINE void pull_four_steps(int t) {
      const int lane = this->thread_ % device::warp_size;
      const bool own = this->own();
      V a[4][S], passed[4][S], g[4], product[4 * S];
      four_steps<V> factor[S];
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) factor[i] = this->c_of(t, i);
      SCANREC_UNROLL
      for (int j = 0; j < 4; ++j) g[j] = y_grad.load((t + j) * row + this->channel_);
      several<V, 4> out{};
      walk_four_steps(*this, gate, t, x,
                      [&](int j, int i, V of_gate, V ax, V state) SCANREC_LAMBDA {
                        a[j][i] = of_gate, passed[j][i] = ax;
                        const V c = factor[i].of[j];
                        out.of[j] = simd::fma(c, state, out.of[j]);
                        product[j * S + i] = own ? g[j] * state : V(0);
                        if constexpr (!plain) of_c[i] = simd::fma(g[j], state, of_c[i]);
                      });
      if (p.z_grad.present()) {
        const V total = sum_over_lanes<L>(out, lane);
        if (this->lane_ < 4) y.store((t + this->lane_) * row + this->channel_, total);
      }
      if (room.c != nullptr) add_channels<4 * S>(product, 1, t);

      four_steps<V> into[S];
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i) into[i] = this->b_of(t, i);
      several<value_pair<V>, 4> sum;
      SCANREC_UNROLL
      for (int j = 3; j >= 0; --j) {
        const auto fed = this->fed_.load((t + j) * row + this->channel_);
        const bool cut = this->cut(t + j);
        V fed_sum = 0, gate_sum = 0;
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) {
          const V l = simd::fma(g[j], factor[i].of[j], carry[i]), met = l * passed[j][i];
          fed_sum = simd::fma(l, into[i].of[j], fed_sum);
          gate_sum = simd::fma(this->rate_[i], met, gate_sum);
          of_rate[i] = simd::fma(fed.first, met, of_rate[i]);
          product[j * S + i] = own ? l * fed.second : V(0);
          if constexpr (!plain) of_b[i] = simd::fma(l, fed.second, of_b[i]);
          carry[i] = cut ? V(0) : a[j][i] * l;
        }
        sum.of[j] = {fed_sum, gate_sum};
      }
      const auto total = sum_over_lanes<L>(sum, lane);
      if (this->lane_ < 4) sums.store((t + this->lane_) * row + this->channel_, total);
      if (room.b != nullptr) add_channels<4 * S>(product, 0, t);
    }

    SCANREC_DEVICE SCANREC_INLINE void pull_chunk(std::int64_t begin) {
      constexpr int last = Shape::steps - 4;
      const auto saved = [&](int t, int i) SCANREC_LAMBDA {
        return (t / 4 * S + i) * selective_threads + this->thread_;
      };
      SCANREC_KEEP_LOOP
      for (int t = 0; t < last; t += 4) {
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) before.store(saved(t, i), x[i]);
        walk_four_steps(*this, gate, t, x, [](int, int, V, V, V) SCANREC_LAMBDA {});
      }
      const bool sums_over_channels = room.b != nullptr || room.c != nullptr;
      SCANREC_KEEP_LOOP
      for (int t = last; t >= 0; t -= 4) {
        if (t < last) {
          SCANREC_UNROLL
          for (int i = 0; i < S; ++i) x[i] = before.load(saved(t, i));
        }
        pull_four_steps(t);
        if (sums_over_channels && t % Shape::sum_steps == 0) put_products(begin + t);
      }
    }

    // What is left of the gradients of u, delta and z; leaves what D and the bias get of them.
    SCANREC_DEVICE SCANREC_INLINE void put() const {
      SCANREC_KEEP_LOOP
      for (int first = 0; first < E; first += together) put(first);
    }
    SCANREC_DEVICE SCANREC_INLINE void put(int first) const {
      V of_u[together], of_delta[together], of_z[together];
      this->template for_slots<together>(first, [&](int e, int slot, int channel) SCANREC_LAMBDA {
        const auto kept = [&](int which) SCANREC_LAMBDA {
          return keep.load(kept_at(which, first + e) + this->thread_);
        };
        const auto sum = sums.load(slot);
        const V of_y = y_grad.load(slot), u = kept(u_value), skip = this->skip_.load(channel);
        of_delta[e] = simd::fma(u, sum.first, sum.second) * kept(slope);
        of_u[e] = simd::fma(skip, of_y, this->fed_.load(slot).first * sum.first);
        if (p.z_grad.present())
          of_z[e] = kept(grad) * simd::fma(skip, u, y.load(slot)) * kept(z_slope);
        const bool there = this->whole() || this->at(first + e).there;
        sums.store(slot, there ? value_pair<V>{of_delta[e], of_y * u} : value_pair<V>{0, 0});
      });
      this->store(p.delta_grad, of_delta, first, p.update);
      this->store(p.u_grad, of_u, first, p.update);
      this->store(p.z_grad, of_z, first, p.update);
    }
    // The lanes of a channel share its steps.
    SCANREC_DEVICE SCANREC_INLINE void add_elements() {
      SCANREC_KEEP_LOOP
      for (int t = this->lane_; t < Shape::steps; t += L) {
        const auto x = sums.load(t * row + this->channel_);
        of_bias = of_bias + x.first, of_skip = of_skip + x.second;
      }
    }

    template <int Count>
    SCANREC_DEVICE SCANREC_INLINE static void clear(V (&x)[Count]) {
      SCANREC_UNROLL
      for (V& of : x) of = 0;
    }
    // Adds to sums of this thread in the workspace, in the wide type.
    SCANREC_DEVICE SCANREC_INLINE void add_states(double* sums_of, const V (&x)[S],
                                                  bool first) const {
      if (sums_of == nullptr) return;
      double* const to =
          sums_of + (this->at_.batch * p.channels + this->own_channel()) * p.states + this->lane_;
      SCANREC_UNROLL
      for (int i = 0; i < S; ++i)
        if (this->own_state(i)) to[i * L] = (first ? 0.0 : to[i * L]) + static_cast<double>(x[i]);
    }
    // Takes the gradients of the states behind a stretch to those of the states before it.
    SCANREC_DEVICE SCANREC_INLINE void pull_stretch(std::int64_t number) {
      const std::int64_t begin = p.time - (number + 1) * selective_stretch;
      this->load_states(begin > 0 ? p.checkpoints : p.initial, x, begin > 0 ? number : 0);
      const auto at = [&](int chunk) SCANREC_LAMBDA { return begin + chunk * Shape::steps; };
      int first = 0;
      while (at(first + 1) <= 0) ++first;
      for (int chunk = first; chunk < chunks - 1; ++chunk) {
        SCANREC_UNROLL
        for (int i = 0; i < S; ++i) chunk_state(chunk, i) = x[i];
        this->stand_at(at(chunk));
        place_steps();
        device::synchronise_block();
        SCANREC_KEEP_LOOP
        for (int t = 0; t < Shape::steps; t += 4)
          walk_four_steps(*this, gate, t, x, [](int, int, V, V, V) SCANREC_LAMBDA {});
        device::synchronise_block();
      }
      clear(of_rate), clear(of_b), clear(of_c);
      of_skip = of_bias = 0;
      const bool elements = room.skip != nullptr || room.bias != nullptr;
      for (int chunk = chunks - 1; chunk >= first; --chunk) {
        if (chunk < chunks - 1) {
          SCANREC_UNROLL
          for (int i = 0; i < S; ++i) x[i] = chunk_state(chunk, i);
        }
        this->stand_at(at(chunk));
        place_all();
        device::synchronise_block();
        pull_chunk(at(chunk));
        device::synchronise_block();
        put();
        if (!elements) continue;
        device::synchronise_block();
        add_elements();
      }
      add_states(room.a, of_rate, number == 0);
      if constexpr (!plain)
        add_states(room.b_own, of_b, number == 0), add_states(room.c_own, of_c, number == 0);
      all_skip += static_cast<double>(of_skip), all_bias += static_cast<double>(of_bias);
    }

    SCANREC_DEVICE SCANREC_INLINE void run() {
      this->load_states(p.final_grad, carry);
      device::synchronise_block();  // D and bias are there
      const std::int64_t stretches = (p.time + selective_stretch - 1) / selective_stretch;
      for (std::int64_t number = 0; number < stretches; ++number) pull_stretch(number);
      this->store_states(p.initial_grad, carry, 0, p.update);

      if (stretches == 0) {
        clear(of_rate), add_states(room.a, of_rate, true);
        if constexpr (!plain)
          add_states(room.b_own, of_rate, true), add_states(room.c_own, of_rate, true);
      }
      if (room.skip == nullptr && room.bias == nullptr) return;
      value_pair<double> of_channel{all_bias, all_skip};
      SCANREC_UNROLL
      for (int apart = 1; apart < L; apart *= 2)
        of_channel =
            of_channel + device::exchange(of_channel, (this->thread_ ^ apart) % device::warp_size);
      if (this->lane_ != 0 || !this->own()) return;
      const std::int64_t place = this->at_.batch * p.channels + this->own_channel();
      if (room.bias != nullptr) room.bias[place] = of_channel.first;
      if (room.skip != nullptr) room.skip[place] = of_channel.second;
    }
  };
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
