// SPDX-License-Identifier: BSD-3-Clause
// The default backend on CPUs: cache-sized tiles, SIMD lanes, threads, one pass over memory.
// choose_tiles.hpp makes the plan, tile_schedule.hpp runs it, and kernels_by_channel.hpp,
// kernels_by_time.hpp and kernels_by_element.hpp process tiles.
#pragma once

#include <cstdint>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/choose_tiles.hpp>
#include <scanrec/detail/cpu/kernel_table.hpp>
#include <scanrec/detail/cpu/kernels_by_channel.hpp>
#include <scanrec/detail/cpu/kernels_by_element.hpp>
#include <scanrec/detail/cpu/kernels_by_time.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/tile_schedule.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The kernels for the lanes of a plan.
template <class R>
const kernel_table& kernel_table_for(const tile_plan& plan) {
  if constexpr (R::one_by_one) {
    if constexpr ((run_lanes_of<R>) > 1)
      if (!plan.lanes.single) return kernel_table_of<R, kernels_by_channel>::table;
    return kernel_table_of<R, kernels_by_element>::table;
  } else {
    if (plan.lanes.along == recurrence::lane_axis::time)
      return kernel_table_of<R, kernels_by_time>::table;
    return kernel_table_of<R, kernels_by_channel>::table;
  }
}

inline tile_plan plan_for(const tiled& backend, const problem& p) {
  return make_tile_plan(p, backend.threads, backend.tile_steps, backend.stream_bytes);
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence whose arrays are in scan order (problem.hpp).
template <class R>
void run_recurrence(const tiled& backend, R recurrence, const problem& p) {
  const tile_plan plan = detail::plan_for(backend, p);
  detail::for_outputs(recurrence, [&](auto& out) { out.stream = out.stream && plan.streaming; });
  detail::scratch memory(p, plan.workspace_bytes, plan.alignment, backend.workspace);
  detail::tile_schedule(detail::kernel_table_for<R>(plan), &recurrence, plan, memory.data())
      .run(backend.executor);
}

/// The plan of the tiled backend for a problem: lanes, tiles, threads, workspace.
inline tile_plan describe(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p);
}

/// Bytes that the tiled backend allocates for a problem, without the stacks of threads. Workspaces
/// of at most 8 KiB are on the stack. Without summed gradients a workspace is smaller than 1/256 of
/// one (batch, time, channel) array plus a constant per thread. A summed gradient takes at most
/// its own size in the wide type (double for float) for totals, as much per thread, and as much per
/// work item in progress if work items have several tiles. A sum with one value per step also takes
/// the states of all sequences of a work item, per thread.
inline std::int64_t workspace_bytes(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p).workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
