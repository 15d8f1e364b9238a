// SPDX-License-Identifier: BSD-3-Clause
// Blelloch scan: combines a tree of maps from the leaves up, then computes states from the root
// down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/materialised.hpp>
#include <scanrec/variants.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Level 0 holds the maps of the steps. Node k of level l + 1 composes the maps of nodes 2k and
/// 2k + 1 of level l. The levels are contiguous in memory. On the way down, the state before a node
/// replaces its map. A left child gets the state of its parent. A right child gets that state with
/// the map of its sibling applied.
///
/// If a level has an odd number of nodes, the last has no sibling. Neither its map nor the maps of
/// its ancestors are needed, so the number of steps need not be a power of two.
struct tree_scan : map_scan {
  static constexpr std::int64_t shift = 0;
  static std::int64_t first_state(std::int64_t steps, const materialised_shape& shape) {
    level l{0, steps};
    while (l.nodes > 1) l = above(l, shape);
    return l.begin;
  }
  static std::int64_t slots(std::int64_t steps, const materialised_shape& shape) {
    return first_state(steps, shape) + 1 + shape.overhang;
  }

  static std::int64_t kept_bytes(const problem& p, const materialised_shape& shape) {
    return slots(p.shape.time, shape) * p.map_bytes;
  }

  template <class Columns, class R>
  struct on : in_place<R> {
    using maps = maps_of<R>;
    std::int64_t steps;
    const R& r;
    const team& workers;

    on(const tree_scan&, const maps& at, std::byte*, std::int64_t /*rows*/, std::int64_t of_steps,
       const materialised_plan& plan, const R& recurrence, const team& all)
        : in_place<R>{at, plan}, steps(of_steps), r(recurrence), workers(all) {}
    void run() {
      using kernels =
          std::conditional_t<Columns::along_time, pairs_along_time<R>, pairs_of_rows<Columns>>;
      if constexpr (!R::any_operator)
        if (this->all.with_resets)
          return sweep<kernels, true>(this->all, {0, steps}, this->plan, r, workers);
      sweep<kernels, false>(this->all, {0, steps}, this->plan, r, workers);
    }
  };

 private:
  struct level {
    std::int64_t begin, nodes;  // first slot, number of slots (see materialised.hpp)
  };
  static level above(const level& l, const materialised_shape& shape) {
    return {l.begin + l.nodes + shape.overhang, (l.nodes + 1) / 2};
  }

  // Composes the maps of all levels above `low`. Then computes the states before the nodes, from
  // the top level down to `low`.
  template <class Kernels, bool Resets, class Maps, class R>
  static void sweep(const Maps& maps, const level& low, const materialised_plan& plan, const R& r,
                    const team& all) {
    if (low.nodes <= 1) return;
    const level high = above(low, plan.shape);
    const Maps children = maps.from(low.begin * plan.width);
    const Maps parents = maps.from(high.begin * plan.width);
    const auto algebra = algebra_of(r);
    const std::int64_t grain = std::max<std::int64_t>(team::worth_a_piece / plan.width, 1);
    all.split(high.nodes - 1, round_up(grain, 16), [&](std::int64_t begin, std::int64_t end) {
      Kernels::template combine_pairs<Resets>(children, parents, begin, end, plan.width, algebra);
    });
    sweep<Kernels, Resets>(maps, high, plan, r, all);
    // In an operator scan without an initial element, the first node of a level has no state before
    // it.
    const std::int64_t first = starts(r) ? 0 : 1;
    if (first == 1) Kernels::pass_on(children, plan.width);
    all.split(high.nodes - first, round_up(grain, 16), [&](std::int64_t begin, std::int64_t end) {
      Kernels::template hand_down<Resets>(parents, children, begin + first, end + first, low.nodes,
                                          plan.width, algebra);
    });
  }

  // A node is a row of packs, with a lane per channel.
  template <class Columns>
  struct pairs_of_rows {
    template <bool Resets>
    using map = std::conditional_t<Resets, segmented<typename Columns::map>, typename Columns::map>;

