// SPDX-License-Identifier: BSD-3-Clause
// The default backend: cache-sized tiles, SIMD lanes, threads, one pass over memory.
//
// Work is cut into units (a strip of channels of some batch rows). Where there are enough units
// each walks its time in order. Where there are few, time is split: a tile is reduced to one map
// when it is first read, the carry folds through the maps from left to right in tile order, and the
// tile is walked while it is still in L2, so that memory sees every array once. Tiles and units are
// claimed in order from one counter; sums over broadcast axes are added up in the same order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

#include <scanrec/backends.hpp>
#include <scanrec/detail/cpu/channel_lanes.hpp>
#include <scanrec/detail/cpu/scratch.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/cpu/time_lanes.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/shared/element_lanes.hpp>
#include <scanrec/detail/shared/sums.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// One call of the tiled backend. Lanes is channel_lanes<R> or time_lanes<R>.
template <class R, template <class> class Lanes>
class tiled_call {
  using walker = Lanes<R>;
  using slot = typename walker::slot;
  using reduction = typename walker::reduction;
  using carry = typename walker::carry;

 public:
  tiled_call(const R& recurrence, const tile_plan& plan, std::byte* memory)
      : recurrence_(recurrence),
        plan_(plan),
        layout_(lay_out_scratch(plan)),
        memory_(memory),
        tasks_(plan.tasks) {
    if (plan.time_split) {
      ready_ = reinterpret_cast<std::atomic<std::int64_t>*>(memory + layout_.ready);
      for (std::int64_t u = 0; u < plan.units; ++u) ::new (&ready_[u]) std::atomic<std::int64_t>(0);
    }
    for_sums(recurrence_, [&](auto& out, const sum_plan& sum, int output) {
      (void)out;
      if (!sum.complete) clear(totals(output), sum.total_elements, sum);
      in_turns_ = in_turns_ || !sum.complete;
    });
  }

  void run(const executor& given) {
    run_on(given, plan_.threads, [this](int worker) { run_worker(worker); });
    tasks_.rethrow();
    for_sums(recurrence_, [&](auto& out, const sum_plan& sum, int output) {
      if (!sum.complete)
        write_sums(out, as_wide(out, totals(output)), sum.total_strides,
                   {{0, 0, 0, 0}, plan_.shape});
    });
  }

 private:
  // One unit at work on one worker.
  struct job {
    R recurrence;         // outputs bound to the worker's accumulators
    region box;           // groups, batch rows and channels of the unit; time of the tile
    std::int64_t worker;  // where this worker's scratch begins
    std::int64_t task;
    std::int64_t unit;
  };

  void run_worker(int worker) {
    tasks_.work_off([&](std::int64_t task) {
      job j{recurrence_, unit_box(plan_, unit_of(task)), worker * layout_.worker, task,
            unit_of(task)};
      if (plan_.time_split)
        walk_tile(j, task / plan_.units);
      else if (plan_.rows_together)
        walk_unit(j);
      else
        walk_rows(j);
      if (plan_.streaming) simd::stream_fence();
    });
  }

  // Tile-major order: the tile that a tile waits for was claimed `units` tasks before it.
  std::int64_t unit_of(std::int64_t task) const {
    return plan_.time_split ? task % plan_.units : task;
  }

  // The rows of a unit one after the other.
  void walk_rows(job& j) {
    const region box = j.box;
    clear_sums(j, false);
    for (std::int64_t g = box.begin.group; g < box.end.group; ++g)
      for (std::int64_t b = box.begin.batch; b < box.end.batch; ++b) {
        j.box.begin.group = g, j.box.end.group = g + 1;
        j.box.begin.batch = b, j.box.end.batch = b + 1;
        walk_unit(j);
      }
    j.box = box;
    finish_sums(j, scope::unit);
  }

