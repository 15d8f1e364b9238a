// SPDX-License-Identifier: BSD-3-Clause
// What the adjoint of a selective scan sums over channels at every step: the gradients of a B and
// C, over the channels of a warp by halving, over the warps of a block in shared memory, over
// blocks by the next kernel.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/selective_tile.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Where the adjoint leaves what is summed further, and keeps what it needs again; states are
/// numbers V.
template <class V>
struct selective_vjp_room {
  using real = scanrec::detail::real_part_of<V>;
  real *b = nullptr, *c = nullptr;  // (part, row of groups, tile, time, state): over its channels
  std::int64_t of_part = 0;         // numbers of a part of these
  real* intervals = nullptr;        // (row of groups, tile, time): the same
  double *a = nullptr, *b_own = nullptr, *c_own = nullptr;  // (batch, channel, state, part)
  double *skip = nullptr, *bias = nullptr;                  // (batch, channel)
  // Before every chunk of a stretch but the last, (block, chunk, state, thread).
  stored_state_t<V>* states = nullptr;
};

/// A block of the adjoint with its sums over channels.
template <class Shape, selective_kind Kind>
class selective_products : public selective_tile<Shape, Kind> {
 public:
  using tile = selective_tile<Shape, Kind>;
  using V = typename tile::V;
  using X = typename tile::X;
  using number = typename tile::number;
  static constexpr int S = tile::S, L = tile::L;

  SCANREC_DEVICE selective_products(const selective_device_vjp<number>& problem,
                                    const selective_vjp_room<number>& given_room,
                                    const selective_tiles& tiles, std::int64_t block)
      : tile(problem, tiles.of(block), Shape::vjp_marks),
        p(problem),
        room(given_room),
        tile_number(block),
        products(Shape::products) {}

  /// Sums four steps from t on, (step, state), over the channels of a warp.
  template <int Count>
  SCANREC_DEVICE SCANREC_INLINE void add_channels(X (&v)[Count], int which, int t) const {
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
      products.store((warp * Shape::sum_steps + step) * Shape::states + this->state(i),
                     stored_state(v[m]));
    }
  }
  /// Adds the sums of the warps, and leaves those of the block for the next kernel.
  SCANREC_DEVICE SCANREC_INLINE void put_products(std::int64_t begin) const {
    device::synchronise_block();
    constexpr int numbers = Shape::sum_steps * Shape::states;
    for (int which = 0; which < 2; ++which) {
      V* const to = which == 0 ? room.b : room.c;
      if (to == nullptr) continue;
      for (int k = this->thread_; k < numbers; k += selective_threads) {
        const int n = k % Shape::states;
        const std::int64_t t = begin + k / Shape::states;
        X sum = tile::zero();
        SCANREC_UNROLL
        for (int warp = 0; warp < Shape::warps; ++warp)
          sum = sum + loaded_state(products.load((which * Shape::warps + warp) * numbers + k));
        if (t < 0 || n >= p.states) continue;
        const std::int64_t place = (tile_number * p.time + t) * p.states + n;
        to[place] = scanrec::detail::part_of<0>(sum);
        if constexpr (tile::parts == 2) to[room.of_part + place] = sum.im;
      }
    }
    device::synchronise_block();
  }

  const selective_device_vjp<number>& p;
  const selective_vjp_room<number>& room;
  std::int64_t tile_number;  // of all
  // On their way to sums, (B or C, warp, step, state).
  device::shared_array<stored_state_t<number>> products;

 private:
  template <int Count, int Apart>
  SCANREC_DEVICE SCANREC_INLINE static void halve(X* v, int lane, int& first) {
    if constexpr (Apart < device::warp_size) {
      constexpr int half = Count / 2;
      const bool upper = (lane & Apart) != 0;
      several<X, half> sent;
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
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