    template <bool Resets, class Maps, class Algebra>
    [[gnu::noinline]] static void combine_pairs(Maps children, Maps parents, std::int64_t begin,
                                                std::int64_t end, std::int64_t width,
                                                Algebra algebra) {
      for (std::int64_t k = begin; k < end; ++k)
        for (std::int64_t c = 0; c < width; c += Columns::lanes) {
          const std::int64_t left = 2 * k * width + c;
          parents.store(k * width + c,
                        algebra.compose(children.template load<map<Resets>>(left),
                                        children.template load<map<Resets>>(left + width)));
        }
    }
    template <bool Resets, class Maps, class Algebra>
    [[gnu::noinline]] static void hand_down(Maps parents, Maps children, std::int64_t begin,
                                            std::int64_t end, std::int64_t nodes,
                                            std::int64_t width, Algebra algebra) {
      for (std::int64_t k = begin; k < end; ++k)
        for (std::int64_t c = 0; c < width; c += Columns::lanes) {
          const std::int64_t left = 2 * k * width + c;
          auto x = parents.template load<typename Columns::state>(k * width + c);
          auto m = children.template load<map<Resets>>(left);
          children.store(left, x);
          if (2 * k + 1 < nodes) children.store(left + width, algebra.act(m, x));
        }
    }
    // For operator scans without an initial element. The state before node 1 is then what node 0
    // holds: its elements combined by the operator.
    template <class Maps>
    static void pass_on(Maps children, std::int64_t width) {
      for (std::int64_t c = 0; c < width; ++c)
        children.store(width + c, children.template load<map<false>>(c));
    }
  };

  // Neighbouring nodes are neighbouring lanes.
  template <class R>
  struct pairs_along_time {
    static constexpr int lanes = time_columns<R>::lanes;
    using few = typename time_columns<R>::lane;
    using many = simd::lane_t<typename R::value, 2 * lanes>;
    template <bool Resets>
    using map = std::conditional_t<Resets, segmented<affine<many>>, affine<many>>;

    template <bool Resets, class Maps, class Algebra>
    [[gnu::noinline]] static void combine_pairs(Maps children, Maps parents, std::int64_t begin,
                                                std::int64_t end, std::int64_t, Algebra algebra) {
      for (std::int64_t k = begin; k < end; k += lanes) {
        auto m = children.template load<map<Resets>>(2 * k);
        parents.store(k, algebra.compose(every_other<0>(m), every_other<1>(m)));
      }
    }
    template <bool Resets, class Maps, class Algebra>
    [[gnu::noinline]] static void hand_down(Maps parents, Maps children, std::int64_t begin,
                                            std::int64_t end, std::int64_t, std::int64_t,
                                            Algebra algebra) {
      for (std::int64_t k = begin; k < end; k += lanes) {
        few x = parents.template load<few>(k);
        auto left = every_other<0>(children.template load<map<Resets>>(2 * k));
        children.store(2 * k, simd::interleave(x, algebra.act(left, x)));
      }
    }
    template <class Maps>
    static void pass_on(Maps, std::int64_t) {}
  };
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence whose arrays are in scan order (problem.hpp).
template <class R>
void run_recurrence(const blelloch& backend, const R& recurrence, const problem& p) {
  detail::run_materialised(detail::tree_scan{}, backend, recurrence, p);
}

/// The plan of the backend for a problem: lanes, work items, threads, workspace.
inline materialised_scan_plan describe(const blelloch& backend, const problem& p) {
  return detail::describe_materialised(detail::tree_scan{}, p, backend.threads);
}

/// Bytes of workspace for a problem. Unless the caller provides the workspace, it is on the stack
/// if it has at most 8 KiB, and otherwise allocated.
inline std::int64_t workspace_bytes(const blelloch& backend, const problem& p) {
  return detail::plan_materialised(detail::tree_scan{}, p, backend.threads).workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
