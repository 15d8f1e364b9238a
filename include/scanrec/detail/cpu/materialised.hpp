// SPDX-License-Identifier: BSD-3-Clause
// Common driver of the backends that materialise maps: they load the maps of all steps into memory,
// scan them, and finish the steps.
//
// A work item is a strip of channels of one or several batch rows. Its maps are loaded into planes
// (map_planes.hpp) line by line. A line is the whole strip of a row, or one channel of it if lanes
// are along time. A scan turns the maps into the state before every step. Every step is then
// processed from this state as in the sequential loop. With many work items, each worker processes
// its own items. With few, all workers share the phases of one item after another. The results are
// the same in both cases.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/kernels_by_channel.hpp>
#include <scanrec/detail/cpu/kernels_by_time.hpp>
#include <scanrec/detail/cpu/map_columns.hpp>
#include <scanrec/detail/cpu/materialised_plan.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The interface of a scan of maps, with defaults for scans that keep all maps of a work item in
/// memory. A call has one `scan`, and one `on<Columns, R>` for every work item in progress.
///
///     shift                       the map of step t goes to slot t + shift
///     slots(steps, shape)         number of slots of maps for a row
///     first_state(steps, shape)   the slot of the state before the first step
///     kept_bytes(problem, shape)  bytes of the working set of one sequence
///     cached_bytes                intended bytes of the working set of a work item
///     lines_of_a_row(problem)     preferred number of lines of a row scanned together
///     rows(problem, strip)        preferred number of batch rows scanned together
///     scratch_bytes(problem, plan)  per work item, in addition to the maps
///
///     on(scan, maps, scratch, rows, steps, plan, recurrence, team)
///       to_load(line, begin, piece)          destination of the maps of the slots from `begin` on
///       loaded(line, begin, end, piece)      called after these maps are loaded
///       run()                                called after all maps are loaded
///       to_finish(line, begin, end, worker)  maps whose slot t holds the state before step t
///
/// A line is one sequence if lanes are along time, otherwise all channels of the strip in one row.
/// Lines are numbered row by row. A slot holds the map of one step for the channels of a line;
/// after the scan, it holds a state.
struct map_scan {
  /// Whether maps are loaded and finished a few steps at a time, through a small buffer.
  static constexpr bool by_blocks = false;
  static constexpr std::int64_t cached_bytes = 256 * 1024;
  static std::int64_t lines_of_a_row(const problem&) { return 1; }
  static std::int64_t rows(const problem&, std::int64_t) { return 1; }
  static std::int64_t scratch_bytes(const problem&, const materialised_plan&) { return 0; }

  /// Maps that are scanned in the memory into which they are loaded.
  template <class R>
  struct in_place {
    using maps = maps_of<R>;
    maps all;
    const materialised_plan& plan;
    maps to_load(std::int64_t line, std::int64_t, int) const {
      return all.from(line * plan.line_elements);
    }
    void loaded(std::int64_t, std::int64_t, std::int64_t, int) const {}
    maps to_finish(std::int64_t line, std::int64_t, std::int64_t, int) const {
      return all.from(line * plan.line_elements);
    }
  };
};

/// One call of a materialising backend.
template <class R, class Columns, class Scan>
class materialised_call {
  using maps = maps_of<R>;

 public:
  materialised_call(const Scan& scan, const R& recurrence, const problem& p,
                    const materialised_plan& plan, const executor& given, std::byte* memory)
      : scan_(scan),
        recurrence_(recurrence),
        shape_(p.shape),
        plan_(plan),
        sums_(p, plan.block()),
        given_(given),
        blocks_(std::max<std::int64_t>(1, ceil_div(p.shape.time, plan.finish_steps))),
        memory_(memory),
        totals_(memory + plan.threads * plan.worker_bytes) {
    std::fill_n(totals_, sums_.total_bytes, std::byte{0});
  }

