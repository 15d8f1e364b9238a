// SPDX-License-Identifier: BSD-3-Clause
// The plan of the tiled backend: how a problem is cut into units and tiles, and what that needs.
//
// Every decision that can change a bit depends on shape, layout and element type alone, never on
// the number of threads.
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
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/shared/lane_scans.hpp>
#include <scanrec/detail/shared/recompute.hpp>
#include <scanrec/detail/shared/sums.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI {

/// How one summed gradient is accumulated.
struct sum_plan {
  bool active = false;
  bool time_kept = false;      // one sum per step: complete at the end of every tile
  bool row_scope = false;      // complete at the end of a batch row; else at the end of a unit
  bool complete = false;       // whether that scope holds every term; else it goes into the totals
  scanrec::strides strides{};  // of the accumulators of one scope
  std::int64_t elements = 0;
  std::int64_t wide_bytes = 0;       // per element
  scanrec::strides total_strides{};  // of the totals over all units
  std::int64_t total_elements = 0;
};

/// How steps are walked.
struct walk_plan {
  detail::lane_layout lanes{};       ///< how lanes lie in the arrays
  extents shape{0, 0, 0, 0};         ///< after merging axes that the scan need not tell apart
  std::int64_t steps_per_carry = 1;  ///< steps walked per load of the carried state
  std::int64_t prefetch_steps = 0;   ///< how far ahead lines are prefetched; 0: left to hardware
  bool descending = false;           // most bytes are read towards lower addresses

  /// The same steps the other way, from memory to cache.
  [[nodiscard]] walk_plan turned() const {
    walk_plan back = *this;
    back.lanes.reversed = lanes.along == recurrence::lane_axis::time && !lanes.reversed;
    back.descending = false;
    const bool there = prefetch_steps >= detail::stretch_steps;  // brought by the walk before
    if (lanes.along == recurrence::lane_axis::time || there) back.prefetch_steps = 0;
    return back;
  }
};

/// What the tiled backend will do with a problem; describe() returns it.
struct tile_plan : walk_plan {
  bool time_split = false;      ///< tiles of one sequence are reduced and walked separately
  std::int64_t tile_steps = 1;  ///< steps per tile
  std::int64_t tiles = 0;       ///< tiles along time
  std::int64_t strip = 1;       ///< channels per unit
  std::int64_t strips = 0;
  std::int64_t group_span = 1;  ///< groups and batch rows per unit
  std::int64_t batch_span = 1;
  std::int64_t units = 0;  ///< pieces whose time is walked in order
  std::int64_t tasks = 0;  ///< what workers claim: units, or units * tiles
  int threads = 1;
  bool streaming = false;            ///< non-temporal stores
  std::int64_t workspace_bytes = 0;  ///< allocated per call, unless it fits the stack buffer

  // Private to the backend.
  bool rows_together = false;  // all rows of a unit walk a tile before the next tile
  std::int64_t slots_per_row = 0;
  std::array<sum_plan, most_outputs> sums{};
  std::int64_t slot_bytes = 0, reduction_bytes = 0, carry_bytes = 0;
  std::int64_t alignment = 64;           // of the scratch and of all that lies in it
  detail::recompute_scratch restored{};  // per worker, for states that are recomputed
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
/// The same to a power of two, without a division.
constexpr std::int64_t align_up(std::int64_t a, std::int64_t power) {
  return (a + power - 1) & -power;
}

/// Scratch for one pack of lanes along an axis: what is carried from step to step, the map of many
/// steps in the making, and a state between tiles. In bytes; tile_kernels_of asserts that it has
/// them.
struct pack_bytes {
  std::int64_t lanes, slot, reduction, carry;

