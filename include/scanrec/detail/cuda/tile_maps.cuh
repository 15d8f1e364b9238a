// SPDX-License-Identifier: BSD-3-Clause
// Composing the maps of a tile's segments: by exchanges within a warp, then over the warps. In what
// order depends on the numbers of the threads alone.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/tile_cutting.cuh>
#include <scanrec/detail/cuda/tile_place.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

template <class Map>
struct composed_maps {
  Map before;  // of the segments before; of the first one nothing
  Map tile;    // of all, for the thread that leads
};
/// `own` is the map of the thread's segment; the maps of warps are in shared memory from a byte on.
template <class Algebra, class Map>
SCANREC_DEVICE composed_maps<Map> compose_segments(const tile_cutting& cutting,
                                                   const tile_place& at, const Algebra& algebra,
                                                   Map own, std::int64_t warp_maps) {
  constexpr int warps = tile_cutting::threads / device::warp_size;
  const int thread = device::thread_index(), lane_of_warp = thread % device::warp_size;
  const int warp = thread / device::warp_size, width = cutting.width;
  for (int apart = width; apart < device::warp_size; apart *= 2) {
    const bool joins = lane_of_warp >= apart;
    const Map earlier = device::exchange(own, joins ? lane_of_warp - apart : lane_of_warp);
    if (joins && at.count > 0) own = algebra.compose(earlier, own);
  }
  const bool follows = lane_of_warp >= width;
  const Map in_warp = device::exchange(own, follows ? lane_of_warp - width : lane_of_warp);

  const device::shared_array<Map> of_warps(warp_maps);
  const bool ends_warp = lane_of_warp + width >= device::warp_size ||
                         at.first + cutting.segment_steps >= cutting.steps;
  if (at.count > 0 && ends_warp) of_warps.store(warp * width + at.column, own);
  device::synchronise_block();

  composed_maps<Map> all{in_warp, own};
  if (at.count == 0) return all;
  Map earlier_warps{};
  for (int w = 0; w < warp; ++w) {
    const Map m = of_warps.load(w * width + at.column);
    earlier_warps = w == 0 ? m : algebra.compose(earlier_warps, m);
  }
  if (warp > 0) all.before = follows ? algebra.compose(earlier_warps, in_warp) : earlier_warps;
  if (at.segment == 0) {
    const std::int64_t warp_steps =
        static_cast<std::int64_t>(device::warp_size / width) * cutting.segment_steps;
    all.tile = of_warps.load(at.column);
    for (int w = 1; w < warps && at.first + w * warp_steps < cutting.steps; ++w)
      all.tile = algebra.compose(all.tile, of_warps.load(w * width + at.column));
  }
  return all;
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
