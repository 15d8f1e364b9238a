// SPDX-License-Identifier: BSD-3-Clause
// The memory traffic of a call, and the prefetches and non-temporal stores that follow from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/tile_policy.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Bytes that a call moves, and the order of their addresses.
struct traffic {
  std::int64_t bytes = 0;          // all arrays with a time axis, each element counted once
  std::int64_t read_per_site = 0;  // bytes of one element of each input that varies over time
  std::int64_t descending = 0;     // part of read_per_site that is read towards lower addresses
  bool gaps = false;               // whether rows that are read are more than gap_bytes apart
};
inline traffic traffic_of(const problem& p) {
  traffic t;
  for (const array_use& array : p) {
    if (!array.data || !array.sequence) continue;
    std::int64_t elements = 1;
    for (const axis a : all_axes)
      if (along(array.strides, a) != 0) elements *= along(p.shape, a);
    t.bytes += elements * array.element_bytes;
    if (array.use != access::read || array.strides.time == 0) continue;
    t.read_per_site += array.element_bytes;
    if (array.strides.time < 0) t.descending += array.element_bytes;
    const std::int64_t between = std::abs(array.strides.time) - p.shape.channel;
    t.gaps = t.gaps || between > tile_policy::gap_bytes / array.element_bytes;
  }
  return t;
}

/// Number of steps that kernels prefetch ahead. It is 0 if the hardware prefetches. With lanes
/// along time, the hardware prefetches unless most bytes are read towards lower addresses. With
/// lanes along channels, it does if rows have no large gaps between them and a strip is a whole row
/// or one pack.
inline std::int64_t choose_prefetch(const problem& p, const tile_plan& plan, std::int64_t lanes,
                                    const traffic& moved) {
  using policy = tile_policy;
  if (plan.lanes.along == recurrence::lane_axis::time)
    return plan.descending ? policy::prefetch_packs * lanes : 0;
  const bool pieces = plan.strip < p.shape.channel && plan.strip > lanes;
  if (!moved.gaps && !pieces) return 0;
  // States are recomputed against the direction of the adjoint. So the adjoint prefetches the whole
  // next checkpoint interval, if it is small. Otherwise each pass prefetches its own next steps.
  if (p.recomputed_bytes > 0 && memory::checkpoint_interval * moved.read_per_site * plan.strip <=
                                    policy::prefetch_interval_bytes)
    return memory::checkpoint_interval;
  return std::max<std::int64_t>(1, policy::prefetch_bytes / (plan.strip * p.compute_bytes));
}

/// Whether non-temporal stores fill whole cache lines. A part of a line that is stored alone costs
/// another write to memory. Channels past the last whole pack use ordinary stores, so rows with
/// such channels must not share lines.
inline bool fills_lines(const problem& p, const tile_plan& plan, std::int64_t lanes) {
  const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
  const std::int64_t item = along_time || p.shape.channel % lanes == 0 ? 16 : 64;
  return std::all_of(p.begin(), p.end(), [&](const array_use& array) {
    const auto lines_up = [&](axis a) {
      const std::int64_t stride = along(p.shape, a) > 1 ? along(array.strides, a) : 0;
      return std::abs(stride) == 1 || stride % item * array.element_bytes % item == 0;
    };
    return array.use == access::read || !array.data || !array.sequence ||
           std::all_of(std::begin(all_axes), std::end(all_axes), lines_up);
  });
}

}  // namespace scanrec::detail::inline SCANREC_ABI