  void run() {
    task_queue tasks(ceil_div(plan_.items, plan_.items_per_task));
    if (plan_.shape.shared) {
      for (std::int64_t item = 0; item < plan_.items; ++item)
        run_item(item, totals_ + plan_.totals_bytes, 0, plan_.threads, {tasks, item});
    } else {
      run_on(given_, plan_.threads, [&](int worker) {
        tasks.work_off(worker, [&](std::int64_t task) {
          const std::int64_t first = task * plan_.items_per_task;
          const std::int64_t last = std::min(first + plan_.items_per_task, plan_.items);
          for (std::int64_t item = first; item < last; ++item)
            run_item(item, own(worker) + plan_.item_begin, worker, 1, {tasks, task});
        });
      });
      tasks.rethrow();
    }
    sums_.write(recurrence_, shape_, totals_);
  }

 private:
  std::byte* own(int worker) const { return memory_ + worker * plan_.worker_bytes; }

  // The task that a worker is running.
  struct claim {
    const task_queue& tasks;
    std::int64_t task;
  };

  void run_item(std::int64_t number, std::byte* memory, int worker, int workers,
                const claim& own_task) {
    const item u(*this, number);
    const team all{given_, workers};
    const maps at = maps::over(memory, u.plan.plane, any_resets(recurrence_));
    const R first_row = bound(recurrence_, u.group, u.batch);  // `on` keeps a reference
    typename Scan::template on<Columns, R> scan(scan_, at, memory, u.rows, shape_.time, u.plan,
                                                first_row, all);
    if (shape_.time > 0) {
      for (std::int64_t line = 0; line < u.lines; ++line) load(u, line, scan, all);
      scan.run();
    }
    // Lines are finished in blocks, and their sums added to the totals in the order of work items,
    // lines and blocks.
    const std::int64_t blocks = u.lines * blocks_;
    if (workers <= 1) {
      for (std::int64_t i = 0; i < blocks; ++i) finish(u, i, scan, worker, 0, own_task);
    } else {
      task_queue tasks(blocks);
      run_on(given_, workers, [&](int who) {
        tasks.work_off(who, [&](std::int64_t i) { finish(u, i, scan, who, who, {tasks, i}); });
      });
      tasks.rethrow();
    }
  }

  // A work item: its position in the problem, and its own copy of the plan, because the last work
  // item of a row may be narrower.
  struct item {
    std::int64_t number, group, batch, rows, channel;
    std::int64_t lines;
    materialised_plan plan;

    item(const materialised_call& call, std::int64_t n) : number(n), plan(call.plan_) {
      channel = n % plan.strips * plan.strip;
      batch = n / plan.strips % plan.row_spans * plan.rows;
      group = n / plan.strips / plan.row_spans;
      rows = std::min(plan.rows, call.shape_.batch - batch);
      plan.strip = std::min(plan.strip, call.shape_.channel - channel);
      if (!Columns::along_time) {
        plan.line = plan.strip;
        plan.width = round_up(plan.strip, Columns::lanes);
      }
      lines = rows * plan.channel_lines();
    }
    std::int64_t batch_of(std::int64_t line) const { return batch + line / plan.channel_lines(); }
    block steps(std::int64_t line, std::int64_t begin, std::int64_t end) const {
      return {begin, end, channel + line % plan.channel_lines() * plan.line, plan.line};
    }
  };

  template <class On>
  void load(const item& u, std::int64_t line, On& scan, const team& all) {
    const std::int64_t T = shape_.time;
    const R r = bound(recurrence_, u.group, u.batch_of(line));
    const std::int64_t start = scan_.first_state(T, u.plan.shape);
    Columns::begin(r, u.steps(line, 0, T), u.plan, scan.to_load(line, start, 0), start);
    scan.loaded(line, start, start + 1, 0);
    // The map of the last step is not needed: finish() computes the state after this step from the
    // state before it.
    all.split(T - 1, u.plan.block_steps, [&](std::int64_t first, std::int64_t last, int piece) {
      for (std::int64_t begin = first, end; begin < last; begin = end) {
        end = std::min(begin + u.plan.pass_steps, last);
        Columns::load(r, u.steps(line, begin, end), u.plan, T,
                      scan.to_load(line, begin + Scan::shift, piece), Scan::shift);
        scan.loaded(line, begin + Scan::shift, end + Scan::shift, piece);
      }
    });
  }

