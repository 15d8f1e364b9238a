// SPDX-License-Identifier: BSD-3-Clause
// The plan of linear attention. A task is one head of a sequence, several adjacent heads, or a
// block of columns of one head.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/linear_attention_chunk.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/extents.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Multiply-adds per step of a head.
struct attention_costs {
  std::int64_t of_task = 0;    // triangles and gates per key, which every block of columns needs
  std::int64_t of_column = 0;  // products with the state and with the triangles

  template <class V>
  static attention_costs of(const linear_attention_problem<V>& p) {
    constexpr std::int64_t steps = attention_limits::steps;
    const std::int64_t reads = p.queries() + (p.beta.present() ? 1 : 0);
    const std::int64_t gates = p.key_gates ? 20 + 9 * reads : 0;
    return {reads * p.dk * steps * 3 / 4 + gates * p.dk, (reads + 1) * p.dk + reads * steps / 2};
  }
};

/// The tasks of a call, and its workers. Results do not depend on the plan.
struct linear_attention_plan {
  /// Multiply-adds per thread below which another thread costs more than it saves; some 20 us.
  static constexpr std::int64_t thread_work = 1024 * 1024;
  /// Bytes of the states of a task. Rows of adjacent heads share pages, so tasks of several heads
  /// miss the TLB less often. At (1, 2048, 32, 64), tasks of 16 heads take 0.82 to 0.96 of the time
  /// of tasks of one head. At (1, 2048, 16, 128), tasks of 4 heads take 0.94 to 1. Measured with
  /// one thread, AVX2, and 512 KiB of second-level cache.
  static constexpr std::int64_t state_bytes = 256 * 1024;

  int lanes = 1, workers = 1;
  int heads = 1, packs = 1;             // packs: of the columns of a head
  int task_heads = 1, head_groups = 1;  // heads per task, and such groups per sequence
  int blocks = 1;                       // of columns; one for streams and unless task_heads is 1
  std::int64_t tasks = 0;

  template <class V>
  linear_attention_plan(const linear_attention_problem<V>& p, int lanes_of, int threads)
      : lanes(lanes_of), heads(p.heads), packs((p.dv + lanes_of - 1) / lanes_of) {
    const attention_costs cost = attention_costs::of(p);
    const std::int64_t sequences = clipped_product(p.batch, heads);
    const std::int64_t steps = clipped_product(sequences, std::max<std::int64_t>(p.time, 1));
    const std::int64_t work = clipped_product(steps, cost.of_task + cost.of_column * p.dv);
    const int useful = threads_for(threads, work / thread_work);
    // The cost of the busiest thread, per step.
    const auto busiest = [&](std::int64_t of_heads, std::int64_t of_packs) {
      const std::int64_t count = clipped_product(
          clipped_product(p.batch, ceil_div(heads, of_heads)), ceil_div(packs, of_packs));
      return clipped_product(ceil_div(count, useful) * of_heads,
                             cost.of_task + cost.of_column * of_packs * lanes);
    };
    std::int64_t least = busiest(1, packs);
    const std::int64_t state = std::int64_t{packs} * lanes * p.dk * sizeof(V);
    for (std::int64_t n = std::min<std::int64_t>(heads, state_bytes / state); n > 1; --n)
      if (p.stream == nullptr && busiest(n, packs) <= least + least / 16) {
        task_heads = static_cast<int>(n);
        break;
      }
    for (int n = 2; task_heads == 1 && p.stream == nullptr && n <= packs; ++n)
      if (const std::int64_t of = busiest(1, ceil_div(packs, n)); of < least)
        blocks = n, least = of;
    head_groups = static_cast<int>(ceil_div(heads, task_heads));
    tasks = clipped_product(clipped_product(p.batch, head_groups), blocks);
    workers = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, useful));
  }

  [[nodiscard]] int task_packs() const { return static_cast<int>(ceil_div(packs, blocks)); }
  [[nodiscard]] attention_part part(std::int64_t task) const {
    const int block = static_cast<int>(task % blocks);
    const int group = static_cast<int>(task / blocks % head_groups);
    const auto share = [](int i, int of, int n) {
      return static_cast<int>(std::int64_t{n} * i / of);
    };
    const int head = share(group, head_groups, heads), pack = share(block, blocks, packs);
    return {.batch = task / blocks / head_groups,
            .head = head,
            .heads = share(group + 1, head_groups, heads) - head,
            .pack = pack,
            .packs = share(block + 1, blocks, packs) - pack};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
