// SPDX-License-Identifier: BSD-3-Clause
// The decisions of the tiled backend in order: the axis of the lanes, the constraints of sums,
// strips of channels, the split of time, rows per work item, and threads.
//
// Decisions that can change the bits of results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <scanrec/detail/cpu/choose_width.hpp>
#include <scanrec/detail/cpu/memory_traffic.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/tile_policy.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

// ---- the axis of the lanes ----------------------------------------------------------------------

/// The axis along which most bytes are contiguous, with two exceptions. It is the channel axis if
/// the steps do not fill a pack of steps, and otherwise time if there is one channel.
inline recurrence::lane_axis choose_axis(const problem& p) {
  using recurrence::lane_axis;
  if (p.shape.time < pack_bytes::time_lanes_of(p)) return lane_axis::channel;
  std::int64_t channel = 0, time = 0;
  for (const array_use& array : p) {
    if (!array.data || !array.sequence) continue;
    if (p.shape.channel > 1 && std::abs(array.strides.channel) == 1) channel += array.element_bytes;
    if (std::abs(array.strides.time) == 1) time += array.element_bytes;
  }
  if (p.shape.channel == 1) return lane_axis::time;
  return time > channel ? lane_axis::time : lane_axis::channel;
}

/// Chooses the axis of the lanes. If it is time, finds whether most bytes have descending addresses
/// (`reversed`). `whole` means that no array needs staging (a copy with contiguous lanes, see
/// stage.hpp).
inline lane_layout choose_layout(const problem& p) {
  lane_layout layout;
  if (!p.one_by_one) layout.along = choose_axis(p);
  const auto read_or_stored = [](const array_use& array) {
    return array.data != nullptr && array.sequence && !summed(array);
  };
  if (layout.along == recurrence::lane_axis::time) {
    std::int64_t ascending = 0;
    for (const array_use& array : p)
      if (read_or_stored(array) && std::abs(array.strides.time) == 1)
        ascending += array.strides.time * array.element_bytes;
    layout.reversed = ascending < 0;
  }
  layout.whole = true;
  for (const array_use& array : p) {
    if (!read_or_stored(array)) continue;
    const std::int64_t stride = layout.stride_of(array.strides);
    layout.whole =
        layout.whole && (stride == layout.unit() || (stride == 0 && array.use == access::read));
  }
  // States that are small vectors are processed in packs if there are packs for them, enough
  // channels to fill one, and no array needs staging. Otherwise these states (and the elements of
  // operator scans) are processed one at a time, with any stride.
  if (p.one_by_one) {
    layout.single = p.pack_lanes == 1 || p.shape.channel < p.pack_lanes || !layout.whole;
    layout.whole = true;
  }
  return layout;
}

// ---- constraints of sums ------------------------------------------------------------------------

/// A sum that does not add over time keeps the time axis: it has one value per step. It needs all
/// rows over which it adds in one work item, and if it adds over channels, all channels in one
/// strip. Work items then share no accumulator of length T. If a work item processes its rows one
/// after another, its accumulators have no row axis (batch or group), so they cannot separate rows.
/// So if a sum keeps one row axis and adds over the other, such a work item may contain only one
/// index of the kept axis.
struct demands_of_sums {
  bool any = false;                                     // whether there are sums
  bool time_kept = false;                               // whether a sum keeps the time axis
  bool channel_whole = false;                           // a sum keeps time, adds over channels
  bool batch_together = false, group_together = false;  // a sum keeps time, adds over this axis
  bool batch_can_span = true, group_can_span = true;    // a work item may span this axis
  bool crosses_rows = false;                            // whether a sum adds over rows
  bool crosses_channels = false;                        // whether a sum adds over channels
};
inline demands_of_sums demands_of(const problem& p) {
  demands_of_sums d;
  for (const array_use& array : p) {
    if (!summed(array)) continue;
    d.any = true;
    const bool over_batch = broadcast_along(array, axis::batch);
    const bool over_group = broadcast_along(array, axis::group);
    d.crosses_rows |= over_batch || over_group;
    d.crosses_channels |= broadcast_along(array, axis::channel);
    if (over_batch && !over_group) d.group_can_span = false;
    if (over_group && !over_batch) d.batch_can_span = false;
    if (!array.sequence || p.shape.time <= 1 || broadcast_along(array, axis::time)) continue;
    d.time_kept = true;
    d.channel_whole |= broadcast_along(array, axis::channel);
    d.batch_together |= over_batch;
    d.group_together |= over_group;
  }
  return d;
}

/// Approximate number of elements of a work item that combines short rows. It is so small that the
/// threads of a large call finish at about the same time.
inline std::int64_t elements_of_item(const problem& p) {
  return std::clamp(element_count(p.shape) / (4 * tile_policy::enough_packs),
                    tile_policy::item_elements / 4, tile_policy::item_elements);
}

