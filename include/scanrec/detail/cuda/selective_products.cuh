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

/// Where the adjoint leaves what is summed further, and keeps what it needs again.
template <class V>
struct selective_vjp_room {
  V *b = nullptr, *c = nullptr;  // (row of groups, tile, time, state): sums over its channels
  V* intervals = nullptr;        // (row of groups, tile, time): the same
  double *a = nullptr, *b_own = nullptr, *c_own = nullptr;  // (batch, channel, state)
  double *skip = nullptr, *bias = nullptr;                  // (batch, channel)
  // Before every chunk of a stretch but the last, (block, chunk, state, thread).
  V* states = nullptr;
};

/// A block of the adjoint with its sums over channels.
template <class Shape, selective_kind Kind>
class selective_products : public selective_tile<Shape, Kind> {
 public:
  using tile = selective_tile<Shape, Kind>;
  using V = typename tile::V;
  static constexpr int S = tile::S, L = tile::L;

  SCANREC_DEVICE selective_products(const selective_device_vjp<V>& problem,
                                    const selective_vjp_room<V>& given_room,
                                    const selective_tiles& tiles, std::int64_t block)
      : tile(problem, tiles.of(block), Shape::vjp_marks),
        p(problem),
        room(given_room),
        tile_number(block),
        products(Shape::products) {}

  /// Sums four steps from t on, (step, state), over the channels of a warp.
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
        V sum = 0;
        SCANREC_UNROLL
        for (int warp = 0; warp < Shape::warps; ++warp)
          sum = sum + products.load((which * Shape::warps + warp) * numbers + k);
        if (t >= 0 && n < p.states) to[(tile_number * p.time + t) * p.states + n] = sum;
      }
    }
    device::synchronise_block();
  }

  const selective_device_vjp<V>& p;
  const selective_vjp_room<V>& room;
  std::int64_t tile_number;          // of all
  device::shared_array<V> products;  // on their way to sums, (B or C, warp, step, state)

 private:
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
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