  // Time in order, from the first step to the last, for all rows of the box.
  void walk_unit(job& j) {
    clear_sums(j, true);
    bind_sums(j);
    slot* slots = at<slot>(j.worker);
    for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
      walker::begin(r, where, slots + row * plan_.slots_per_row);
    });
    const std::int64_t steps = plan_.shape.time;
    for (std::int64_t t = 0; t < steps; t += plan_.tile_steps) {
      j.box.begin.time = t;
      j.box.end.time = std::min(t + plan_.tile_steps, steps);
      if (plan_.rows_together) bind_sums(j);
      for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
        walk(j, r, where, slots + row * plan_.slots_per_row);
        walker::drain(r, where, slots + row * plan_.slots_per_row);
      });
      finish_sums(j, scope::tile);
    }
    j.box.begin.time = 0;
    j.box.end.time = steps;
    for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
      walker::end(r, where, slots + row * plan_.slots_per_row);
    });
    finish_sums(j, scope::row);
    if (plan_.rows_together) finish_sums(j, scope::unit);
  }

  // Walks a block, whose states may have to be computed anew. Sums of more steps than a lane may
  // add up are drained on the way.
  void walk(const job& j, const R& r, const block& where, slot* slots) const {
    if constexpr (recomputes<R>) {
      const walk_plan back = plan_.turned();
      std::int64_t drained = where.begin;
      for_recomputed(
          r, where, plan_.lent, memory_ + j.worker + layout_.lent,
          [&](const auto& forward, const block& stretch, std::byte* memory) {
            walk_alone<Lanes>(forward, stretch, back, memory);
          },
          [&](const R& lent, const block& part) {
            walker::walk(lent, part, slots, plan_);
            if (part.end - drained < walker::drain_steps) return;
            walker::drain(r, where, slots);
            drained = part.end;
          });
    } else if constexpr (walker::drains_itself || !may_sum<R>) {
      walker::walk(r, where, slots, plan_);
    } else {
      const std::int64_t steps = sums_run(r) ? walker::drain_steps : where.end - where.begin;
      block part = where;
      for (; part.begin < where.end; part.begin = part.end) {
        if (part.begin > where.begin) walker::drain(r, where, slots);
        part.end = std::min(part.begin + steps, where.end);
        walker::walk(r, part, slots, plan_);
      }
    }
  }

  // One tile of a unit whose time is split: reduce, take the carry, hand it on, walk.
  void walk_tile(job& j, std::int64_t tile) {
    j.box.begin.time = tile * plan_.tile_steps;
    j.box.end.time = std::min(j.box.begin.time + plan_.tile_steps, plan_.shape.time);
    clear_sums(j, true);
    clear_sums(j, false);
    bind_sums(j);
    slot* slots = at<slot>(j.worker);
    reduction* reductions = at<reduction>(j.worker + layout_.reductions);
    carry* carries = at<carry>(layout_.carries) +
                     j.unit * plan_.slots_per_row * plan_.group_span * plan_.batch_span;
    const bool is_last = tile + 1 == plan_.tiles;
    using state = decltype(slot::state);

    if (!is_last)
      for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
        walker::reduce(r, where, reductions + row * plan_.slots_per_row, plan_);
      });
    if (tile == 0) {
      for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
        walker::begin(r, where, slots + row * plan_.slots_per_row);
      });
      for_slots(j, [&](auto i) { carries[i] = walker::carry_of(slots[i].state); });
    } else {
      tasks_.await(ready_[j.unit], tile, j.task);
      for_slots(j, [&](auto i) {
        slots[i] = slot{walker::template state_of<state>(carries[i]), {}};
      });
    }
    // Where the state after the tile is not finite only the walk knows what the loop would give.
    bool finite = true;
    if (!is_last) {
      for_slots(j, [&](auto i) {
        finite = finite && walker::template finite_after<state>(reductions[i].all, carries[i]);
      });
      if (finite) {
        for_slots(j, [&](auto i) {
          carries[i] = walker::advance(recurrence_, tile == 0, reductions[i].all, carries[i]);
        });
        ready_[j.unit].store(tile + 1, std::memory_order_release);
      }
    }
    for_rows(j, [&](const R& r, const block& where, std::int64_t row) {
      walk(j, r, where, slots + row * plan_.slots_per_row);
      walker::drain(r, where, slots + row * plan_.slots_per_row);
      if (is_last) walker::end(r, where, slots + row * plan_.slots_per_row);
    });
    if (!finite) {
      for_slots(j, [&](auto i) {
        carries[i] = walker::advance_wild(reductions[i].all, carries[i], slots[i].state);
      });
      ready_[j.unit].store(tile + 1, std::memory_order_release);
    }
    finish_sums(j, scope::tile);
    finish_sums(j, scope::unit);
  }

  // ---- sums over broadcast axes ---------------------------------------------------------------

  enum class scope { tile, row, unit };

  static scope scope_of(const sum_plan& sum) {
    if (sum.time_kept) return scope::tile;
    return sum.row_scope ? scope::row : scope::unit;
  }

  template <class Recurrence, class F>
  void for_sums(Recurrence& r, F f) {
    int output = 0;
    for_outputs(r, [&](auto& out) {
      const sum_plan& sum = plan_.sums[output];
      if (sum.active) f(out, sum, output);
      ++output;
    });
  }

  std::byte* unit_sums(const job& j, int output) const {
    std::int64_t place = j.worker + layout_.sums;
    for (int i = 0; i < output; ++i)
      place += align_up(plan_.sums[i].elements * plan_.sums[i].wide_bytes, plan_.alignment);
    return memory_ + place;
  }
  std::byte* totals(int output) const {
    std::int64_t place = layout_.totals;
    for (int i = 0; i < output; ++i)
      place += align_up(plan_.sums[i].total_elements * plan_.sums[i].wide_bytes, plan_.alignment);
    return memory_ + place;
  }
  template <class S>
  static wide_t<S>* as_wide(const recurrence::output_field<S>&, std::byte* place) {
    return reinterpret_cast<wide_t<S>*>(place);
  }
  static void clear(std::byte* place, std::int64_t elements, const sum_plan& sum) {
    std::fill_n(place, elements * sum.wide_bytes, std::byte{0});
  }

  // Clears the accumulators whose scope begins: a unit's, or those within it.
  void clear_sums(job& j, bool within_unit) {
    for_sums(j.recurrence, [&](auto&, const sum_plan& sum, int output) {
      const bool inner = plan_.rows_together || scope_of(sum) != scope::unit;
      if (inner == within_unit) clear(unit_sums(j, output), sum.elements, sum);
    });
  }
  // Points the outputs at the accumulators of this worker, relative to the box.
  void bind_sums(job& j) {
    for_sums(j.recurrence, [&](auto& out, const sum_plan& sum, int output) {
      out.sums = {as_wide(out, unit_sums(j, output)), -offset_of(j.box.begin, sum.strides),
                  sum.strides};
      if (sum.time_kept) clear(unit_sums(j, output), sum.elements, sum);
    });
  }
  // Hands on the sums whose scope ends here. Totals are added up in task order: a task keeps its
  // turn until its unit (or tile) ends.
  void finish_sums(job& j, scope ending) {
    if (in_turns_ && ending == scope::unit) tasks_.await(turn_, j.task, j.task);
    for_sums(j.recurrence, [&](auto& out, const sum_plan& sum, int output) {
      if (scope_of(sum) != ending) return;
      const auto* sums = as_wide(out, unit_sums(j, output));
      if (sum.complete) {
        write_sums(out, sums, sum.strides, j.box);
        return;
      }
      tasks_.await(turn_, j.task, j.task);
      add_to_totals(out, sums, sum.strides, j.box, as_wide(out, totals(output)), sum.total_strides);
    });
    if (in_turns_ && ending == scope::unit) turn_.store(j.task + 1, std::memory_order_release);
  }

  // ---- places -----------------------------------------------------------------------------------

  // Calls f(index of a slot) for every slot in use; rows lie slots_per_row apart.
  template <class F>
  void for_slots(const job& j, F f) const {
    const extents size = difference(j.box.end, j.box.begin);
    const std::int64_t in_use = plan_.lanes.along == recurrence::lane_axis::time
                                    ? size.channel
                                    : ceil_div(size.channel, walker::lanes);
    for (std::int64_t row = 0; row < size.group * size.batch; ++row)
      for (std::int64_t i = 0; i < in_use; ++i) f(row * plan_.slots_per_row + i);
  }

  // Calls f(recurrence bound to the row, block, index of the row in the box).
  template <class F>
  void for_rows(job& j, F f) {
    const block where{j.box.begin.time, j.box.end.time, j.box.begin.channel,
                      j.box.end.channel - j.box.begin.channel};
    std::int64_t row = 0;
    for (std::int64_t g = j.box.begin.group; g < j.box.end.group; ++g)
      for (std::int64_t b = j.box.begin.batch; b < j.box.end.batch; ++b) {
        f(bound(j.recurrence, g, b), where, row++);
      }
  }

  template <class T>
  T* at(std::int64_t place) const {
    return reinterpret_cast<T*>(memory_ + place);
  }

  R recurrence_;
  const tile_plan& plan_;
  scratch_layout layout_;
  std::byte* memory_;
  std::atomic<std::int64_t>* ready_ = nullptr;  // per unit: tiles whose carry is known
  bool in_turns_ = false;                       // whether any sum goes into totals
  task_queue tasks_;
  std::atomic<std::int64_t> turn_{0};  // the task whose sums go into the totals next
};