  // Runs the forward recurrence for a checkpoint interval. The adjoint then reads its states.
  template <class Forward>
  void rerun(const Forward& r, const block& where, const materialised_plan& plan,
             std::byte* memory) const {
    step_plan way;
    way.lanes = plan.lanes;
    way.shape = shape_;
    way.steps_per_carry = tile_policy::steps_in_cache;
    if constexpr (Columns::along_time)
      run_alone<kernels_by_time>(r, where, way.turned(), memory);
    else
      run_alone<kernels_by_channel>(r, where, way.turned(), memory);
  }

  // Finishes block i of a work item. `position` is the index of the worker among those that share
  // the work item.
  template <class On>
  void finish(const item& u, std::int64_t i, On& scan, int worker, int position,
              const claim& own_task) {
    const std::int64_t line = i / blocks_, T = shape_.time;
    const std::int64_t begin = i % blocks_ * u.plan.finish_steps;
    const std::int64_t end = std::min(T, begin + u.plan.finish_steps);
    const std::int64_t b = u.batch_of(line);
    const block whole = u.steps(line, begin, end);
    const auto take_steps = [&](const R& r) {
      if (T == 0) return Columns::pass(r, whole);
      for (std::int64_t t = begin, last; t < end; t = last) {
        last = std::min(t + u.plan.pass_steps, end);
        const auto from = scan.to_finish(line, t, last, position);
        with_states(
            r, u.steps(line, t, last), plan_.recomputed, own(worker) + sums_.block_bytes,
            [&](const auto& forward, const block& interval, std::byte* memory) {
              rerun(forward, interval, u.plan, memory);
            },
            [&](const auto& here, const block& part) {
              Columns::finish(here, part, u.plan, T, from);
            });
      }
    };
    if (!sums_.any) return take_steps(bound(recurrence_, u.group, b));
    const region box{{b, begin, whole.channel, u.group},
                     {b + 1, end, whole.channel + whole.channels, u.group + 1}};
    R summing = recurrence_;
    sums_.bind(summing, box, own(worker));
    take_steps(bound(summing, u.group, b));
    // Turns are counted as if all work items were as large as the first.
    const std::int64_t of_an_item = plan_.rows * plan_.channel_lines() * blocks_;
    own_task.tasks.await(turn_, u.number * of_an_item + i, own_task.task);
    sums_.hand_on(summing, box, own(worker), totals_);
    const bool last = i + 1 == u.lines * blocks_;
    turn_.store(last ? (u.number + 1) * of_an_item : u.number * of_an_item + i + 1,
                std::memory_order_release);
  }

  const Scan& scan_;
  R recurrence_;
  extents shape_;
  const materialised_plan& plan_;
  sums_layout sums_;
  const executor& given_;
  std::int64_t blocks_;  // per line
  std::byte* memory_;
  std::byte* totals_;
  std::atomic<std::int64_t> turn_{0};  // the block whose sums are added to the totals next
};

/// Runs a recurrence, whose arrays are in scan order (problem.hpp), on a materialising backend.
template <class Scan, class Backend, class R>
void run_materialised(const Scan& scan, const Backend& backend, R recurrence, const problem& p) {
  const materialised_plan plan = plan_materialised(scan, p, backend.threads);
  for_outputs(recurrence, [](auto& out) { out.stream = false; });
  scratch memory(p, plan.workspace_bytes, plan.alignment, backend.workspace);
  const auto run_on_columns = [&](auto columns) {
    using Columns = typename decltype(columns)::type;
    materialised_call<R, Columns, Scan>(scan, recurrence, p, plan, backend.executor, memory.data())
        .run();
  };
  if constexpr (!R::one_by_one)
    if (plan.lanes.along == recurrence::lane_axis::time)
      return run_on_columns(std::type_identity<time_columns<recomputed_t<R>>>{});
  run_on_columns(std::type_identity<channel_columns<recomputed_t<R>>>{});
}

}  // namespace scanrec::detail::inline SCANREC_ABI
