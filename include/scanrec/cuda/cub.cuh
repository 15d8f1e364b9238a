// SPDX-License-Identifier: BSD-3-Clause
// The comparison backend cuda::cub, which uses CUB's device-wide scan. For CUDA compilers only;
// scanrec/cuda/scan.cuh does not include this file.
#pragma once

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_scan.cuh>
#include <cub/version.cuh>
#include <cuda/std/functional>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <scanrec/cuda/error.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/materialised.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Writes a map per step to memory, scans the maps with cub::DeviceScan (InclusiveScan for one
/// sequence, InclusiveScanByKey for several), and computes the outputs of every step from the state
/// before it. This backend serves for comparison.
///
/// Bits   Results may differ from run to run unless the composition of maps is exact, as for
///        integers: the order in which CUB combines tiles depends on timing.
/// Memory a map per step, and the temporary storage of CUB. A map is a factor and an offset (with
///        resets, also the reset); for operator scans it is the element. Gradients that are sums
///        need accumulators in the wide type (wide_t). A sum over time has one per sequence for
///        every 64 steps, or for every step if the call also computes a sum that has one value per
///        step. The accumulators of the latter have the shape of the gradient.
/// Range  Results are within the error bound unless a product of gates over- or underflows. NaN and
///        infinity never propagate to an earlier step of the scan, to another channel, or past a
///        reset.
/// Stream queues two kernels, those of CUB, and at most one for each gradient that is a sum. If the
///        content of the workspace is `kept`, a memset follows. Does not synchronise.
/// Throws cuda::error for errors of the runtime or CUB, and if CUB needs more temporary storage
///        than planned. CUB before version 2.5 supports at most 2^31 - 1 maps.
struct cub {
  static constexpr bool recomputes_states = false;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
};

namespace detail {

/// The scan operator for CUB; the earlier map is the first argument.
template <class Map, class Algebra>
struct compose_in_order {
  Algebra algebra;
  SCANREC_HD Map operator()(const Map& earlier, const Map& later) const {
    return algebra.compose(earlier, later);
  }
};
/// Computes the key of a map for InclusiveScanByKey: the index of its sequence.
struct sequence_of_slot {
  std::int64_t slots;  // maps per sequence
  SCANREC_HD std::int64_t operator()(std::int64_t i) const { return i / slots; }
};

/// The workspace layout: all maps, accumulators of sums, and temporary storage for CUB.
struct cub_plan : slot_plan {
  std::int64_t first_byte = 0, temporary_bytes = 0;

  explicit cub_plan(const problem& p) : slot_plan(p, p.shape.time, 1, true) {
    const std::int64_t items = grid.lane_count * grid.slots;
    // For each of its tiles, CUB stores two maps, a status and a key in aligned arrays. CUB does
    // not report its tile size. `least_tile` is far below the smallest tile of its tuning policies.
    const std::int64_t least_tile = map_bytes <= 32 ? 128 : 32, tiles = items / least_tile + 64;
    temporary_bytes = tiles * (2 * (map_bytes + 16) + 16) + 4096;
    first_byte = sums.reserve(temporary_bytes);
    workspace_bytes = sums.bytes;
  }
};

}  // namespace detail

inline detail::cub_plan plan_for(const cub&, const problem& p) { return detail::cub_plan(p); }

template <class R>
void run_planned(const cub& on, detail::cub_plan plan, const R& r, const problem& p) {
  const detail::map_memory maps = plan.maps(on.workspace.data);
  const std::int64_t shift = plan.begin_with_state(scanrec::detail::starts(r));
  const detail::slot_grid& grid = plan.grid;
  const std::int64_t items = grid.lane_count * grid.slots;
  const detail::materialised_call<R> call(r, p, plan, on.workspace.data, on.stream);
#if CUB_VERSION < 200500  // these versions count items in an int
  if (items > std::numeric_limits<int>::max())
    throw error("cub::DeviceScan", cudaErrorInvalidValue, std::to_string(items) + " maps", __FILE__,
                __LINE__);
#endif
  call.with_maps([&]<class Map>() {
    using algebra = detail::device_algebra_of<R>;
    const detail::compose_in_order<Map, algebra> compose{detail::device_algebra(r)};
    Map* const data = reinterpret_cast<Map*>(maps.data);
    const auto scan = [&](void* temporary, std::size_t& bytes) {
      if (grid.lane_count == 1)
        return ::cub::DeviceScan::InclusiveScan(temporary, bytes, data, data, compose, items,
                                                on.stream);
      const auto keys = thrust::make_transform_iterator(thrust::counting_iterator<std::int64_t>(0),
                                                        detail::sequence_of_slot{grid.slots});
      return ::cub::DeviceScan::InclusiveScanByKey(temporary, bytes, keys, data, data, compose,
                                                   items, ::cuda::std::equal_to<>{}, on.stream);
    };
    std::size_t bytes = 0;
    if (items > 0) detail::check(scan(nullptr, bytes), "cub::DeviceScan");
    if (static_cast<std::int64_t>(bytes) > plan.temporary_bytes)
      throw error("cub::DeviceScan", cudaErrorMemoryAllocation,
                  std::to_string(bytes) + " bytes of temporary storage needed, " +
                      std::to_string(plan.temporary_bytes) + " planned",
                  __FILE__, __LINE__);
    call.load(maps, shift, 0);
    if (items > 0)
      detail::check(scan(static_cast<std::byte*>(on.workspace.data) + plan.first_byte, bytes),
                    "cub::DeviceScan");
  });
  call.finish(maps, shift);
  detail::zero_used(on.workspace, 0, plan.workspace_bytes, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
