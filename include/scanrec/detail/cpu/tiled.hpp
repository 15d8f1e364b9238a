// SPDX-License-Identifier: BSD-3-Clause
// The default backend: cache-sized tiles, SIMD lanes, threads, one pass over memory. What is done
// is planned in plan_tiles.hpp, in which order in tile_driver.hpp, and how to a tile in
// channel_lanes.hpp, time_lanes.hpp and element_lanes.hpp.
#pragma once

#include <cstdint>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/channel_lanes.hpp>
#include <scanrec/detail/cpu/element_lanes.hpp>
#include <scanrec/detail/cpu/plan_tiles.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/cpu/tile_driver.hpp>
#include <scanrec/detail/cpu/tile_kernels.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/time_lanes.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The functions that the plan needs.
template <class R>
const tile_kernels& tile_kernels_for(const tile_plan& plan) {
  if constexpr (R::one_by_one) {
    if constexpr ((walked_lanes_of<R>) > 1)
      if (!plan.lanes.single) return tile_kernels_of<R, channel_lanes>::table;
    return tile_kernels_of<R, element_lanes>::table;
  } else {
    if (plan.lanes.along == recurrence::lane_axis::time)
      return tile_kernels_of<R, time_lanes>::table;
    return tile_kernels_of<R, channel_lanes>::table;
  }
}

inline tile_plan plan_for(const tiled& backend, const problem& p) {
  return make_tile_plan(p, backend.threads, backend.tile_steps, backend.stream_bytes);
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence, given in scan order.
template <class R>
void run_recurrence(const tiled& backend, R recurrence, const problem& p) {
  const tile_plan plan = detail::plan_for(backend, p);
  detail::for_outputs(recurrence, [&](auto& out) { out.stream = out.stream && plan.streaming; });
  detail::scratch memory(p, plan.workspace_bytes, plan.alignment, backend.workspace);
  detail::tile_driver(detail::tile_kernels_for<R>(plan), &recurrence, plan, memory.data())
      .run(backend.executor);
}

/// What the tiled backend will do with a problem: path, tiles, threads, workspace.
inline tile_plan describe(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p);
}

/// Bytes the tiled backend allocates for a problem, threads apart; up to 8 KiB come from the stack.
/// Without summed gradients under 1/256 of one (batch, time, channel) array plus a constant per
/// thread. A sum takes its own size in the wide type, per thread and once; one that keeps time also
/// the states of all rows that it is the sum of.
inline std::int64_t workspace_bytes(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p).workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
