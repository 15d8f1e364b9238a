// SPDX-License-Identifier: BSD-3-Clause
// The plan of the backends that materialise maps, and the workers that share a scan.
// materialised.hpp defines work items, lines, slots and planes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include <scanrec/detail/cpu/choose_tiles.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/detail/text.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The plan of a backend that materialises maps: hillis_steele, blelloch or triangular_matmul.
/// describe() returns it.
struct materialised_scan_plan {
  extents shape{0, 0, 0, 0};  ///< after merging axes
  bool along_time = false;    ///< lanes are consecutive steps; else channels
  std::int64_t strip = 1;     ///< channels per work item
  std::int64_t rows = 1;      ///< batch rows per work item
  std::int64_t items = 0;     ///< work items
  bool shared = false;        ///< whether threads share the phases of one work item
  int threads = 1;
  std::int64_t workspace_bytes = 0;  ///< allocated per call, unless it fits the stack buffer
};

/// The plan as text, one line per decision.
inline std::string to_string(const materialised_scan_plan& plan) {
  using detail::text;
  text all("shape       ", plan.shape);
  append(all, plan.along_time ? "\nlanes       consecutive steps" : "\nlanes       channels");
  append(all, text("\nwork items  ", plan.items, " of ", plan.rows, " x ", plan.strip,
                   plan.shared ? " (rows x channels), shared by threads" : " (rows x channels)"));
  append(all, text("\nthreads     ", plan.threads));
  append(all, text("\nworkspace   ", plan.workspace_bytes, " bytes\n"));
  return all.c_str();
}

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// Workers that share the phases of a scan. A phase starts after the previous one has ended.
struct team {
  static constexpr std::int64_t worth_a_piece = 4096;  // fewest elements worth another thread
  const executor& given;
  int workers = 1;

  /// Calls f(begin, end), or f(begin, end, index of the piece), concurrently for pieces of [0, n)
  /// that begin at multiples of `grain`.
  template <class F>
  void split(std::int64_t n, std::int64_t grain, F f) const {
    const std::int64_t grains = ceil_div(n, grain);
    const std::int64_t piece = ceil_div(grains, std::max(workers, 1)) * grain;
    if (piece == 0) return;
    run_on(given, static_cast<int>(ceil_div(n, piece)), [&](int number) {
      const std::int64_t begin = number * piece, end = std::min(n, begin + piece);
      if constexpr (std::is_invocable_v<F, std::int64_t, std::int64_t, int>)
        f(begin, end, number);
      else
        f(begin, end);
    });
  }
};

/// The inputs that determine the number of slots, besides the number of steps.
struct materialised_shape {
  bool shared = false;        // all workers work on one work item at a time
  std::int64_t overhang = 0;  // slots after the last one that whole packs may read or write
};

/// The partition of a problem by a materialising backend.
struct materialised_plan {
  materialised_shape shape{};
  lane_layout lanes{};
  std::int64_t strip = 1, strips = 0;  // channels per work item
  std::int64_t line = 1;               // channels per line: the strip, or 1
  std::int64_t width = 1;  // elements per slot: 1, or channels per line, rounded up to whole packs
  std::int64_t rows = 1, row_spans = 0;  // batch rows per work item
  std::int64_t items = 0;
  std::int64_t items_per_task = 1;
  int threads = 1;
  std::int64_t line_elements = 0;  // elements per line and plane
  std::int64_t pass_steps = 0;     // most steps that are loaded or finished at once
  std::int64_t finish_steps = 0;   // steps of a line that a worker finishes at a time
  std::int64_t plane = 0;          // elements per plane of a work item or (by_blocks) a buffer
  std::int64_t buffer_bytes = 0;   // all planes of a work item or a buffer
  std::int64_t maps_bytes = 0;     // per work item in progress
  std::int64_t scratch_bytes = 0;  // additional memory of the scan
  recompute_scratch recomputed{};  // per worker
  std::int64_t item_begin = 0;     // where a worker's maps begin, after sums and recomputed states
  std::int64_t worker_bytes = 0;   // including one work item unless it is shared
  std::int64_t totals_bytes = 0;
  std::int64_t alignment = 64;  // of the scratch and of all its parts
  std::int64_t workspace_bytes = 0;

  /// Steps of a line that are finished as one block if there are sums or the work item is shared.
  /// Running sums are flushed at the end of a block.
  static constexpr std::int64_t block_steps = sum_steps;
  /// Most packs of a strip.
  static constexpr std::int64_t most_packs = 64;
  /// Steps in the buffer of a scan with `by_blocks`, if lanes are channels.
  static constexpr std::int64_t buffer_steps = 64;
  std::int64_t channel_lines() const { return strip / line; }
  /// The extents of the largest block, if there are sums.
  extents block() const { return {1, block_steps, line, 1}; }
};

