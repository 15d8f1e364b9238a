// SPDX-License-Identifier: BSD-3-Clause
// Runs the tasks of linear attention.
//
// Chunks are counted from the first step of each sequence, so that a sequence of a packed batch has
// the bits that it has alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/linear_attention_chunk.hpp>
#include <scanrec/detail/cpu/linear_attention_plan.hpp>
#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/executor.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A forward call. The constructor takes memory from the arena, and operator() runs the call.
template <class V, int W>
class linear_attention_run {
 public:
  using plan_type = linear_attention_plan;
  using chunk = linear_attention_chunk<V, W>;

  linear_attention_run(const linear_attention_problem<V>& p, const linear_attention_plan& plan,
                       arena& memory)
      : p_(p),
        plan_(plan),
        rooms_(
            worker_rooms::of<chunk>(p, plan.workers, memory, plan.task_heads, plan.task_packs())) {}

  void operator()(const executor& on) const {
    const bool first = p_.stream != nullptr && p_.stream->begin(W, p_.key_gates, p_.logarithms);
    task_queue tasks(plan_.tasks);
    run_on(on, plan_.workers, [&](int worker) {
      arena room = rooms_.room(worker);
      chunk work(p_, plan_.task_heads, plan_.task_packs(), room);
      tasks.work_off(worker, [&](std::int64_t task) {
        if (p_.stream != nullptr)
          run_stream(work, task, first);
        else
          run(work, task);
      });
    });
    tasks.rethrow();
  }

 private:
  // Continues one head of a stream.
  void run_stream(chunk& work, std::int64_t task, bool first) const {
    const attention_part part = plan_.part(task);
    auto of = p_.stream->at(part.batch, part.head);
    work.resume_stream(of, part.batch, part.head, first);
    for (std::int64_t t = 0; t < p_.time;) {
      if (p_.resets.present() && p_.resets.at(part.batch, t, 0)) work.clear();
      const std::int64_t most = std::min(p_.time, t + chunk::steps - work.count());
      const int n = static_cast<int>(next_reset(p_.resets, part.batch, t, most) - t);
      work.append(t, n, work.count() + n == chunk::steps);
      t += n;
    }
    of.steps = of.gate_steps = work.count(), of.zero_state = work.zero_state();
    if (p_.final_state.present()) work.store_next_state(p_.final_state, part.batch);
  }
  void run(chunk& work, std::int64_t task) const {
    const attention_part part = plan_.part(task);
    const std::int64_t batch = part.batch;
    if (chunk::fits_in_place(p_)) {
      work.begin_in_place(part);
      return work.append(0, static_cast<int>(p_.time), p_.final_state.present());
    }
    work.begin(part);
    for (std::int64_t t = 0; t < p_.time;) {
      if (p_.resets.present() && p_.resets.at(batch, t, 0)) work.clear();
      const std::int64_t interval = p_.states.present() ? p_.interval : p_.time;
      const std::int64_t border = std::min(p_.time, (t / interval + 1) * interval);
      const std::int64_t most = std::min(border, t + chunk::steps);
      const std::int64_t end = next_reset(p_.resets, batch, t, most);
      // The state after these steps is not needed if a sequence ends there, except as final state.
      const bool stored = end == border && p_.states.present() && border % interval == 0;
      const bool last = end == p_.time ? !p_.final_state.present()
                                       : p_.resets.present() && p_.resets.at(batch, end, 0);
      work.append(t, static_cast<int>(end - t), stored || !last);
      if (stored) work.store_states(p_.states, batch * (p_.time / interval) + end / interval - 1);
      t = end;
    }
    if (p_.final_state.present()) work.store_states(p_.final_state, batch);
  }

  const linear_attention_problem<V>& p_;
  const linear_attention_plan& plan_;
  worker_rooms rooms_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
