// SPDX-License-Identifier: BSD-3-Clause
// The scan of Hillis and Steele: log2(T) passes over the maps of T steps. Pass k = 0, 1, 2, ...
// composes every map with the map 2^k steps before it. A map takes the state before some steps to
// the state after them.
#pragma once

#include <cstdint>
#include <utility>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/materialised.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Scans by doubling shifts, with n log n work. This backend serves for comparison and teaching.
///
/// Bits     the same in every run. They are also the same on any GPU, except for gated scans of
///          16-bit elements with the cells of qrnn.hpp and min_gru.hpp.
/// Memory   the maps of all steps (a factor and an offset each), twice. Gradients that are sums
///          need accumulators in the wide type (wide_t). A sum over time, and the gradient of a
///          shared initial state, need one per sequence for every 64 steps, or for every step if
///          the call also has other sums. Any other sum needs one per element of the gradient.
/// Range    results are within the error bound unless a product of gates over- or underflows.
///          Values that are not finite never move against the scan order, to another sequence or
///          past a reset.
/// Stream   queues about log2(T) + 2 kernels, and at most one for each gradient that is a sum. A
///          memset follows if the content of the workspace is `kept`. Never waits.
/// Source   Hillis and Steele, Data Parallel Algorithms (1986).
struct hillis_steele {
  static constexpr bool recomputes_states = false;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
};

namespace detail {

/// One pass over the maps, with one thread per slot. A slot is the place of one map in memory
/// (slot_grid in materialised.cuh).
template <class Map, class Algebra>
struct doubling_pass {
  static constexpr int threads = 256;
  static constexpr int blocks_together = 4;
  static constexpr bool synchronises = false;
  const Map* from;
  Map* to;
  slot_grid grid;
  std::int64_t apart;
  Algebra algebra;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= grid.lane_count * grid.slots) return;
    const std::int64_t slot = grid.at(i, grid.slots).slot;
    // Maps in slots below apart / 2 were final before the previous pass, so both copies of the maps
    // already hold them.
    if (slot < apart / 2) return;
    to[i] = slot < apart ? from[i] : algebra.compose(from[i - apart * grid.stride()], from[i]);
  }
};

}  // namespace detail

inline detail::slot_plan plan_for(const hillis_steele&, const problem& p) {
  return {p, p.shape.time, 2, detail::lies_along_time(p)};
}

template <class R>
void run_planned(const hillis_steele& on, detail::slot_plan plan, const R& r, const problem& p) {
  detail::map_memory maps = plan.maps(on.workspace.data), other = plan.maps(on.workspace.data, 1);
  const std::int64_t shift = plan.begin_with_state(scanrec::detail::starts(r));
  const detail::materialised_call<R> call(r, p, plan, on.workspace.data, on.stream);
  call.load(maps, shift, 0);
  call.with_maps([&]<class Map>() {
    using kernel = detail::doubling_pass<Map, detail::device_algebra_of<R>>;
    for (std::int64_t apart = 1; apart < plan.grid.slots; apart *= 2, std::swap(maps, other))
      detail::launch(
          kernel{reinterpret_cast<const Map*>(maps.data), reinterpret_cast<Map*>(other.data),
                 plan.grid, apart, detail::device_algebra(r)},
          call.template blocks_of<kernel>(plan.grid.lane_count * plan.grid.slots), on.stream);
  });
  call.finish(maps, shift);
  detail::zero_used(on.workspace, 0, plan.workspace_bytes, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