  /// A pack of channels, a pack of steps (four times as many, of one channel), or one element.
  constexpr pack_bytes(const recurrence_sizes& p, recurrence::lane_axis along)
      : lanes(p.pack_lanes),
        slot(p.carried_bytes * lanes),
        reduction((p.carry_map_bytes + p.carry_bytes + p.compute_bytes) * lanes),
        carry(p.carry_bytes * lanes) {
    if (p.one_by_one) {
      reduction = p.carry_map_bytes;
    } else if (along == recurrence::lane_axis::time) {
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

/// Along which axis most bytes lie side by side.
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

/// The axis of the lanes, the direction most of them run in, and whether all arrays follow it.
inline lane_layout choose_layout(const problem& p) {
  lane_layout layout;
  if (p.one_by_one) {
    layout.whole = true;
    return layout;
  }
  layout.along = choose_axis(p);
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
  return layout;
}

struct traffic {
  std::int64_t bytes = 0;          // all arrays, each once
  std::int64_t read_per_site = 0;  // per (batch, time, channel), broadcasts left out
  std::int64_t descending = 0;     // bytes per site read towards lower addresses
  bool gaps = false;               // whether rows that are read lie apart
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
    t.gaps = t.gaps || std::abs(array.strides.time) > p.shape.channel;
  }
  return t;
}

/// Plans the sums of a problem whose units are known.
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
    sum.row_scope =
        !plan.rows_together && kept(axis::batch) && kept(axis::group) && !plan.time_split;
    sum.complete = plan.units > 0 && (kept(axis::channel) || plan.strips == 1) &&
                   (sum.time_kept || !plan.time_split) &&
                   (kept(axis::batch) || plan.batch_span >= plan.shape.batch) &&
                   (kept(axis::group) || plan.group_span >= plan.shape.group);
    // Innermost first: the lanes' axis, then the others.
    const bool along_time = plan.lanes.along == recurrence::lane_axis::time;
    const auto lay_out = [&](scanrec::strides& strides, std::int64_t groups, std::int64_t batches,
                             std::int64_t steps, std::int64_t channels) {
      std::int64_t size = 1;
      const auto place = [&](axis a, std::int64_t n) {
        if (n <= 1 || !kept(a)) return;
        along(strides, a) = size;
        size *= n;
      };
      if (along_time) place(axis::time, steps);
      place(axis::channel, channels);
      if (!along_time) place(axis::time, steps);
      place(axis::batch, batches);
      place(axis::group, groups);
      return size;
    };
    sum.elements = lay_out(sum.strides, plan.rows_together ? plan.group_span : 1,
                           plan.rows_together ? plan.batch_span : 1,
                           sum.time_kept ? plan.tile_steps : 1, plan.strip);
    if (!sum.complete)
      sum.total_elements =
          lay_out(sum.total_strides, plan.shape.group, plan.shape.batch, 1, plan.shape.channel);
  }
}

/// The part of the problem that a unit takes: groups, batch rows and channels, all of time.
inline region unit_box(const tile_plan& plan, std::int64_t unit) {
  const std::int64_t strip = unit % plan.strips;
  const std::int64_t batches = ceil_div(plan.shape.batch, plan.batch_span);
  const std::int64_t batch = unit / plan.strips % batches;
  const std::int64_t group = unit / plan.strips / batches;
  region box;
  box.begin = {batch * plan.batch_span, 0, strip * plan.strip, group * plan.group_span};
  box.end = {std::min(box.begin.batch + plan.batch_span, plan.shape.batch), plan.shape.time,
             std::min(box.begin.channel + plan.strip, plan.shape.channel),
             std::min(box.begin.group + plan.group_span, plan.shape.group)};
  return box;
}

/// Where the scratch of a call lies, in bytes from an aligned start.
struct scratch_layout {
  // Within a worker, the slots first; then of all of it.
  std::int64_t reductions = 0, sums = 0, restored = 0, worker = 0;
  std::int64_t carries = 0, ready = 0, totals = 0, bytes = 0;
};
inline scratch_layout lay_out_scratch(const tile_plan& plan) {
  const auto lines = [&](std::int64_t count, std::int64_t bytes) {
    return align_up(clipped_product(count, bytes, most_bytes), plan.alignment);
  };
  const std::int64_t slots =
      plan.slots_per_row * (plan.rows_together ? plan.group_span * plan.batch_span : 1);
  scratch_layout s;
  s.reductions = lines(slots, plan.slot_bytes);
  s.sums = s.reductions + (plan.time_split ? lines(slots, plan.reduction_bytes) : 0);
  s.restored = s.sums;
  for (const sum_plan& sum : plan.sums) s.restored += lines(sum.elements, sum.wide_bytes);
  s.worker = s.restored + lines(1, plan.restored.bytes);
  s.carries = clipped_product(s.worker, plan.threads, most_bytes);
  s.ready = s.carries;
  if (plan.time_split) {
    s.ready += lines(plan.units * slots, plan.carry_bytes);
    s.totals = s.ready + lines(plan.units, 8);
  } else {
    s.totals = s.ready;
  }
  s.bytes = s.totals;
  for (const sum_plan& sum : plan.sums) s.bytes += lines(sum.total_elements, sum.wide_bytes);
  return s;
}

/// `threads`, `tile_steps`, `stream_bytes`: what the caller fixed; 0 leaves it to the policy.
inline tile_plan make_tile_plan(const problem& p, int threads, std::int64_t tile_steps,
                                std::int64_t stream_bytes) {
  using recurrence::lane_axis;
  using policy = tile_policy;
  tile_plan plan;
  plan.shape = p.shape;
  plan.lanes = choose_layout(p);
  const bool along_time = plan.lanes.along == lane_axis::time;
  const pack_bytes pack(p, plan.lanes.along);
  const traffic moved = traffic_of(p);
  const std::int64_t rows = p.shape.group * p.shape.batch;
  const std::int64_t lanes = pack.lanes;
  const std::int64_t T = p.shape.time, C = p.shape.channel;

  // Sums that keep the time axis hold all their rows in one unit and all their channels in one
  // strip: no accumulator of length T crosses units.
  bool time_kept = false, channel_whole = false, batch_together = false, group_together = false;
  bool batch_can_span = true, group_can_span = true, crosses_rows = false;
  for (const array_use& array : p) {
    if (!summed(array)) continue;
    const bool keeps_time = array.sequence && T > 1 && !broadcast_along(array, axis::time);
    time_kept |= keeps_time;
    const bool batch_summed = broadcast_along(array, axis::batch);
    const bool group_summed = broadcast_along(array, axis::group);
    // The accumulators of a unit have no row axis: a sum over one row axis that keeps the other
    // must not meet two rows of the latter.
    crosses_rows |= batch_summed || group_summed;
    if (batch_summed && !group_summed) group_can_span = false;
    if (group_summed && !batch_summed) batch_can_span = false;
    if (keeps_time) {
      channel_whole |= broadcast_along(array, axis::channel);
      batch_together |= batch_summed;
      group_together |= group_summed;
    }
  }
  plan.rows_together = time_kept;

  // Strips. Along channels: whole rows as far as their state stays in L1, narrower ones only for
  // the sake of enough units, a pack at least. Along time: single channels, a few of them when they
  // are short.
  std::int64_t widest =
      round_up(std::max<std::int64_t>(1, policy::strip_bytes / p.compute_bytes), lanes);
  if (p.recomputed_bytes > 0)
    widest = std::clamp(policy::recompute_bytes / stretch_steps /
                            (moved.read_per_site + p.recomputed_bytes) / lanes * lanes,
                        lanes, widest);
  const std::int64_t narrowest = std::min(
      widest,
      round_up(std::max<std::int64_t>(1, policy::least_strip_bytes / p.compute_bytes), lanes));
  std::int64_t finest = 1;  // units there would be in the finest cut worth making
  if (along_time) {
    finest = rows * C;
    plan.strip = std::clamp<std::int64_t>(policy::unit_elements / std::max<std::int64_t>(T, 1), 1,
                                          std::max<std::int64_t>(C, 1));
  } else {
    finest = rows * ceil_div(std::max<std::int64_t>(C, 1), narrowest);
    const std::int64_t wanted = ceil_div(policy::enough_units, std::max<std::int64_t>(rows, 1));
    plan.strip = std::clamp(round_up(ceil_div(C, wanted), lanes), narrowest, widest);
  }
  if (channel_whole) {
    plan.strip = C;
    finest = rows;
  }

  // Time is split where that cut leaves too few units; then whole rows again.
  const std::int64_t row_strip = channel_whole || along_time ? plan.strip : std::min(widest, C);
  const std::int64_t fitting =
      policy::tile_bytes / std::max<std::int64_t>(1, moved.read_per_site * row_strip);
  // Tiles are whole stretches: what one recomputes, another may be writing gradients over.
  const std::int64_t grain = p.recomputed_bytes > 0 ? stretch_steps : 64;
  tile_steps = std::min(tile_steps, std::max<std::int64_t>(T, 1));
  if (p.recomputed_bytes > 0)
    tile_steps = std::min(round_up(tile_steps, stretch_steps), std::max<std::int64_t>(T, 1));
  const std::int64_t split_steps =
      tile_steps > 0 ? tile_steps : std::max(policy::least_tile_steps, fitting / grain * grain);
  if (batch_together) finest /= std::max<std::int64_t>(p.shape.batch, 1);
  if (group_together) finest /= std::max<std::int64_t>(p.shape.group, 1);
  const std::int64_t far_enough = tile_steps > 0 ? split_steps + 1 : 2 * split_steps;
  plan.time_split = finest < policy::enough_units && T >= far_enough;
  if (plan.time_split && !along_time) plan.strip = row_strip;
  plan.strip = std::max<std::int64_t>(1, std::min(plan.strip, C));
  plan.strips = ceil_div(C, plan.strip);
  plan.tile_steps = plan.time_split ? split_steps
                                    : std::min(std::max<std::int64_t>(T, 1),
                                               tile_steps > 0 ? tile_steps : policy::sum_steps);
  if (along_time && !plan.time_split) {
    // A lane of a time-contiguous pack adds one term per pack.
    if (tile_steps == 0 && !time_kept) plan.tile_steps = policy::sum_steps * lanes;
  }
  if (along_time) plan.tile_steps = round_up(plan.tile_steps, lanes);
  plan.tiles = std::max<std::int64_t>(1, ceil_div(T, plan.tile_steps));

  // Rows per unit.
  if (batch_together) plan.batch_span = p.shape.batch;
  if (group_together) plan.group_span = p.shape.group;
  if (!plan.time_split && !time_kept) {
    const std::int64_t enough =
        ceil_div(policy::unit_elements, std::max<std::int64_t>(1, T * plan.strip));
    // With many strips, units may as well hold all the rows that are summed: no totals.
    const bool hold_all = plan.strips >= 64 && crosses_rows;
    if (batch_can_span) plan.batch_span = hold_all ? p.shape.batch : enough;
    if (group_can_span && (hold_all || plan.batch_span >= p.shape.batch))
      plan.group_span =
          hold_all ? p.shape.group : ceil_div(enough, std::max<std::int64_t>(1, p.shape.batch));
  }
  plan.batch_span = std::max<std::int64_t>(1, std::min(plan.batch_span, p.shape.batch));
  plan.group_span = std::max<std::int64_t>(1, std::min(plan.group_span, p.shape.group));
  plan.units = plan.strips * ceil_div(p.shape.batch, plan.batch_span) *
               ceil_div(p.shape.group, plan.group_span);
  plan.tasks = plan.time_split ? plan.units * plan.tiles : plan.units;

  const std::int64_t useful =
      std::min(plan.tasks, element_count(p.shape) / policy::thread_elements);
  plan.threads = threads_for(threads, useful);

  plan.streaming = moved.bytes >= (stream_bytes > 0 ? stream_bytes : policy::stream_bytes);
  const bool cached = moved.bytes <= policy::cache_bytes;
  plan.descending = 2 * moved.descending > moved.read_per_site;
  if (!cached && plan.descending && along_time)
    plan.prefetch_steps = policy::prefetch_packs * lanes;
  if (!cached && !along_time && moved.gaps) {
    plan.prefetch_steps =
        std::max<std::int64_t>(1, policy::prefetch_bytes / (plan.strip * p.compute_bytes));
    // States are recomputed against the direction of the walk. So the walk asks for all of the
    // next stretch, if it is small; else each asks for what is just ahead of it.
    const std::int64_t stretch_bytes = stretch_steps * moved.read_per_site * plan.strip;
    if (p.recomputed_bytes > 0 && stretch_bytes <= policy::prefetch_stretch_bytes)
      plan.prefetch_steps = stretch_steps;
  }
  plan.steps_per_carry = cached ? policy::steps_in_cache : policy::steps_from_memory;

  plan.slots_per_row = along_time ? plan.strip : ceil_div(plan.strip, lanes);
  plan.slot_bytes = pack.slot;
  plan.reduction_bytes = pack.reduction;
  plan.carry_bytes = pack.carry;
  plan.alignment = p.alignment;
  plan.restored = recompute_scratch(p, plan.lanes, plan.strip);
  plan_sums(p, plan);
  plan.workspace_bytes = lay_out_scratch(plan).bytes;
  return plan;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// The plan in words, one line per decision.
inline std::string to_string(const tile_plan& plan) {
  using detail::text;
  text all("shape       ", plan.shape);
  append(all, plan.lanes.along == recurrence::lane_axis::time
                  ? "\nlanes       consecutive steps (log-step scan in registers)"
                  : "\nlanes       channels (time walked in order)");
  append(all, plan.time_split
                  ? text("\ntime        split into ", plan.tiles, " tiles of ", plan.tile_steps)
                  : text("\ntime        whole, ", plan.shape.time));
  append(all, text(" steps\nunits       ", plan.units, " of ", plan.batch_span, " x ", plan.strip,
                   " (rows x channels)"));
  append(all, text("\nthreads     ", plan.threads));
  append(all, plan.streaming ? "\nstores      non-temporal" : "\nstores      plain");
  append(all, plan.prefetch_steps > 0 ? text("\nprefetch    ", plan.prefetch_steps, " steps ahead")
                                      : text("\nprefetch    hardware"));
  append(all, text("\nworkspace   ", plan.workspace_bytes, " bytes\n"));
  return all.c_str();
}

}  // namespace scanrec::inline SCANREC_ABI