// ---- strips of channels -------------------------------------------------------------------------

/// With lanes along channels, a strip is the part of a row whose state fits in L1. With lanes along
/// time, it is one channel, or several that have few steps. If a sum with one value per step adds
/// over channels, it is the whole row. The widths depend on shape, layout, element types and sums,
/// but not on the number of threads. choose_width then narrows strips for the threads.
struct strip_choice {
  std::int64_t widest = 1;     // channels of a strip
  std::int64_t narrowest = 1;  // a pack (along time: a channel); `widest` for sums over channels
  std::int64_t together = 1;   // rows that a sum needs in one work item
  std::int64_t most = 1;       // number of work items with the narrowest strips
};
inline strip_choice choose_strips(const problem& p, const lane_layout& layout, std::int64_t lanes,
                                  const traffic& moved, const demands_of_sums& sums) {
  using policy = tile_policy;
  const std::int64_t rows = p.shape.group * p.shape.batch, T = p.shape.time;
  const std::int64_t C = std::max<std::int64_t>(p.shape.channel, 1);

  strip_choice chosen;
  if (sums.channel_whole) {
    chosen.widest = C;
  } else if (layout.along == recurrence::lane_axis::time) {
    chosen.widest = elements_of_item(p) / std::max<std::int64_t>(T, 1);
  } else {
    chosen.widest = align_up(policy::strip_bytes / p.compute_bytes, lanes);
    if (p.recomputed_bytes > 0)
      chosen.widest =
          std::min(chosen.widest, policy::recompute_bytes / memory::checkpoint_interval /
                                      (moved.read_per_site + p.recomputed_bytes) / lanes * lanes);
    if (sums.crosses_channels)  // strips of such sums must not depend on the threads
      chosen.widest = std::min(
          chosen.widest,
          std::max(policy::least_strip_bytes / p.compute_bytes,
                   ceil_div(C, ceil_div(policy::enough_packs, std::max<std::int64_t>(rows, 1)))));
    chosen.widest = std::max(chosen.widest / lanes * lanes, lanes);
    chosen.narrowest = lanes;
  }
  chosen.widest = std::clamp<std::int64_t>(chosen.widest, 1, C);
  if (chosen.widest < C)  // strips of about the same width
    chosen.widest = std::min(chosen.widest,
                             round_up(ceil_div(C, ceil_div(C, chosen.widest)), chosen.narrowest));
  chosen.narrowest =
      sums.crosses_channels ? chosen.widest : std::min(chosen.narrowest, chosen.widest);
  chosen.together = std::max<std::int64_t>(sums.batch_together ? p.shape.batch : 1, 1) *
                    std::max<std::int64_t>(sums.group_together ? p.shape.group : 1, 1);
  chosen.most = clipped_product(rows, ceil_div(C, chosen.narrowest), most_bytes) / chosen.together;
  return chosen;
}

// ---- the split of time --------------------------------------------------------------------------

