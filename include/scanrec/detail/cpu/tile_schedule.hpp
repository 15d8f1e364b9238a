// SPDX-License-Identifier: BSD-3-Clause
// The driver of the tiled backend: runs the work items and tiles of a plan in order, for any
// recurrence.
//
// A work item is a strip of channels of some batch rows. If there are enough work items, the steps
// of each are processed in order. If there are few, time is split. A tile, unless it is the last,
// is then reduced to one map per sequence when it is first read. Carries are computed from these
// maps in tile order. The tile is processed while it is still in L2, so that every array is read
// from memory once. A worker that already knows the carry may reduce and process the tile in one
// pass, with the same bits.
//
// Work items that do not wait for others are assigned to workers in blocks. Other tasks are claimed
// in order from one counter. Sums over broadcast axes are added in the order of work items and
// tiles.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include <scanrec/detail/cpu/kernel_table.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// One call of the tiled backend.
class tile_schedule {
 public:
  /// `memory` has plan.workspace_bytes bytes.
  tile_schedule(const kernel_table& kernels, const void* recurrence, const tile_plan& plan,
                std::byte* memory)
      : kernels_(kernels),
        recurrence_(recurrence),
        plan_(plan),
        layout_(plan.scratch),
        memory_(memory),
        tasks_(plan.tasks) {
    if (plan.hands_on) {
      ready_ = reinterpret_cast<std::atomic<std::int64_t>*>(memory + layout_.ready);
      for (std::int64_t i = 0; i < 2 * plan.open_items(); ++i)
        ::new (&ready_[i]) std::atomic<std::int64_t>(0);
    }
    for (int i = 0; i < most_outputs; ++i) {
      const sum_plan& sum = plan.sums[i];
      any_sums_ = any_sums_ || sum.active;
      if (!sum.active || sum.complete) continue;
      clear(totals(i), sum.total_elements, sum);
      in_turns_ = true;
    }
    if (plan.in_blocks) tasks_.share_out(memory + layout_.blocks, plan.threads);
  }

  void run(const executor& given) {
    if (plan_.threads == 1) {  // avoids the cost of a queue in small calls
      std::int64_t none = -1;
      for (std::int64_t task = 0; task < plan_.tasks; ++task) run_task(0, task, none);
    } else {
      run_on(given, plan_.threads, [this](int worker) {
        // If work items are processed from the last to the first, each worker still begins with the
        // block of work items that it would have in the other order.
        tasks_.work_off(
            falls() ? plan_.threads - 1 - worker : worker,
            [&](std::int64_t task, std::int64_t& next) { run_task(worker, task, next); });
      });
      tasks_.rethrow();
    }
    for_sums([&](const sum_plan& sum, int output) {
      if (!sum.complete)
        kernels_.write_sums(recurrence_, output, totals(output), sum.total_strides,
                            {{0, 0, 0, 0}, plan_.shape});
    });
  }

 private:
  // One work item in progress on one worker.
  struct job {
    region box;           // groups, batch rows and channels of the work item; time of the tile
    std::int64_t worker;  // offset of this worker's scratch
    std::int64_t task;
    std::int64_t item;
    std::int64_t open;  // index among the work items in progress, which keep carries and sums
    step_plan run;
    sum_view* sums = nullptr;  // per output; null if no output is a sum
  };

  // Runs a task. May claim another task early, and then stores it in `next`.
  void run_task(int worker, std::int64_t task, std::int64_t& next) {
    job j{item_box(plan_, item_of(task)),
          worker * layout_.worker,
          task,
          item_of(task),
          plan_.items_whole ? worker : item_of(task),
          plan_};
    std::optional<sum_views> sums;
    if (any_sums_) j.sums = sums.emplace().data();
    if (!plan_.items_whole)
      run_tile(j, task / plan_.items, &next);
    else if (plan_.hands_on)
      run_tiles(j);
    else if (plan_.rows_together)
      run_item(j);
    else
      run_rows(j);
    if (plan_.streaming) simd::stream_fence();
  }

