// SPDX-License-Identifier: BSD-3-Clause
// The gradients of B and C that vary with the step: sums over channels at every step, in the
// adjoint of a selective scan. Exchanges add up the channels of a warp. Each exchange halves the
// number of values per lane. The sums of the warps are then added in shared memory, and those of
// the blocks by the next kernel (selective_sums.cuh).
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The workspace of the adjoint: partial sums for the next kernels, and states that the adjoint
/// kernel reads again. States have type V. In the comments below, a part is the real or the
/// imaginary part, a row is one group of one sequence, and a tile is a block of its channels.
template <class V>
struct selective_vjp_room {
  using real = scanrec::detail::real_part_of<V>;
  real *b = nullptr, *c = nullptr;  // (part, row, tile, time, state)
  std::int64_t of_part = 0;         // numbers per part of b and c
  real* intervals = nullptr;        // (row, tile, time)
  double *a = nullptr, *b_constant = nullptr,
         *c_constant = nullptr;          // (batch, channel, state, part)
  double *d = nullptr, *bias = nullptr;  // (batch, channel)
  // The states before every chunk but the last of a checkpoint interval, as (block, chunk, state,
  // thread).
  stored_state_t<V>* states = nullptr;
};

/// The number of orders in which the channels of a warp store their states (`Turned` in
/// selective_tile.cuh).
template <class Shape>
inline constexpr int turned_channels = std::min(Shape::own, device::warp_size / Shape::lanes);

/// The part of a thread block of the adjoint that computes sums over channels.
template <class Shape, selective_kind Kind>
class selective_products : public selective_tile<Shape, Kind, turned_channels<Shape>> {
 public:
  using tile = selective_tile<Shape, Kind, turned_channels<Shape>>;
  using V = typename tile::V;
  using X = typename tile::X;
  using number = typename tile::number;
  static constexpr int S = tile::S, L = tile::L, turned = tile::turned;
  static constexpr int in_warp = device::warp_size / L;  // channels

  SCANREC_DEVICE selective_products(const selective_device_vjp<number>& problem,
                                    const selective_vjp_room<number>& given_room,
                                    const selective_tiles& tiles, std::int64_t block)
      : tile(problem, tiles.of(block), Shape::vjp_offsets, Shape::vjp_reset_mask),
        p(problem),
        room(given_room),
        tile_number(block),
        products(Shape::products),
        own_product_(own_product()) {}

  /// Sums the values of four steps, from t on, over the channels of a warp, and stores the sums in
  /// `products`. The indices of `v` are (step, slot); a slot is the position of a state in the
  /// thread's registers (selective_tile.cuh). `which`: 0 for B, 1 for C.
  SCANREC_DEVICE SCANREC_INLINE void add_channels(X (&v)[4][S], int which, int t) const {
    // Channels that do not exist contribute 0, even if B or C is NaN.
    if (this->at_.count < Shape::channels) {
      SCANREC_UNROLL
      for (auto& step : v) {
        SCANREC_UNROLL
        for (X& of : step) of = this->own() ? of : tile::zero();
      }
    }
    halve_states<1>(v);
    constexpr int steps = 4 * turned / in_warp;  // per lane, after halving
    static_assert(steps > 0);
    halve_steps<4, L * turned>(v);
    const int position = own_product_ + t % Shape::sum_steps * Shape::states +
                         which * (Shape::warps * Shape::sum_steps * Shape::states);
    SCANREC_UNROLL
    for (int j = 0; j < steps; ++j) {
      SCANREC_UNROLL
      for (int i = 0; i < S; i += turned)
        products.store(position + j * Shape::states + i * L, stored_state(v[j][i]));
    }
  }
  /// Adds the sums of the warps, and writes the sums of the block for the next kernel.
  SCANREC_DEVICE SCANREC_INLINE void put_products(std::int64_t begin) const {
    device::synchronise_block();
    if (room.b != nullptr) put_products(begin, 0, room.b);
    if (room.c != nullptr) put_products(begin, 1, room.c);
    device::synchronise_block();
  }

