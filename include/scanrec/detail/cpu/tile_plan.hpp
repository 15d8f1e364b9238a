// SPDX-License-Identifier: BSD-3-Clause
// The plan of the tiled backend as data: the work items and tiles of a problem, and the layout of
// scratch memory. A work item is a strip (a block of adjacent channels) of some batch rows; its
// time may be split into tiles. choose_tiles.hpp makes the plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_policy.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The accumulation of one summed gradient. At the end of its scope (a tile, batch row or work
/// item) a sum is written to the gradient or added to totals.
struct sum_plan {
  bool active = false;
  bool time_kept = false;      // one sum per step; the scope is a tile
  bool row_scope = false;      // the scope is a batch row; else, without time_kept, a work item
  bool complete = false;       // the scope contains every term; else the sum is added to totals
  scanrec::strides strides{};  // of the accumulators of one scope
  std::int64_t elements = 0;
  std::int64_t wide_bytes = 0;       // per element
  scanrec::strides total_strides{};  // of the totals over all work items
  std::int64_t total_elements = 0;
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// Layout of the scratch memory of a call, in bytes from an aligned start.
struct scratch_layout {
  using offsets = std::array<std::int64_t, most_outputs>;  // of the accumulators of each output
  // `reductions`, `recomputed` and `sums` are offsets in the memory of a worker, which has `worker`
  // bytes and begins with slots (the carries from step to step). The others are offsets in the
  // whole scratch, which has `bytes` bytes.
  std::int64_t reductions = 0, recomputed = 0, worker = 0;
  offsets sums{}, item_sums{};
  std::int64_t carries = 0, ready = 0, blocks = 0, bytes = 0;
  offsets totals{};
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// How steps are processed.
struct step_plan {
  detail::lane_layout lanes{};       ///< layout of lanes in the arrays
  extents shape{0, 0, 0, 0};         ///< after merging axes
  std::int64_t steps_per_carry = 1;  ///< steps processed per load of the carry
  recurrence::lookahead ahead{};     ///< prefetch distance; all zero: left to hardware
  bool descending = false;           // most bytes are read towards lower addresses

  /// The plan of the recomputation: the same steps in the opposite direction, from memory to cache.
  [[nodiscard]] step_plan turned() const {
    step_plan back = *this;
    back.lanes.reversed = lanes.along == recurrence::lane_axis::time && !lanes.reversed;
    back.descending = false;
    // With such a distance, the adjoint has already prefetched the whole interval.
    const bool there = ahead.time >= memory::checkpoint_interval;
    if (lanes.along == recurrence::lane_axis::time || there) back.ahead = {};
    return back;
  }
};

/// The plan of the tiled backend. describe() returns it.
struct tile_plan : step_plan {
  bool time_split = false;      ///< tiles may be reduced to maps before their carry is known
  std::int64_t tile_steps = 1;  ///< steps per tile
  std::int64_t tiles = 0;       ///< tiles along time
  std::int64_t strip = 1;       ///< channels per work item
  std::int64_t strips = 0;
  std::int64_t group_span = 1;  ///< groups and batch rows per work item
  std::int64_t batch_span = 1;
  std::int64_t items = 0;  ///< work items: strips of some batch rows
  std::int64_t tasks = 0;  ///< units that workers claim: work items, or tiles of work items
  int threads = 1;
  bool streaming = false;            ///< non-temporal stores
  std::int64_t workspace_bytes = 0;  ///< allocated per call, unless it fits the stack buffer

  // Private to the backend.
  bool hands_on = false;       // work items pass carries and sums from tile to tile
  bool items_whole = false;    // a worker processes all tiles of a work item in order
  bool in_blocks = false;      // no task waits for another, so each worker begins with its block
  bool rows_together = false;  // each tile is processed for all rows before the next tile
  std::int64_t slots_per_row = 0;
  std::array<sum_plan, most_outputs> sums{};
  std::int64_t slot_bytes = 0, reduction_bytes = 0, carry_bytes = 0;
  std::int64_t alignment = 64;             // of the scratch and of all its parts
  detail::recompute_scratch recomputed{};  // per worker
  detail::scratch_layout scratch{};

  /// Number of work items that are in progress at the same time: all, or one per worker.
  [[nodiscard]] std::int64_t open_items() const { return items_whole ? threads : items; }
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// Bytes of scratch per pack of lanes. A slot is the carry from step to step with running sums, a
/// reduction the map of a tile, and a carry the state between two tiles. kernel_table_of asserts
/// that its types have these sizes.
struct pack_bytes {
  std::int64_t lanes, slot, reduction, carry;

