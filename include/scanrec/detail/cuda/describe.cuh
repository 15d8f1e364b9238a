// SPDX-License-Identifier: BSD-3-Clause
// A description of a call on a GPU, made without running the call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <scanrec/detail/cuda/automatic.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lanes.cuh>
#include <scanrec/detail/cuda/look_back.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// The launch of a call on a GPU, as describe() returns it.
struct launch_plan {
  enum class path { lanes, look_back };
  path chosen = path::lanes;
  extents shape{0, 0, 0, 0};         ///< with outer axes merged into channels where possible
  std::int64_t blocks = 0;           ///< of the scan kernel
  int threads = 0;                   ///< of a block
  std::int64_t tiles = 1;            ///< of a sequence, along time
  std::int64_t tile_steps = 0;       ///< steps of a tile
  int tile_channels = 1;             ///< channels of a tile; with `lanes`, the channels that a
                                     ///< thread processes at once (1 or 2)
  int steps_ahead = 0;               ///< with `lanes`, steps loaded ahead into shared memory; 0:
                                     ///< a thread loads ahead into registers instead
  int kernels = 1;                   ///< the scan, and one for each gradient whose
                                     ///< accumulators a second kernel adds up
  std::int64_t workspace_bytes = 0;  ///< of device memory
};

namespace detail {

/// The number of kernels that add up the accumulators of gradients.
inline int sum_kernels(const lane_plan& sums) {
  return static_cast<int>(
      std::count_if(sums.outputs.begin(), sums.outputs.end(),
                    [](const auto& out) { return out.per_lane || out.per_strip; }));
}

inline launch_plan launch_of(const lanes_plan& plan, const extents& shape) {
  const bool rings = plan.ring.steps > 0, pairs = plan.pairs.threads > 0;
  return {
      .chosen = launch_plan::path::lanes,
      .shape = shape,
      .blocks = rings ? lane_strip::count(shape) : blocks_of(pairs ? plan.pairs : plan.sums.lanes),
      .threads = rings ? device::warp_size : lane_threads,
      .tile_steps = shape.time,
      .tile_channels = pairs ? 2 : 1,
      .steps_ahead = plan.ring.steps_ahead(),
      .kernels = 1 + sum_kernels(plan.sums),
      .workspace_bytes = plan.workspace_bytes};
}
inline launch_plan launch_of(const look_back_plan& plan, const extents& shape) {
  return {.chosen = launch_plan::path::look_back,
          .shape = shape,
          .blocks = (plan.in_turn ? 1 : plan.partition.tiles) * plan.partition.groups,
          .threads = tile_partition::threads,
          .tiles = plan.partition.tiles,
          .tile_steps = plan.partition.tile_steps(),
          .tile_channels = plan.partition.width,
          .kernels = 1 + sum_kernels(plan.sums),
          .workspace_bytes = plan.workspace_bytes};
}
inline launch_plan launch_of(const automatic_plan& plan, const extents& shape) {
  return plan.by_tiles ? launch_of(*plan.by_tiles, shape) : launch_of(plan.by_lanes, shape);
}

}  // namespace detail

/// The launch of a call on `lanes`, `look_back` or `automatic`.
template <plans_calls Backend>
launch_plan describe(const Backend& on, const problem& p) {
  return detail::launch_of(plan_for(on, p), p.shape);
}

/// A plan as lines of text.
inline std::string to_string(const launch_plan& plan) {
  const auto line = [](const char* name, const std::string& value) {
    std::string text = name;
    text.resize(std::max<std::size_t>(text.size(), 12), ' ');
    return text + value + "\n";
  };
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const bool lanes = plan.chosen == launch_plan::path::lanes;
  std::string text = line("shape", scanrec::to_string(plan.shape));
  text += line("path", lanes ? "lanes" : "look_back");
  const std::string whole =
      plan.steps_ahead > 0 ? "whole, " + number(plan.steps_ahead) + " steps ahead" : "whole";
  text += line("time", lanes ? whole
                             : number(plan.tiles) + " tiles of " + number(plan.tile_steps) + " x " +
                                   number(plan.tile_channels));
  text += line("launch", number(plan.blocks) + " blocks of " + number(plan.threads) + " threads");
  text += line("kernels", number(plan.kernels));
  return text + line("workspace", number(plan.workspace_bytes) + " bytes");
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