/// Time is split if there are fewer work items than threads that a call of this size can use, and
/// enough elements and steps for several tiles. The number of threads that the caller requests
/// plays no part. With few threads the split costs little, because a thread that has a whole work
/// item reads each tile once.
struct time_choice {
  bool split = false;
  std::int64_t tile_steps = 1;
};
/// `asked` is the number of steps per tile that the caller requests; 0 for none.
inline time_choice choose_tiles(const problem& p, const lane_layout& layout, std::int64_t lanes,
                                const traffic& moved, const demands_of_sums& sums,
                                const strip_choice& strips, std::int64_t asked) {
  using policy = tile_policy;
  const std::int64_t steps = std::max<std::int64_t>(p.shape.time, 1);
  const bool along_time = layout.along == recurrence::lane_axis::time;
  // If states are recomputed, tiles consist of whole checkpoint intervals. Otherwise a tile could
  // read inputs again after another tile has overwritten them with gradients.
  const std::int64_t grain = p.recomputed_bytes > 0 ? memory::checkpoint_interval
                             : along_time           ? lanes
                                                    : 8;
  asked = std::min(asked, steps);
  if (p.recomputed_bytes > 0) asked = std::min(round_up(asked, memory::checkpoint_interval), steps);

  const std::int64_t elements = element_count(p.shape);
  const std::int64_t width = clipped_product(strips.widest, strips.together, most_bytes);
  const std::int64_t fitting = std::min(
      policy::tile_bytes / std::max<std::int64_t>(1, moved.read_per_site), policy::thread_elements);
  std::int64_t of_split =
      asked > 0 ? asked : std::max(policy::least_tile_steps, fitting / width / grain * grain);
  const std::int64_t wanted = std::min(policy::enough_packs, elements / policy::elements_per_pack);
  const bool enough = asked > 0
                          ? p.shape.time > of_split
                          : p.shape.time >= 2 * of_split && elements >= 4 * policy::thread_elements;

  time_choice chosen;
  chosen.split = enough && strips.most < (asked > 0 ? policy::enough_packs : wanted);
  std::int64_t tiles = 1;
  if (chosen.split) {
    // The total number of tiles is about a multiple of the number of threads that the call can use,
    // so that 2, 4, ... threads get the same number of tiles each.
    const std::int64_t items =
        clipped_product(p.shape.group * p.shape.batch / strips.together,
                        ceil_div(p.shape.channel, strips.widest), most_bytes);
    tiles = round_up(clipped_product(items, ceil_div(steps, of_split), most_bytes),
                     std::clamp<std::int64_t>(elements / policy::thread_elements, 1,
                                              policy::enough_packs)) /
            std::max<std::int64_t>(items, 1);
  } else if (steps >= policy::least_steps_in_turns && elements >= 2 * policy::thread_elements &&
             (!along_time || width == 1)) {
    // In a large call, workers may take turns at the tiles of a work item, so it has a few tiles.
    // With lanes along time, a work item of several sequences has one tile.
    tiles = std::clamp<std::int64_t>(
        clipped_product(steps, width, most_bytes) / elements_of_item(p) * 4, 1, policy::most_turns);
  }
  if (asked > 0) {
    chosen.tile_steps = chosen.split ? of_split : asked;
  } else if (sums.time_kept && !chosen.split) {
    chosen.tile_steps = policy::sum_steps;
  } else {  // tiles of about the same length; a coarse grain must not leave too few tiles
    const std::int64_t least = ceil_div(steps, tiles), longer = round_up(least, grain);
    const bool too_few = 5 * ceil_div(steps, longer) < 4 * tiles;
    chosen.tile_steps = too_few ? std::max(longer - grain, grain) : longer;
  }
  chosen.tile_steps =
      along_time ? align_up(chosen.tile_steps, lanes) : std::min(chosen.tile_steps, steps);
  chosen.split = chosen.split && chosen.tile_steps < steps;
  return chosen;
}

// ---- rows per work item -------------------------------------------------------------------------

/// Batch rows and groups per work item. If a sum keeps the time axis, a work item contains the rows
/// over which the sum adds. Otherwise, if time is not split, short rows are combined. With very
/// many strips, rows that share a sum are then combined too, so that no totals are needed.
struct row_choice {
  std::int64_t batches = 1, groups = 1;
};
inline row_choice choose_rows(const problem& p, const demands_of_sums& sums,
                              const time_choice& time, std::int64_t strip) {
  row_choice chosen;
  if (sums.batch_together) chosen.batches = p.shape.batch;
  if (sums.group_together) chosen.groups = p.shape.group;
  if (!time.split && !sums.time_kept) {
    const std::int64_t enough =
        elements_of_item(p) / std::max<std::int64_t>(1, p.shape.time * strip);
    const bool hold_all =
        ceil_div(p.shape.channel, strip) >= 4 * tile_policy::enough_packs && sums.crosses_rows;
    if (sums.batch_can_span) chosen.batches = hold_all ? p.shape.batch : enough;
    if (sums.group_can_span && (hold_all || chosen.batches >= p.shape.batch))
      chosen.groups =
          hold_all ? p.shape.group : ceil_div(enough, std::max<std::int64_t>(1, p.shape.batch));
  }
  chosen.batches = std::max<std::int64_t>(1, std::min(chosen.batches, p.shape.batch));
  chosen.groups = std::max<std::int64_t>(1, std::min(chosen.groups, p.shape.group));
  return chosen;
}

// ---- the plan -----------------------------------------------------------------------------------

/// Plans the sums of a problem whose work items are known.
inline void plan_sums(const problem& p, tile_plan& plan) {
  int output = 0;
  for (const array_use& array : p) {
    if (array.use == access::read) continue;
    sum_plan& sum = plan.sums[output++];
    if (!summed(array)) continue;
    const auto kept = [&](axis a) { return !broadcast_along(array, a); };
    sum.active = true;
    sum.wide_bytes = array.wide_bytes;
    sum.time_kept = array.sequence && plan.shape.time > 1 && kept(axis::time);
    sum.row_scope = !plan.rows_together && kept(axis::batch) && kept(axis::group);
    sum.complete = plan.items > 0 && (kept(axis::channel) || plan.strips == 1) &&
                   (kept(axis::batch) || plan.batch_span >= plan.shape.batch) &&
                   (kept(axis::group) || plan.group_span >= plan.shape.group);
    const bool together = plan.rows_together;
    const extents scope{together ? plan.batch_span : 1, sum.time_kept ? plan.tile_steps : 1,
                        plan.strip, together ? plan.group_span : 1};
    sum.elements = dense_sums(array, scope, sum.strides, plan.lanes.along);
    const extents all{plan.shape.batch, 1, plan.shape.channel, plan.shape.group};
    if (!sum.complete)
      sum.total_elements = dense_sums(array, all, sum.total_strides, plan.lanes.along);
  }
}

