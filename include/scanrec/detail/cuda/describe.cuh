// SPDX-License-Identifier: BSD-3-Clause
// What a call on a GPU will do, without doing it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <scanrec/detail/cuda/automatic.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_ring.cuh>
#include <scanrec/detail/cuda/lanes.cuh>
#include <scanrec/detail/cuda/look_back.cuh>
#include <scanrec/detail/cuda/tile_cutting.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// What the backends for GPUs will do with a problem; describe() returns it.
struct launch_plan {
  enum class path { lanes, look_back };
  path chosen = path::lanes;
  extents shape{0, 0, 0, 0};    ///< with outer axes joined to channels where they continue them
  std::int64_t blocks = 0;      ///< of the kernel that scans
  int threads = 0;              ///< of a block
  std::int64_t tiles = 1;       ///< of a sequence, along time
  std::int64_t tile_steps = 0;  ///< steps of a tile
  int tile_channels = 1;        ///< channels of a tile; of `lanes`, of a thread: 1 or 2
  int steps_ahead = 0;          ///< of `lanes`, through shared memory; 0: to registers only
  int kernels = 1;              ///< queued by a call: one for each gradient that is a sum
                                ///< over time, channels or states, besides the scan
  std::int64_t workspace_bytes = 0;  ///< of device memory
};

namespace detail {

/// Of a plan of sums: kernels that add them up.
inline int sum_kernels(const lane_plan& sums) {
  return static_cast<int>(
      std::count_if(sums.outputs.begin(), sums.outputs.end(),
                    [](const auto& out) { return out.per_lane || out.per_strip; }));
}

}  // namespace detail

inline launch_plan describe(const lanes& on, const problem& p) {
  const detail::lane_plan plan = detail::plan_of(on, p);
  const detail::ring_plan ring(p, plan, on.steps_ahead);
  const bool rings = ring.steps > 0, pairs = !rings && detail::takes_pairs(p, plan);
  detail::lane_dealing dealt = plan.lanes;
  if (pairs) dealt.threads /= 2;
  return {.chosen = launch_plan::path::lanes,
          .shape = p.shape,
          .blocks = rings ? detail::lane_strip::count(p.shape) : detail::blocks_of(dealt),
          .threads = rings ? device::warp_size : detail::lane_threads,
          .tile_steps = p.shape.time,
          .tile_channels = pairs ? 2 : 1,
          .steps_ahead = ring.steps_ahead(),
          .kernels = 1 + detail::sum_kernels(plan),
          .workspace_bytes = workspace_bytes(on, p)};
}

inline launch_plan describe(const look_back& on, const problem& p) {
  const detail::look_back_plan plan(p, on.segment_steps);
  return {.chosen = launch_plan::path::look_back,
          .shape = p.shape,
          .blocks = (plan.in_turn ? 1 : plan.cutting.tiles) * plan.cutting.groups,
          .threads = detail::tile_cutting::threads,
          .tiles = plan.cutting.tiles,
          .tile_steps = plan.cutting.tile_steps(),
          .tile_channels = plan.cutting.width,
          .kernels = 1 + detail::sum_kernels(plan.sums),
          .workspace_bytes = plan.sums.bytes};
}

inline launch_plan describe(const automatic& on, const problem& p) {
  return chooses_lanes(p) ? describe(lanes{.stream = on.stream}, p)
                          : describe(look_back{.stream = on.stream}, p);
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
