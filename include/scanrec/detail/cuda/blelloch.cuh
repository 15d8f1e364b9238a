// SPDX-License-Identifier: BSD-3-Clause
// The scan of Blelloch: maps are composed up a tree, and states are passed down from its root. A
// map takes the state before some steps to the state after them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/materialised.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Scans over a balanced tree by an up-sweep and a down-sweep, with 2n work. The tree is written to
/// memory and read again. This backend serves for comparison and teaching.
///
/// Bits     the same in every run. They are also the same on any GPU, except for gated scans of
///          16-bit elements with the cells of qrnn.hpp and min_gru.hpp.
/// Memory   the tree: about two maps (a factor and an offset each) per step. Gradients that are
///          sums need accumulators in the wide type (wide_t). A sum over time, and the gradient of
///          a shared initial state, need one per sequence for every 64 steps, or for every step if
///          the call also has other sums. Any other sum needs one per element of the gradient.
/// Range    results are within the error bound unless a product of gates over- or underflows.
///          Values that are not finite never move against the scan order, to another sequence or
///          past a reset.
/// Stream   queues about 2 log2(T) + 2 kernels, and at most one for each gradient that is a sum. A
///          memset follows if the content of the workspace is `kept`. Never waits.
/// Source   Blelloch, Prefix Sums and Their Applications (1990).
struct blelloch {
  static constexpr bool recomputes_states = false;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
};

namespace detail {

/// The levels of a tree over the steps, as in tree_scan of detail/cpu/blelloch.hpp. Each node takes
/// one slot of every lane, that is, of every sequence (slot_grid in materialised.cuh).
struct tree_levels {
  struct level {
    std::int64_t begin = 0, nodes = 0;  // first slot, and number of slots
  };
  std::array<level, 64> levels{};
  int count = 1;

  explicit tree_levels(std::int64_t steps) {
    levels[0] = {0, steps};
    while (levels[count - 1].nodes > 1) {
      const level& below = levels[count - 1];
      levels[count++] = {below.begin + below.nodes, (below.nodes + 1) / 2};
    }
  }
  [[nodiscard]] const level& top() const { return levels[count - 1]; }
  [[nodiscard]] std::int64_t slots() const {
    return top().begin + std::max<std::int64_t>(1, top().nodes);
  }
};

/// Composes the maps of a level from those of the level below, with one thread per node and lane.
/// The map of the level's last node is never needed, so it is left out.
template <class Map, class Algebra>
struct combine_siblings {
  static constexpr int threads = 256;
  static constexpr int blocks_together = 4;
  static constexpr bool synchronises = false;
  Map* maps;
  slot_grid grid;
  tree_levels::level children, parents;
  Algebra algebra;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= grid.lane_count * (parents.nodes - 1)) return;
    const auto [lane, k] = grid.at(i, parents.nodes - 1);
    const Map* left = maps + grid.index(lane, children.begin + 2 * k);
    maps[grid.index(lane, parents.begin + k)] = algebra.compose(left[0], left[grid.stride()]);
  }
};

/// Computes the state before each node of a level from the state before its parent, and stores it
/// in place of the node's map. There is one thread per parent and lane.
template <class Map, class Algebra>
struct hand_down {
  static constexpr int threads = 256;
  static constexpr int blocks_together = 4;
  static constexpr bool synchronises = false;
  Map* maps;
  slot_grid grid;
  tree_levels::level children, parents;
  bool starts;  // whether there is a state before the first step
  Algebra algebra;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= grid.lane_count * parents.nodes) return;
    const auto [lane, k] = grid.at(i, parents.nodes);
    Map* const left = maps + grid.index(lane, children.begin + 2 * k);
    const bool has_right = 2 * k + 1 < children.nodes;
    if (k == 0 && !starts) {
      // No state precedes the level's first node. So the map of this node alone gives the state
      // before the second node.
      if (has_right) left[grid.stride()] = left[0];
      return;
    }
    const auto x = algebra.state_of(maps[grid.index(lane, parents.begin + k)]);
    if (has_right) algebra.hold(left[grid.stride()], algebra.act(left[0], x));
    algebra.hold(left[0], x);
  }
};

}  // namespace detail

inline detail::slot_plan plan_for(const blelloch&, const problem& p) {
  return {p, detail::tree_levels(p.shape.time).slots(), 1, detail::lies_along_time(p)};
}

template <class R>
void run_planned(const blelloch& on, const detail::slot_plan& plan, const R& r, const problem& p) {
  const detail::map_memory maps = plan.maps(on.workspace.data);
  const detail::tree_levels tree(p.shape.time);
  const detail::materialised_call<R> call(r, p, plan, on.workspace.data, on.stream);
  // `load` writes the map of step k - 1 to slot k + shift. Slot k must hold the map of step k, so
  // the shift is -1.
  call.load(maps, -1, tree.top().begin);
  call.with_maps([&]<class Map>() {
    Map* const data = reinterpret_cast<Map*>(maps.data);
    const auto algebra = detail::device_algebra(r);
    using up = detail::combine_siblings<Map, detail::device_algebra_of<R>>;
    using down = detail::hand_down<Map, detail::device_algebra_of<R>>;
    for (int l = 0; l + 1 < tree.count; ++l)
      detail::launch(
          up{data, plan.grid, tree.levels[l], tree.levels[l + 1], algebra},
          call.template blocks_of<up>(plan.grid.lane_count * (tree.levels[l + 1].nodes - 1)),
          on.stream);
    for (int l = tree.count - 2; l >= 0; --l)
      detail::launch(down{data, plan.grid, tree.levels[l], tree.levels[l + 1],
                          scanrec::detail::starts(r), algebra},
                     call.template blocks_of<down>(plan.grid.lane_count * tree.levels[l + 1].nodes),
                     on.stream);
  });
  call.finish(maps, 0);
  detail::zero_used(on.workspace, 0, plan.workspace_bytes, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
