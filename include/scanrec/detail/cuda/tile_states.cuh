// SPDX-License-Identifier: BSD-3-Clause
// States that a tile recomputes from checkpoints. One thread recomputes a checkpoint interval of a
// channel into shared memory, where all threads of the channel read the states. The states have the
// same bits as in a serial loop from the checkpoint on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_loop.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>
#include <scanrec/detail/recurrence/recompute.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The recomputed states of a tile. Empty for recurrences that recompute none.
template <class R>
struct tile_states {
  static std::int64_t bytes(const tile_partition&) { return 0; }
  SCANREC_DEVICE static void compute(const R&, const tile_partition&, const tile_position&,
                                     std::int64_t) {}
  SCANREC_DEVICE static void redirect(R&, const tile_partition&, const tile_position&, std::int64_t,
                                      std::int64_t) {}
  SCANREC_DEVICE static void order_writes() {}
};

/// Steps are in the order of the adjoint, which is opposite to that of the scan. A column holds the
/// states of one channel. Its row i holds the state of step i - 1 of the tile.
template <class R>
requires scanrec::detail::recomputes<R>
struct tile_states<R> {
  using state = std::remove_cvref_t<decltype(*std::declval<R>().state.data)>;
  static constexpr std::int64_t interval = memory::checkpoint_interval;

  /// Bytes of shared memory. A checkpoint interval may be longer than the tile.
  static std::int64_t bytes(const tile_partition& partition) {
    const std::int64_t steps =
        std::max(partition.tile_steps(), std::min(interval, partition.steps));
    return ((steps + 2) * partition.width * static_cast<std::int64_t>(sizeof(state)) + 15) / 16 *
           16;
  }
  /// Recomputes the states of the tile into shared memory, from `first_byte` on. All threads of the
  /// block call it. `row` is the recurrence with its pointers moved to the tile's group and batch
  /// row.
  SCANREC_DEVICE static void compute(const R& row, const tile_partition& partition,
                                     const tile_position& at, std::int64_t first_byte) {
    using loop = lane_loop<R, recurrence::assume::nothing>;
    const std::int64_t first = at.tile * partition.tile_steps(), T = partition.steps;
    const std::int64_t last =
        first + partition.tile_steps() < T ? first + partition.tile_steps() : T;
    const device::shared_array<state> slots(first_byte);
    std::int64_t number = first / interval + at.segment;
    for (; at.there && number * interval < last; number += partition.segments()) {
      const std::int64_t begin = number * interval < first ? first : number * interval;
      const std::int64_t end = (number + 1) * interval < T ? (number + 1) * interval : T;
      // The row after the last step of the sequence is not written. Its state would be the initial
      // state of the scan, which the adjoint reads from its own array.
      state* const rows = slots.column_address_to_write(
          at.column, static_cast<int>(begin - first) + 2,
          static_cast<int>(end - first) + (end < T ? 2 : 1), partition.width);
      scanrec::detail::recompute_scratch room;
      room.row = partition.width;
      const loop own{T, at.c};
      scanrec::detail::for_recomputed(
          row, {begin, end < last ? end : last, at.c, 1}, room,
          reinterpret_cast<std::byte*>(rows + (begin - first) * partition.width),
          [&](const auto& forward, const scanrec::detail::block& part, std::byte*) {
            own.recompute(forward, part);
          },
          [](const auto&, const scanrec::detail::block&) {});
    }
    // Later tiles may write gradients over the arrays that this tile has read.
    device::fence();
    device::synchronise_block();
  }
  /// Orders the receipt of messages from earlier tiles before all writes and messages of this tile.
  /// Earlier tiles may have read arrays that this tile, or a receiver of its messages, overwrites.
  SCANREC_DEVICE static void order_writes() { device::fence(); }
  /// Points `state` at the thread's column, for `count` steps.
  SCANREC_DEVICE static void redirect(R& here, const tile_partition& partition,
                                      const tile_position& at, std::int64_t count,
                                      std::int64_t first_byte) {
    const std::int64_t first = at.tile * partition.tile_steps();
    const device::shared_array<state> slots(first_byte);
    // Step t reads the state of step t + 1. The last step of the sequence reads the initial state.
    const std::int64_t begin = at.first - first + 2, end = begin + count,
                       there = partition.steps - first + 1;
    const state* const rows =
        slots.column_address(at.column, static_cast<int>(begin),
                             static_cast<int>(end < there ? end : there), partition.width);
    here.state.data = rows - (first - 1) * partition.width;
    here.state.strides = {0, partition.width, 0, 0};
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