/// Whether sums of several work items are added to totals, in the order of work items.
inline bool sums_in_turns(const tile_plan& plan) {
  return std::any_of(plan.sums.begin(), plan.sums.end(),
                     [](const sum_plan& sum) { return sum.active && !sum.complete; });
}

/// Makes the plan. `threads`, `tile_steps` and `stream_bytes` are the caller's choices; a 0 leaves
/// the choice to the policy.
inline tile_plan make_tile_plan(const problem& p, int threads, std::int64_t tile_steps,
                                std::int64_t stream_bytes) {
  using policy = tile_policy;
  tile_plan plan;
  plan.shape = p.shape;
  plan.lanes = choose_layout(p);
  const pack_bytes pack(p, plan.lanes);
  const traffic moved = traffic_of(p);
  const demands_of_sums sums = demands_of(p);
  plan.rows_together = sums.time_kept;

  const strip_choice strips = choose_strips(p, plan.lanes, pack.lanes, moved, sums);
  const time_choice time = choose_tiles(p, plan.lanes, pack.lanes, moved, sums, strips, tile_steps);
  plan.time_split = time.split;
  plan.tile_steps = time.tile_steps;
  plan.tiles = std::max<std::int64_t>(1, ceil_div(p.shape.time, plan.tile_steps));
  const row_choice rows = choose_rows(p, sums, time, strips.widest);
  plan.batch_span = rows.batches;
  plan.group_span = rows.groups;

  const std::int64_t rows_of_items =
      ceil_div(p.shape.batch, plan.batch_span) * ceil_div(p.shape.group, plan.group_span);
  const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
  const auto set_width = [&](const width_choice& into) {
    plan.strip = into.strip;
    plan.strips = ceil_div(p.shape.channel, plan.strip);
    plan.items = plan.strips * rows_of_items;
    plan.items_whole = into.items_whole;
    plan_sums(p, plan);
  };
  // Workers can share the tiles of a work item only if it has one row, or if a tile of all rows is
  // processed before the next tile.
  plan.hands_on =
      plan.tiles > 1 && (plan.rows_together || (plan.batch_span == 1 && plan.group_span == 1));
  const int useful = threads_for(threads, element_count(p.shape) / policy::thread_elements);
  set_width(choose_width(
      {strips.widest, strips.narrowest, p.shape.channel, along_time ? 1 : pack.lanes,
       along_time ? clipped_product(p.compute_bytes, p.shape.time, most_bytes) : p.compute_bytes,
       along_time || plan.lanes.single
           ? 0
           : std::max(policy::least_piece_bytes, 2 * policy::piece_bytes / useful),
       rows_of_items, plan.hands_on ? plan.tiles : 1, plan.time_split},
      useful));
  plan.tasks = plan.items_whole ? plan.items : plan.items * plan.tiles;
  plan.threads =
      threads > 0 ? useful : static_cast<int>(std::clamp<std::int64_t>(plan.tasks, 1, useful));
  plan.in_blocks = plan.threads > 1 && plan.items_whole && !sums_in_turns(plan);

  const bool cached = moved.bytes <= policy::cache_bytes;
  plan.streaming = moved.bytes >= (stream_bytes > 0 ? stream_bytes : policy::stream_bytes) &&
                   fills_lines(p, plan, pack.lanes);
  plan.descending = 2 * moved.descending > moved.read_per_site;
  plan.ahead.time = cached ? 0 : choose_prefetch(p, plan, pack.lanes, moved);
  plan.steps_per_carry = cached ? policy::steps_in_cache : policy::steps_from_memory;

  plan.slots_per_row = plan.lanes.along == recurrence::lane_axis::time
                           ? plan.strip
                           : ceil_div(plan.strip, pack.lanes);
  plan.slot_bytes = pack.slot;
  plan.reduction_bytes = pack.reduction;
  plan.carry_bytes = pack.carry;
  plan.alignment = p.alignment;
  plan.recomputed = recompute_scratch(p, plan.lanes, plan.strip);
  plan.scratch = lay_out_scratch(plan);
  plan.workspace_bytes = plan.scratch.bytes;
  return plan;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