  // If tasks are tiles, they are in tile-major order: the previous tile of a work item, for which
  // its next tile may wait, was claimed `items` tasks earlier.
  std::int64_t item_of(std::int64_t task) const {
    if (!plan_.items_whole) return task % plan_.items;
    return falls() ? plan_.items - 1 - task : task;
  }
  // Whether work items are processed from the last to the first. This is the case if tasks are
  // whole work items, and lanes are steps with descending addresses: hardware prefetchers then
  // continue from one sequence to the next. Sums that are added in the order of work items rule it
  // out.
  bool falls() const { return plan_.items_whole && plan_.lanes.reversed && !in_turns_; }

  // The distance between the tiles of two tasks. The pass over the tile of `task`, which is in
  // cache, prefetches the tile of `other`.
  recurrence::lookahead from_to(std::int64_t task, std::int64_t other) const {
    const extents by =
        difference(item_box(plan_, item_of(other)).begin, item_box(plan_, item_of(task)).begin);
    return {by.batch, (other / plan_.items - task / plan_.items) * plan_.tile_steps, by.channel,
            by.group};
  }

  // Processes the rows of a work item one after another.
  void run_rows(job& j) {
    const region box = j.box;
    clear_sums(j, false);
    for (std::int64_t g = box.begin.group; g < box.end.group; ++g)
      for (std::int64_t b = box.begin.batch; b < box.end.batch; ++b) {
        j.box.begin.group = g, j.box.end.group = g + 1;
        j.box.begin.batch = b, j.box.end.batch = b + 1;
        run_item(j);
      }
    j.box = box;
    finish_sums(j, scope::item);
  }

  // Processes all steps in order, for all rows of the box.
  void run_item(job& j) {
    clear_sums(j, true);
    bind_sums(j);
    std::byte* const slots = memory_ + j.worker;
    const std::int64_t row_bytes = plan_.slots_per_row * plan_.slot_bytes;
    for_rows(j, [&](const tile_row& row, std::int64_t i) {
      kernels_.begin(row, slots + i * row_bytes);
    });
    const std::int64_t steps = plan_.shape.time;
    for (std::int64_t t = 0; t < steps; t += plan_.tile_steps) {
      j.box.begin.time = t;
      j.box.end.time = std::min(t + plan_.tile_steps, steps);
      if (plan_.rows_together) bind_sums(j);
      for_rows(j, [&](const tile_row& row, std::int64_t i) {
        kernels_.run(row, slots + i * row_bytes);
      });
      finish_sums(j, scope::tile);
    }
    j.box.begin.time = 0;
    j.box.end.time = steps;
    for_rows(
        j, [&](const tile_row& row, std::int64_t i) { kernels_.end(row, slots + i * row_bytes); });
    finish_sums(j, scope::row);
    if (plan_.rows_together) finish_sums(j, scope::item);
  }

