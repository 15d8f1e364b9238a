// SPDX-License-Identifier: BSD-3-Clause
// The default backend on GPUs: chooses between `lanes` and `look_back`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lanes.cuh>
#include <scanrec/detail/cuda/look_back.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Chooses between `lanes` and `look_back` by shape, layout and types. The choice is the same on
/// every GPU, so it cannot change bits from one GPU to another.
///
/// Uses `lanes` in three cases: there are at most 64 steps; a map in the wide type (wide_t) takes
/// more than about 180 bytes, too much for shared memory; or there are enough sequences to fill a
/// GPU. The third case excludes sequences that are contiguous along time, unless some array has
/// elements of more than 16 bytes. In all other cases it uses `look_back`.
///
/// Memory, stream and bits are those of the chosen backend.
struct automatic {
  static constexpr bool recomputes_states = true;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
};

namespace detail {

/// Whether `automatic` uses `lanes` for a problem.
inline bool chooses_lanes(const problem& p, const lanes_plan& plan) {
  // On an H200, look_back was faster than `lanes` for 8192 sequences of floats, and slower for
  // 16,384. This was measured before look_back could process tiles in turn. The limits for other
  // types are assumptions. The limit counts threads, because a thread of the `lanes` backend may
  // process several sequences.
  constexpr std::int64_t enough_bytes = 48 * 1024, few_steps = 64;
  const std::int64_t element = std::clamp<std::int64_t>(largest_element(p), 4, 8);
  if (p.shape.time <= few_steps ||
      bytes_of_maps(p.carry_map_bytes, p.carry_bytes) > most_shared_bytes)
    return true;
  // If time is contiguous, each thread of the `lanes` backend reads its own cache lines in small
  // parts, and the lines of all threads overflow the caches. look_back stages whole lines in shared
  // memory, for elements of at most `staged_element` bytes.
  constexpr std::int64_t staged_element = 16;
  const bool staged = std::all_of(p.begin(), p.end(), [](const array_use& array) {
    return array.element_bytes <= staged_element;
  });
  return plan.sums.lanes.threads * element >= enough_bytes && !(staged && lies_along_time(p));
}

/// The plan of a call of `automatic`.
struct automatic_plan {
  lanes_plan by_lanes;
  std::optional<look_back_plan> by_tiles{};  // set if look_back is chosen
  std::int64_t workspace_bytes = by_lanes.workspace_bytes;
};

}  // namespace detail

inline detail::automatic_plan plan_for(const automatic&, const problem& p) {
  detail::automatic_plan plan{{p, 0}};
  if (!detail::chooses_lanes(p, plan.by_lanes))
    plan.workspace_bytes = plan.by_tiles.emplace(p, 0).workspace_bytes;
  return plan;
}

template <class R>
void run_planned(const automatic& on, const detail::automatic_plan& plan, const R& r,
                 const problem& p) {
  if (plan.by_tiles)
    run_planned(look_back{.stream = on.stream, .workspace = on.workspace}, *plan.by_tiles, r, p);
  else
    run_planned(lanes{.stream = on.stream, .workspace = on.workspace}, plan.by_lanes, r, p);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