  /// A pack of channels, a pack of steps of one channel (with four times as many lanes), or one
  /// element.
  constexpr pack_bytes(const recurrence_sizes& p, const lane_layout& layout)
      : lanes(layout.single ? 1 : p.pack_lanes),
        slot(p.carried_bytes * lanes),
        reduction((2 * (p.carry_map_bytes - p.carry_bytes) + p.compute_bytes) * lanes),
        carry(p.carry_bytes * lanes) {
    if (layout.single) {
      reduction = p.carry_map_bytes;
    } else if (layout.along == recurrence::lane_axis::time) {
      lanes = time_lanes_of(p);
      slot = p.sums_bytes > 0 ? 64 + p.sums_bytes * lanes : p.carried_bytes;
      reduction = p.carry_map_bytes;
      carry = p.carry_bytes;
    }
  }
  static constexpr std::int64_t time_lanes_of(const recurrence_sizes& p) {
    return p.one_by_one ? 1 : 4 * p.pack_lanes;
  }
};

/// The part of the problem that belongs to a work item: some groups, batch rows and channels, with
/// all steps.
inline region item_box(const tile_plan& plan, std::int64_t item) {
  if (plan.items == 1) return {{0, 0, 0, 0}, plan.shape};
  const std::int64_t strip = item % plan.strips;
  const std::int64_t batches = ceil_div(plan.shape.batch, plan.batch_span);
  const std::int64_t batch = item / plan.strips % batches;
  const std::int64_t group = item / plan.strips / batches;
  region box;
  box.begin = {batch * plan.batch_span, 0, strip * plan.strip, group * plan.group_span};
  box.end = {std::min(box.begin.batch + plan.batch_span, plan.shape.batch), plan.shape.time,
             std::min(box.begin.channel + plan.strip, plan.shape.channel),
             std::min(box.begin.group + plan.group_span, plan.shape.group)};
  return box;
}

/// The scratch layout of a plan that is otherwise complete.
inline scratch_layout lay_out_scratch(const tile_plan& plan) {
  const auto lines = [&](std::int64_t count, std::int64_t bytes) {
    return align_up(clipped_product(count, bytes, most_bytes), plan.alignment);
  };
  const std::int64_t slots =
      plan.slots_per_row * (plan.rows_together ? plan.group_span * plan.batch_span : 1);
  scratch_layout s;
  s.reductions = lines(slots, plan.slot_bytes);
  s.recomputed = s.reductions + (plan.time_split ? lines(slots, plan.reduction_bytes) : 0);
  for (int i = 0; i < most_outputs; ++i) {
    s.sums[i] = s.recomputed;
    s.recomputed += lines(plan.sums[i].elements, plan.sums[i].wide_bytes);
  }
  s.worker = s.recomputed + lines(1, plan.recomputed.bytes);
  // There is a page between the memory of two workers. After lines that one worker writes, hardware
  // prefetches the next lines of the page. It must not take these from the cache of another worker.
  if (plan.threads > 1) s.worker += lines(1, tile_policy::page_bytes);
  s.carries = clipped_product(s.worker, plan.threads, most_bytes);
  s.bytes = s.ready = s.carries;
  if (plan.hands_on) {
    s.ready += lines(clipped_product(plan.open_items(), slots, most_bytes), plan.carry_bytes);
    s.bytes = s.ready + lines(2 * plan.open_items(), 8);
    for (int i = 0; i < most_outputs; ++i) {
      s.item_sums[i] = s.bytes;
      if (!plan.sums[i].time_kept)
        s.bytes += lines(clipped_product(plan.open_items(), plan.sums[i].elements, most_bytes),
                         plan.sums[i].wide_bytes);
    }
  }
  s.blocks = s.bytes;
  if (plan.in_blocks) s.bytes += lines(plan.threads, 8);
  for (int i = 0; i < most_outputs; ++i) {
    s.totals[i] = s.bytes;
    s.bytes += lines(plan.sums[i].total_elements, plan.sums[i].wide_bytes);
  }
  return s;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// The plan as text, one line per decision.
inline std::string to_string(const tile_plan& plan) {
  using detail::text;
  text all("shape       ", plan.shape);
  append(all, plan.lanes.along == recurrence::lane_axis::time
                  ? "\nlanes       consecutive steps (log-step scan in registers)"
                  : "\nlanes       channels (time processed in order)");
  append(all, plan.time_split
                  ? text("\ntime        split into ", plan.tiles, " tiles of ", plan.tile_steps)
                  : text("\ntime        whole, ", plan.shape.time));
  append(all, text(" steps\nwork items  ", plan.items, " of ", plan.batch_span, " x ", plan.strip,
                   " (rows x channels)"));
  append(all, text("\nthreads     ", plan.threads));
  append(all, plan.streaming ? "\nstores      non-temporal" : "\nstores      plain");
  append(all, plan.ahead.time > 0 ? text("\nprefetch    ", plan.ahead.time, " steps ahead")
                                  : text("\nprefetch    hardware"));
  append(all, text("\nworkspace   ", plan.workspace_bytes, " bytes\n"));
  return all.c_str();
}

}  // namespace scanrec::inline SCANREC_ABI