inline tile_plan plan_for(const tiled& backend, const problem& p) {
  return make_tile_plan(p, backend.threads, backend.tile_steps, backend.stream_bytes);
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Runs a recurrence, given in scan order.
template <class R>
void run_recurrence(const tiled& backend, R recurrence, const problem& p) {
  const tile_plan plan = detail::plan_for(backend, p);
  detail::for_outputs(recurrence, [&](auto& out) { out.stream = out.stream && plan.streaming; });
  detail::scratch memory(plan.workspace_bytes, plan.alignment);
  using namespace detail;
  if constexpr (R::one_by_one) {
    tiled_call<R, element_lanes>(recurrence, plan, memory.data()).run(backend.executor);
  } else if (plan.lanes.along == recurrence::lane_axis::time) {
    tiled_call<R, time_lanes>(recurrence, plan, memory.data()).run(backend.executor);
  } else {
    tiled_call<R, channel_lanes>(recurrence, plan, memory.data()).run(backend.executor);
  }
}

/// What the tiled backend will do with a problem: path, tiles, threads, workspace.
inline tile_plan describe(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p);
}

/// Bytes the tiled backend allocates for a problem, threads apart; up to 8 KiB come from the stack.
/// Without summed gradients under 1/256 of one (batch, time, channel) array plus a constant per
/// thread. A sum takes its own size in the wide type, per thread and once; one that keeps time also
/// the states of all rows that it is the sum of.
inline std::int64_t workspace_bytes(const tiled& backend, const problem& p) {
  return detail::plan_for(backend, p).workspace_bytes;
}

}  // namespace scanrec::inline SCANREC_ABI
