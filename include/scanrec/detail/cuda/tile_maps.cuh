// SPDX-License-Identifier: BSD-3-Clause
// Composition of the maps of a tile's segments, by shuffles within a warp, then in shared memory
// over the warps. The map of a segment takes the state before the segment to the state after it.
// The order of composition depends only on thread indices. A column is one channel of the tile.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Inclusive scan of the maps of a column within the warp. `present`: whether the thread has a map.
/// If it has one, all earlier segments of the column have one too.
template <class Algebra, class Map>
SCANREC_DEVICE Map compose_in_warp(int width, const Algebra& algebra, Map own, bool present) {
  const int lane = device::thread_index() % device::warp_size;
  for (int apart = width; apart < device::warp_size; apart *= 2) {
    const bool joins = lane >= apart;
    const Map earlier = device::exchange(own, joins ? lane - apart : lane);
    if (joins && present) own = algebra.compose(earlier, own);
  }
  return own;
}

/// Byte offsets in shared memory: the maps of the warps, and the results, one per thread.
struct map_indices {
  std::int64_t warps, composed;
};
/// Exclusive scan of the maps of all segments of a column. The leading thread, which has no segment
/// before it, gets the map of the tile instead. Results stay in shared memory to save registers.
template <class Algebra, class Map>
SCANREC_DEVICE void compose_segments(const tile_partition& partition, const tile_position& at,
                                     const Algebra& algebra, Map own,
                                     const map_indices& positions) {
  constexpr int warps = tile_partition::threads / device::warp_size;
  const int thread = device::thread_index(), lane_of_warp = thread % device::warp_size;
  const int warp = thread / device::warp_size, width = partition.width;
  own = compose_in_warp(width, algebra, own, at.count > 0);
  const bool follows = lane_of_warp >= width;
  Map before = device::exchange(own, follows ? lane_of_warp - width : lane_of_warp);

  const device::shared_array<Map> of_warps(positions.warps);
  const bool ends_warp = lane_of_warp + width >= device::warp_size ||
                         at.first + partition.segment_steps >= partition.steps;
  if (at.count > 0 && ends_warp) of_warps.store(warp * width + at.column, own);
  device::synchronise_block();
  if (at.count == 0) return;

  const device::shared_array<Map> composed(positions.composed);
  if (at.segment > 0) {
    if (warp > 0) {
      Map earlier = of_warps.load(at.column);
      for (int w = 1; w < warp; ++w)
        earlier = algebra.compose(earlier, of_warps.load(w * width + at.column));
      before = follows ? algebra.compose(earlier, before) : earlier;
    }
    composed.store(thread, before);
    return;
  }
  const std::int64_t warp_steps =
      static_cast<std::int64_t>(device::warp_size / width) * partition.segment_steps;
  Map tile = of_warps.load(at.column);
  for (int w = 1; w < warps && at.first + w * warp_steps < partition.steps; ++w)
    tile = algebra.compose(tile, of_warps.load(w * width + at.column));
  composed.store(thread, tile);
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