template <class Scan>
materialised_plan plan_materialised(const Scan& scan, const problem& p, int threads) {
  using policy = tile_policy;
  materialised_plan plan;
  const std::int64_t T = p.shape.time, C = p.shape.channel;
  std::int64_t lanes = 1;
  plan.lanes = choose_layout(p);
  if (!p.one_by_one) lanes = p.pack_lanes;
  const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
  plan.shape.overhang = along_time ? 2 * lanes : 0;
  if (!along_time) {
    const std::int64_t of_a_pack = clipped_product(
        lanes, std::max<std::int64_t>(1, scan.kept_bytes(p, plan.shape)), most_bytes);
    const std::int64_t packs =
        std::clamp<std::int64_t>(scan.cached_bytes / of_a_pack, 1, plan.most_packs);
    plan.strip = std::max<std::int64_t>(1, std::min(packs * lanes, C));
    plan.line = plan.strip;
  } else {
    plan.strip = std::max<std::int64_t>(1, std::min(scan.lines_of_a_row(p), C));
  }
  plan.strips = ceil_div(C, plan.strip);
  plan.width = along_time ? 1 : round_up(plan.strip, lanes);
  plan.rows = std::clamp<std::int64_t>(scan.rows(p, plan.strip), 1,
                                       std::max<std::int64_t>(p.shape.batch, 1));
  plan.row_spans = ceil_div(p.shape.batch, plan.rows);
  plan.items = p.shape.group * plan.row_spans * plan.strips;
  const sums_layout sums(p, plan.block());
  // Sums are added to the totals in the order of work items. If tasks had several work items, each
  // task would wait for all work items of the task before it.
  if (!sums.any)
    plan.items_per_task = std::max<std::int64_t>(
        1, policy::item_elements / std::max<std::int64_t>(1, T * plan.strip * plan.rows));

  const std::int64_t useful = element_count(p.shape) / policy::thread_elements;
  plan.threads = threads_for(threads, useful);
  plan.shape.shared = plan.threads > 1 && plan.items < plan.threads &&
                      T * plan.width * plan.rows > team::worth_a_piece;

  if (!plan.shape.shared) {
    const std::int64_t tasks = ceil_div(plan.items, plan.items_per_task);
    plan.threads = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, plan.threads));
  }
  plan.finish_steps =
      sums.any || plan.shape.shared ? plan.block_steps : std::max<std::int64_t>(T, 1);
  if (scan.by_blocks) {
    plan.pass_steps = along_time ? plan.block_steps : plan.buffer_steps;
    plan.plane = round_up((plan.pass_steps + plan.shape.overhang) * plan.width, 16);
  } else {
    plan.pass_steps = std::max<std::int64_t>(T, 1);
    plan.line_elements =
        round_up((scan.slots(T, plan.shape) + plan.shape.overhang) * plan.width, 16);
    plan.plane = plan.line_elements * plan.channel_lines() * plan.rows;
  }
  plan.alignment = p.alignment;
  plan.buffer_bytes =
      align_up(clipped_product(plan.plane, p.map_bytes, most_bytes), plan.alignment);
  plan.maps_bytes = clipped_product(
      plan.buffer_bytes, scan.by_blocks && plan.shape.shared ? plan.threads : 1, most_bytes);
  plan.scratch_bytes = align_up(scan.scratch_bytes(p, plan), plan.alignment);
  const std::int64_t item_bytes = plan.maps_bytes + plan.scratch_bytes;
  plan.recomputed = recompute_scratch(p, plan.lanes, plan.line);
  plan.item_begin = align_up(sums.block_bytes + plan.recomputed.bytes, plan.alignment);
  plan.worker_bytes = plan.item_begin + (plan.shape.shared ? 0 : item_bytes);
  plan.totals_bytes = align_up(sums.total_bytes, plan.alignment);
  plan.workspace_bytes = clipped_product(plan.threads, plan.worker_bytes, most_bytes) +
                         plan.totals_bytes + (plan.shape.shared ? item_bytes : 0);
  return plan;
}

template <class Scan>
materialised_scan_plan describe_materialised(const Scan& scan, const problem& p, int threads) {
  const materialised_plan plan = plan_materialised(scan, p, threads);
  return {p.shape,      plan.lanes.along == recurrence::lane_axis::time,
          plan.strip,   plan.rows,
          plan.items,   plan.shape.shared,
          plan.threads, plan.workspace_bytes};
}

}  // namespace scanrec::detail::inline SCANREC_ABI