  // Processes all tiles of a work item.
  void run_tiles(job& j) {
    ready_[j.open].store(0, std::memory_order_relaxed);
    ready_[plan_.open_items() + j.open].store(0, std::memory_order_relaxed);
    for (std::int64_t tile = 0; tile < plan_.tiles; ++tile) run_tile(j, tile, nullptr);
  }
  // Processes one tile of a work item. If time is split, it reduces the tile, takes the carry
  // before it, passes on the carry after it, and then runs the tile. If the carry before it is
  // already known, reducing and running may be one pass. If time is not split, or a carry would not
  // be finite, it passes on the carry after the run.
  void run_tile(job& j, std::int64_t tile, std::int64_t* next) {
    j.box.begin.time = tile * plan_.tile_steps;
    j.box.end.time = std::min(j.box.begin.time + plan_.tile_steps, plan_.shape.time);
    clear_sums(j, true);
    clear_sums(j, false);
    bind_sums(j);
    std::byte* const slots = memory_ + j.worker;
    std::byte* const reductions = memory_ + j.worker + layout_.reductions;
    std::byte* const carries =
        memory_ + layout_.carries +
        j.open * plan_.slots_per_row * plan_.group_span * plan_.batch_span * plan_.carry_bytes;
    const std::int64_t slot_row = plan_.slots_per_row * plan_.slot_bytes;
    const std::int64_t reduction_row = plan_.slots_per_row * plan_.reduction_bytes;
    const slots_in_use in_use = slots_of(j);
    std::atomic<std::int64_t>& ready = ready_[j.open];
    const bool is_last = tile + 1 == plan_.tiles, composes = plan_.time_split && !is_last;
    // If threads share the tiles of a work item, its first tile is reduced before it is run, even
    // though its carry is known. The next tile then waits for the reduction only.
    const bool awaited = tile == 0 && next != nullptr && plan_.items < plan_.threads;
    const bool at_once = composes && !awaited && ready.load(std::memory_order_acquire) == tile;

    if (composes && !at_once)
      for_rows(j, [&](const tile_row& row, std::int64_t i) {
        kernels_.reduce(row, reductions + i * reduction_row);
      });
    if (tile == 0) {
      for_rows(j, [&](const tile_row& row, std::int64_t i) {
        kernels_.begin(row, slots + i * slot_row);
      });
      if (composes) kernels_.store_carries(in_use, slots, carries);
    } else {
      tasks_.await(ready, tile, j.task);
      kernels_.take_carries(in_use, carries, slots);
    }
    if (at_once)
      for_rows(j, [&](const tile_row& row, std::int64_t i) {
        kernels_.run_and_reduce(row, slots + i * slot_row, reductions + i * reduction_row);
      });
    const auto hand_on = [&] { ready.store(tile + 1, std::memory_order_release); };
    const bool composed =
        composes && kernels_.advance(recurrence_, tile == 0, in_use, reductions, carries);
    if (composed) hand_on();
    // With lanes along time, shuffles limit the speed of this pass, and its tile is in cache. So it
    // can prefetch the next tile of this worker from memory.
    if (next && composes && !at_once && plan_.streaming &&
        plan_.lanes.along == recurrence::lane_axis::time) {
      *next = tasks_.claim_early(plan_.threads);
      j.run.ahead = *next < 0 ? recurrence::lookahead{} : from_to(j.task, *next);
    }
    for_rows(j, [&](const tile_row& row, std::int64_t i) {
      if (!at_once) kernels_.run(row, slots + i * slot_row);
      if (is_last) kernels_.end(row, slots + i * slot_row);
    });
    if (!is_last && !composed) {
      if (composes)
        kernels_.advance_from_state(in_use, reductions, slots, carries);
      else
        kernels_.store_carries(in_use, slots, carries);
      hand_on();
    }
    finish_sums(j, scope::tile);
    if (any_sums_) finish_item_sums(j, tile);
  }

  // ---- sums over broadcast axes ----------------------------------------------------------------

  enum class scope { tile, row, item };

  static scope scope_of(const sum_plan& sum) {
    if (sum.time_kept) return scope::tile;
    return sum.row_scope ? scope::row : scope::item;
  }

  // Calls f(plan of the sum, output) for every summed output.
  template <class F>
  void for_sums(F f) const {
    if (!any_sums_) return;
    for (int i = 0; i < most_outputs; ++i)
      if (plan_.sums[i].active) f(plan_.sums[i], i);
  }
  std::byte* sums_of_worker(const job& j, int output) const {
    return memory_ + j.worker + layout_.sums[output];
  }
  std::byte* sums_of_item(const job& j, int output) const {
    return memory_ + layout_.item_sums[output] +
           j.open * plan_.sums[output].elements * plan_.sums[output].wide_bytes;
  }
  std::byte* totals(int output) const { return memory_ + layout_.totals[output]; }
  static void clear(std::byte* position, std::int64_t elements, const sum_plan& sum) {
    std::fill_n(position, elements * sum.wide_bytes, std::byte{0});
  }

