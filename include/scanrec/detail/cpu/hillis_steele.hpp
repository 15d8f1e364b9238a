// SPDX-License-Identifier: BSD-3-Clause
// Hillis-Steele scan: log2(T) passes over all maps, each of which combines every map with the one
// 1, 2, 4, ... steps earlier.
#pragma once

#include <cstdint>
#include <utility>

#include <scanrec/detail/cpu/materialised.hpp>
#include <scanrec/variants.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Slot 0 holds the initial state and slot t + 1 the map of step t (map_scan in materialised.hpp
/// explains slots). After the inclusive scan, slot t holds the state before step t.
struct doubling_scan : map_scan {
  static constexpr std::int64_t shift = 1;
  static std::int64_t first_state(std::int64_t, const materialised_shape&) { return 0; }
  static std::int64_t slots(std::int64_t steps, const materialised_shape& shape) {
    return shape.shared ? 2 * steps + shape.overhang : steps;
  }

  static std::int64_t kept_bytes(const problem& p, const materialised_shape& shape) {
    return slots(p.shape.time, shape) * p.map_bytes;
  }

  template <class Columns, class R>
  struct on : in_place<R> {
    using maps = maps_of<R>;
    using map = typename Columns::map;
    std::int64_t steps;
    const R& r;
    const team& workers;

    on(const doubling_scan&, const maps& at, std::byte*, std::int64_t /*rows*/,
       std::int64_t of_steps, const materialised_plan& plan, const R& recurrence, const team& all)
        : in_place<R>{at, plan}, steps(of_steps), r(recurrence), workers(all) {}
    void run() {
      if constexpr (!R::any_operator)
        if (this->all.with_resets) {
          this->all =
              passes<segmented<map>, Columns::lanes>(this->all, steps, this->plan, r, workers);
          return;
        }
      this->all = passes<map, Columns::lanes>(this->all, steps, this->plan, r, workers);
    }
  };

 private:
  template <class Map, int Lanes, class Maps, class R>
  static Maps passes(const Maps& maps, std::int64_t steps, const materialised_plan& plan,
                     const R& r, const team& all) {
    const auto algebra = algebra_of(r);
    // An operator scan without an initial element does not use slot 0.
    const std::int64_t first = starts(r) ? 0 : 1;
    const std::int64_t width = plan.width;
    Maps from = maps, to = maps;
    if (plan.shape.shared) to = maps.from((steps + plan.shape.overhang) * width);
    for (std::int64_t apart = 1; first + apart < steps; apart *= 2) {
      const std::int64_t low = (first + apart) * width, count = steps * width - low;
      // Elements before `low` are final. The previous pass wrote some of them to `from` only, so
      // this loop copies those to `to`.
      if (plan.shape.shared)
        for (std::int64_t i = (first + apart / 2) * width; i < low; i += Lanes)
          to.store(i, from.template load<Map>(i));
      all.split(count, team::worth_a_piece, [&](std::int64_t begin, std::int64_t end) {
        combine_range<Map, Lanes>(from, to, apart * width, low + begin, low + end, algebra);
      });
      if (plan.shape.shared) std::swap(from, to);
    }
    return from;
  }
  // Processes later elements first. If `from` and `to` are one buffer, the element `apart`
  // positions earlier is then not overwritten yet.
  template <class Map, int Lanes, class Maps, class Algebra>
  [[gnu::noinline]] static void combine_range(Maps from, Maps to, std::int64_t apart,
                                              std::int64_t begin, std::int64_t end,
                                              Algebra algebra) {
    for (std::int64_t i = begin + (end - begin - 1) / Lanes * Lanes; i >= begin; i -= Lanes)
      to.store(i, algebra.compose(from.template load<Map>(i - apart), from.template load<Map>(i)));
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence whose arrays are in scan order (problem.hpp).
template <class R>
void run_recurrence(const hillis_steele& backend, const R& recurrence, const problem& p) {
  detail::run_materialised(detail::doubling_scan{}, backend, recurrence, p);
}

/// The plan of the backend for a problem: lanes, work items, threads, workspace.
inline materialised_scan_plan describe(const hillis_steele& backend, const problem& p) {
  return detail::describe_materialised(detail::doubling_scan{}, p, backend.threads);
}

/// Bytes of workspace for a problem. Unless the caller provides the workspace, it is on the stack
/// if it has at most 8 KiB, and otherwise allocated.
inline std::int64_t workspace_bytes(const hillis_steele& backend, const problem& p) {
  return detail::plan_materialised(detail::doubling_scan{}, p, backend.threads).workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
