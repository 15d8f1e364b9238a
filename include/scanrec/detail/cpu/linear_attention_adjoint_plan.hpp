// SPDX-License-Identifier: BSD-3-Clause
// The plan of the adjoint of linear attention: its segments, and the tasks of a call.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/linear_attention_plan.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/extents.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Costs of the adjoint of a step of a head: of all gradients, or of those that have columns, and
/// of the others, which are sums over columns. The unit is a fifth of the time of a multiply-add of
/// the forward call. Fitted to times of calls with AVX2 and dk = dv = 64 and 128.
struct attention_vjp_costs {
  std::int64_t of_block, of_column;  // gradients that have columns, for a block of these
  std::int64_t sums, all;

  attention_vjp_costs(const attention_costs& forward, std::int64_t columns)
      : of_block(10 * forward.of_task),
        of_column(5 * forward.of_column),
        sums(10 * forward.of_task + 3 * forward.of_column * columns),
        all(10 * forward.of_task + 8 * forward.of_column * columns) {}
};

/// The segments of a sequence, and windows of them. The states before all segments, and before the
/// chunks of one window, are in memory at the same time. No chunk crosses the border of a segment,
/// so bits depend on segments. They do not depend on windows.
struct attention_segments {
  std::int64_t steps = attention_limits::steps;  // per segment, a multiple of 32
  std::int64_t count = 1;                        // per sequence
  std::int64_t window = 1;                       // segments per window

  /// Bytes of the states of a segment. They bound the workspace of a thread to about twice as much.
  static constexpr std::int64_t state_bytes = 1024 * 1024;
  static constexpr std::int64_t least_steps = 256, most_steps = 4096;

  template <class V>
  static attention_segments of(const linear_attention_problem<V>& p) {
    const std::int64_t state = std::int64_t{p.dk} * p.dv * static_cast<std::int64_t>(sizeof(V));
    constexpr std::int64_t chunk = attention_limits::steps;
    attention_segments s;
    s.steps = std::clamp(state_bytes / state * chunk, least_steps, most_steps);
    // Long sequences have about as many segments as segments have chunks.
    while (s.steps < most_steps && s.steps * s.steps < chunk * p.time) s.steps += chunk;
    if (p.states.present()) s.steps = p.interval;
    s.steps = std::min(s.steps, ceil_div(std::max<std::int64_t>(p.time, 1), chunk) * chunk);
    s.count = std::max<std::int64_t>(1, ceil_div(p.time, s.steps));
    return s;
  }
  [[nodiscard]] std::int64_t window_steps() const { return window * steps; }
  [[nodiscard]] std::int64_t windows() const { return ceil_div(count, window); }
};

/// The tasks of an adjoint call, and its workers. Results do not depend on the number of threads.
///
/// A task is a head of a sequence. With fewer heads than threads, heads may be divided. Then each
/// window first has tasks for blocks of columns of each head, and then tasks for the chunks that
/// begin in 32 steps of each head.
struct linear_attention_vjp_plan {
  /// Bytes per thread that windows keep if heads are divided: about as many as for an undivided
  /// head. A window of one segment may have more.
  static constexpr std::int64_t window_bytes = 1024 * 1024;

  enum class gradients { all, of_columns, sums };
  struct task {
    gradients computes = gradients::all;
    attention_part part;
    std::int64_t window = 0;  // unused by `all`
    std::int64_t step = 0;    // the first of the 32 steps of `sums`
  };

  int workers = 1;
  int heads = 1, packs = 1;  // packs: of the columns of a head
  int blocks = 0;            // of the columns of a head; 0: heads are not divided
  std::int64_t batch = 0, tasks = 0;
  attention_segments segments;

  template <class V>
  linear_attention_vjp_plan(const linear_attention_problem<V>& p, int lanes, int threads)
      : heads(p.heads),
        packs((p.dv + lanes - 1) / lanes),
        batch(p.batch),
        tasks(clipped_product(p.batch, p.heads)),
        segments(attention_segments::of(p)) {
    const attention_costs cost = attention_costs::of(p);
    const std::int64_t steps = clipped_product(tasks, 3 * std::max<std::int64_t>(p.time, 1));
    const std::int64_t work = clipped_product(steps, cost.of_task + cost.of_column * p.dv);
    const int useful = threads_for(threads, work / linear_attention_plan::thread_work);
    if (tasks > 0 && tasks < useful && p.time > 0) divide_heads(p, cost, lanes, useful);
    workers = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, useful));
  }

  [[nodiscard]] bool divides_heads() const { return blocks > 0; }
  [[nodiscard]] int task_packs() const {
    return blocks == 0 ? packs : static_cast<int>(ceil_div(packs, blocks));
  }
  // With divided heads: the numbers of tasks per window.
  [[nodiscard]] std::int64_t column_tasks() const { return batch * heads * blocks; }
  [[nodiscard]] std::int64_t sum_tasks() const { return batch * heads * sums_per_head(); }
  [[nodiscard]] std::int64_t sums_per_head() const {
    return segments.window_steps() / attention_limits::steps;
  }
  [[nodiscard]] task at(std::int64_t i) const {
    task t;
    if (blocks == 0) {
      t.part = {.batch = i / heads, .head = static_cast<int>(i % heads), .packs = packs};
      return t;
    }
    const std::int64_t per_window = column_tasks() + sum_tasks();
    t.window = segments.windows() - 1 - i / per_window;
    if (i %= per_window; i < column_tasks()) {
      const std::int64_t block = i % blocks, head = i / blocks;
      const int first = static_cast<int>(packs * block / blocks);
      t.computes = gradients::of_columns;
      t.part = {.batch = head / heads, .head = static_cast<int>(head % heads), .pack = first};
      t.part.packs = static_cast<int>(packs * (block + 1) / blocks) - first;
      return t;
    }
    i -= column_tasks();
    const std::int64_t head = i / sums_per_head();
    t.computes = gradients::sums;
    t.part = {.batch = head / heads, .head = static_cast<int>(head % heads), .packs = packs};
    t.step = t.window * segments.window_steps() + i % sums_per_head() * attention_limits::steps;
    return t;
  }

 private:
  template <class V>
  void divide_heads(const linear_attention_problem<V>& p, const attention_costs& forward, int lanes,
                    int useful) {
    const std::int64_t state = std::int64_t{packs} * lanes * p.dk * sizeof(V);
    const std::int64_t row = p.beta.present() ? std::int64_t{packs} * lanes * sizeof(V) : 0;
    // S and G of chunks, and the rows r and du.
    const std::int64_t bytes = 2 * segments.steps * (state / attention_limits::steps + row);
    segments.window =
        std::clamp<std::int64_t>(useful * window_bytes / (tasks * bytes), 1, segments.count);
    // The cost of the busiest thread, per step.
    const attention_vjp_costs cost(forward, packs * lanes);
    const std::int64_t task_steps = std::min<std::int64_t>(p.time, attention_limits::steps);
    const std::int64_t of_sums = ceil_div(sum_tasks(), useful) * cost.sums * task_steps /
                                 std::min(p.time, segments.window_steps());
    std::int64_t least = cost.all - cost.all / 8;  // smaller gains are lost to waiting
    for (int n = 1; n <= packs; ++n) {
      const std::int64_t columns = ceil_div(packs, n) * lanes;
      const std::int64_t of =
          ceil_div(tasks * n, useful) * (cost.of_block + columns * cost.of_column) + of_sums;
      if (of < least) blocks = n, least = of;
    }
    if (blocks == 0)
      segments.window = 1;
    else
      tasks = (column_tasks() + sum_tasks()) * segments.windows();
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