  // Clears the accumulators whose scope begins: with `within_item` a row or a tile, otherwise a
  // work item. If all rows are processed together, `within_item` clears all accumulators.
  void clear_sums(const job& j, bool within_item) {
    for_sums([&](const sum_plan& sum, int output) {
      const bool inner = plan_.rows_together || scope_of(sum) != scope::item;
      if (inner == within_item) clear(sums_of_worker(j, output), sum.elements, sum);
    });
  }
  // Points the outputs at the accumulators of this worker, relative to the box. Clears those that
  // have one value per step.
  void bind_sums(job& j) {
    for_sums([&](const sum_plan& sum, int output) {
      j.sums[output] = {sums_of_worker(j, output), -offset_of(j.box.begin, sum.strides),
                        sum.strides};
      if (sum.time_kept) clear(sums_of_worker(j, output), sum.elements, sum);
    });
  }
  // Writes the sums with scope `ending` to the gradients, or adds them to totals in the order of
  // work items. A work item keeps its turn until it ends.
  void finish_sums(const job& j, scope ending) {
    if (in_turns_ && ending == scope::item) tasks_.await(turn_, j.item, j.task);
    for_sums([&](const sum_plan& sum, int output) {
      if (scope_of(sum) == ending) finish_sum(j, sum, output, sums_of_worker(j, output));
    });
    if (in_turns_ && ending == scope::item) turn_.store(j.item + 1, std::memory_order_release);
  }
  void finish_sum(const job& j, const sum_plan& sum, int output, const std::byte* sums) {
    if (sum.complete) {
      kernels_.write_sums(recurrence_, output, sums, sum.strides, j.box);
      return;
    }
    tasks_.await(turn_, j.item, j.task);
    kernels_.add_to_totals(recurrence_, output, sums, sum.strides, j.box, totals(output),
                           sum.total_strides);
  }
  // Like finish_sums, for sums of rows and work items that run_tile processes, perhaps on several
  // workers. The sums of their tiles are added in order.
  void finish_item_sums(const job& j, std::int64_t tile) {
    std::atomic<std::int64_t>& added = ready_[plan_.open_items() + j.open];
    tasks_.await(added, tile, j.task);
    const bool is_last = tile + 1 == plan_.tiles;
    if (in_turns_ && is_last) tasks_.await(turn_, j.item, j.task);
    const region own{{0, 0, 0, 0}, difference(j.box.end, j.box.begin)};
    for_sums([&](const sum_plan& sum, int output) {
      if (scope_of(sum) == scope::tile) return;
      std::byte* const sums = sums_of_item(j, output);
      if (tile == 0) clear(sums, sum.elements, sum);
      kernels_.add_to_totals(recurrence_, output, sums_of_worker(j, output), sum.strides, own, sums,
                             sum.strides);
      if (is_last) finish_sum(j, sum, output, sums);
    });
    added.store(tile + 1, std::memory_order_release);
    if (in_turns_ && is_last) turn_.store(j.item + 1, std::memory_order_release);
  }

  // ---- positions -------------------------------------------------------------------------------

  slots_in_use slots_of(const job& j) const {
    const extents size = difference(j.box.end, j.box.begin);
    return {size.group * size.batch,
            plan_.lanes.along == recurrence::lane_axis::time
                ? size.channel
                : ceil_div(size.channel, kernels_.lanes),
            plan_.slots_per_row};
  }

  // Calls f(tile of the row, index of the row in the box).
  template <class F>
  void for_rows(const job& j, F f) const {
    tile_row row{recurrence_,
                 j.run,
                 plan_.recomputed,
                 j.sums,
                 0,
                 0,
                 {j.box.begin.time, j.box.end.time, j.box.begin.channel,
                  j.box.end.channel - j.box.begin.channel},
                 memory_ + j.worker + layout_.recomputed};
    std::int64_t i = 0;
    for (row.group = j.box.begin.group; row.group < j.box.end.group; ++row.group)
      for (row.batch = j.box.begin.batch; row.batch < j.box.end.batch; ++row.batch) f(row, i++);
  }

  const kernel_table& kernels_;
  const void* recurrence_;
  const tile_plan& plan_;
  const scratch_layout& layout_;
  std::byte* memory_;
  // For each open work item, the number of carries that it has passed on. After these counters, for
  // each open work item, the number of tiles whose sums have been added.
  std::atomic<std::int64_t>* ready_ = nullptr;
  bool any_sums_ = false;
  bool in_turns_ = false;  // whether any sum is added to totals
  task_queue tasks_;
  std::atomic<std::int64_t> turn_{0};  // the work item whose sums are added to the totals next
};

}  // namespace scanrec::detail::inline SCANREC_ABI