  const selective_device_vjp<number>& p;
  const selective_vjp_room<number>& room;
  std::int64_t tile_number;  // index of the block
  // Sums of the warps: (B or C, warp, step, state).
  device::shared_array<stored_state_t<number>> products;

 private:
  SCANREC_DEVICE SCANREC_INLINE void put_products(std::int64_t begin, int which, V* to) const {
    constexpr int numbers = Shape::sum_steps * Shape::states;
    constexpr int apart = selective_threads / Shape::states;  // steps
    int step = this->thread_ / Shape::states, state = this->thread_ % Shape::states;
    V* position = to + (tile_number * p.time + begin + step) * p.states + state;
    const std::int64_t more = apart * std::int64_t{p.states};
    SCANREC_UNROLL
    for (int k = 0; k < numbers; k += selective_threads) {
      if (numbers % selective_threads != 0 && k + this->thread_ >= numbers) return;
      X sum = tile::zero();
      SCANREC_UNROLL
      for (int warp = 0; warp < Shape::warps; ++warp)
        sum = sum + loaded_state(
                        products.load((which * Shape::warps + warp) * numbers + k + this->thread_));
      if (begin + step >= 0 && state < p.states) {
        *position = scanrec::detail::part_of<0>(sum);
        if constexpr (tile::parts == 2) position[room.of_part] = sum.im;
      }
      if constexpr (apart > 0) {
        step += apart, position += more;
      } else if ((state += selective_threads) < Shape::states) {
        position += selective_threads;
      } else {
        state -= Shape::states, ++step;
        position += p.states + selective_threads - Shape::states;
      }
    }
  }
  // Adds pairs of channels whose indices differ in one bit. Each channel keeps the slots whose
  // index lacks that bit. Its partner has the states of these slots in the slots whose index has
  // the bit. Channels that are `turned` apart have the same order of states; halve_steps adds them.
  template <int Bit>
  SCANREC_DEVICE SCANREC_INLINE static void halve_states(X (&v)[4][S]) {
    if constexpr (Bit < turned) {
      SCANREC_UNROLL
      for (int j = 0; j < 4; ++j) {
        SCANREC_UNROLL
        for (int i = 0; i < S; i += 2 * Bit)
          v[j][i] = v[j][i] + device::exchange_across(v[j][i + Bit], L * Bit);
      }
      halve_states<2 * Bit>(v);
    }
  }
  // Adds pairs of channels that are `Apart` lanes apart. One channel keeps the first half of the
  // steps, the other the second half.
  template <int Count, int Apart>
  SCANREC_DEVICE SCANREC_INLINE void halve_steps(X (&v)[4][S]) const {
    if constexpr (Apart < device::warp_size) {
      const bool upper = (this->thread_ & Apart) != 0;
      constexpr int half = Count / 2, slots = S / turned;
      several<X, half * slots> sent;
      SCANREC_UNROLL
      for (int m = 0; m < half * slots; ++m) {
        const int j = m / slots, i = m % slots * turned;
        sent.of[m] = upper ? v[j][i] : v[j + half][i];
        v[j][i] = upper ? v[j + half][i] : v[j][i];
      }
      const auto there = device::exchange_across(sent, Apart);
      SCANREC_UNROLL
      for (int m = 0; m < half * slots; ++m) {
        X& kept = v[m / slots][m % slots * turned];
        kept = kept + there.of[m];
      }
      halve_steps<Count / 2, 2 * Apart>(v);
    }
  }
  // The index in `products`, for B, of the first sum that this thread has after halving: that of
  // its first step and of slot 0.
  SCANREC_DEVICE SCANREC_INLINE int own_product() const {
    int first = 0, half = 2;
    SCANREC_UNROLL
    for (int apart = L * turned; apart < device::warp_size; apart *= 2, half /= 2)
      first += (this->thread_ & apart) != 0 ? half : 0;
    const int warp = this->thread_ / device::warp_size;
    return (warp * Shape::sum_steps + first) * Shape::states + this->state(0);
  }

  int own_product_;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
