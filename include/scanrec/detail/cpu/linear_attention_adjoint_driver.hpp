// SPDX-License-Identifier: BSD-3-Clause
// Runs the tasks of the adjoint of linear attention.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <scanrec/detail/cpu/attention_head_memory.hpp>
#include <scanrec/detail/cpu/linear_attention_adjoint.hpp>
#include <scanrec/detail/cpu/linear_attention_adjoint_plan.hpp>
#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/executor.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// An adjoint call. Heads that share keys or queries add their gradients in order.
template <class V, int W>
class linear_attention_vjp_run {
 public:
  using plan_type = linear_attention_vjp_plan;
  using problem_type = linear_attention_vjp_problem<V>;
  using adjoint = linear_attention_adjoint<V, W>;
  using head_memory = attention_head_memory<V, W>;

  linear_attention_vjp_run(const problem_type& p, const plan_type& plan, arena& memory)
      : p_(p),
        plan_(plan),
        recomputed_(p),
        q_sums_(sums_of(p.q_grad, p.query_heads, memory)),
        k_sums_(sums_of(p.k_grad, p.key_heads, memory)),
        counts_(memory.take<task_queue::counter>(counters())),
        head_rooms_(worker_rooms::of<head_memory>(
            p, plan.divides_heads() ? p.batch * p.heads : plan.workers, memory, plan)),
        worker_rooms_(worker_rooms::of<adjoint>(p, plan.workers, memory, recomputed_, plan)) {}

  void operator()(const executor& on) const {
    for (std::int64_t i = 0; i < counters(); ++i) ::new (&counts_[i]) task_queue::counter(0);
    task_queue tasks(plan_.tasks);
    run_on(on, plan_.workers, [&](int worker) {
      arena room = worker_rooms_.room(worker);
      adjoint work(p_, recomputed_, plan_, room);
      tasks.work_off(worker, [&](std::int64_t i) {
        const plan_type::task task = plan_.at(i);
        switch (task.computes) {
          case plan_type::gradients::all:
            return run_head(work, task, tasks, i, worker);
          case plan_type::gradients::of_columns:
            return run_columns(work, task, tasks, i);
          case plan_type::gradients::sums:
            return run_sums(work, task, tasks, i);
        }
      });
    });
    tasks.rethrow();
  }

 private:
  void run_head(adjoint& work, const plan_type::task& task, const task_queue& tasks, std::int64_t i,
                int worker) const {
    const auto q = share(p_.q_grad, q_sums_, p_.query_heads, task.part.head);
    const auto k = share(p_.k_grad, k_sums_, p_.key_heads, task.part.head);
    work.run(
        task.part, memory(worker), q, k,
        [&](std::int64_t t) {
          if (!q.first || !k.first) tasks.await_at_least(counts_[i - 1], p_.time - t, i);
        },
        [&](std::int64_t t) {
          if (counts_ != nullptr) counts_[i].store(p_.time - t, std::memory_order_release);
        });
  }
  // Windows use the same memory of a head. So the sums of the previous window must be complete.
  void run_columns(adjoint& work, const plan_type::task& task, const task_queue& tasks,
                   std::int64_t i) const {
    const std::int64_t head = head_of(task);
    tasks.await_at_least(sums_done(head), plan_.sums_per_head() * windows_done(task), i);
    work.run_columns(task.part, memory(head), task.window);
    ++columns_done(head);
  }
  void run_sums(adjoint& work, const plan_type::task& task, const task_queue& tasks,
                std::int64_t i) const {
    const auto q = share(p_.q_grad, q_sums_, p_.query_heads, task.part.head);
    const auto k = share(p_.k_grad, k_sums_, p_.key_heads, task.part.head);
    const std::int64_t head = head_of(task), windows = windows_done(task) + 1;
    tasks.await_at_least(columns_done(head), plan_.blocks * windows, i);
    work.run_sums(task.part, memory(head), task.step, q, k, [&] {
      if (!q.first || !k.first) tasks.await_at_least(steps_done(head - 1, task), windows, i);
    });
    if (shares()) steps_done(head, task).store(windows, std::memory_order_release);
    ++sums_done(head);
  }

  [[nodiscard]] head_memory memory(std::int64_t room) const {
    arena from = head_rooms_.room(room);
    return head_memory(p_, plan_, from);
  }
  [[nodiscard]] bool shares() const { return p_.query_heads < p_.heads || p_.key_heads < p_.heads; }
  [[nodiscard]] shared_gradient<V> share(const row_array<V>& to, const row_array<V>& sums,
                                         int heads, int head) const {
    const int sharing = std::max(1, p_.heads / heads);
    return {to, sums, head % sharing == 0, (head + 1) % sharing == 0};
  }
  // Memory for the sums of a shared gradient, if it is stored in 16 bits.
  row_array<V> sums_of(const row_array<V>& grad, int heads, arena& memory) const {
    row_array<V> sums;
    if (heads >= p_.heads || !grad.present() || grad.access == &rows_of<V, V>) return sums;
    const extents shape{.batch = p_.batch, .time = p_.time, .channel = p_.dk, .group = heads};
    sums.access = &rows_of<V, V>;
    sums.strides = heads_inside(shape);
    sums.data = reinterpret_cast<std::byte*>(memory.take<V>(
        clipped_product(clipped_product(p_.batch, p_.time), std::int64_t{p_.dk} * heads)));
    return sums;
  }

  // Undivided heads that share gradients count their finished steps. Divided heads count their
  // finished tasks of both kinds. If they share gradients, they also count finished windows for
  // each 32 steps of a window.
  [[nodiscard]] std::int64_t counters() const {
    if (!plan_.divides_heads()) return shares() ? plan_.tasks : 0;
    return p_.batch * p_.heads * (2 + (shares() ? plan_.sums_per_head() : 0));
  }
  using counter = task_queue::counter;
  [[nodiscard]] counter& columns_done(std::int64_t head) const { return counts_[2 * head]; }
  [[nodiscard]] counter& sums_done(std::int64_t head) const { return counts_[2 * head + 1]; }
  [[nodiscard]] counter& steps_done(std::int64_t head, const plan_type::task& task) const {
    const std::int64_t index = task.step % plan_.segments.window_steps() / attention_limits::steps;
    return counts_[2 * p_.batch * p_.heads + head * plan_.sums_per_head() + index];
  }
  [[nodiscard]] std::int64_t head_of(const plan_type::task& task) const {
    return task.part.batch * p_.heads + task.part.head;
  }
  [[nodiscard]] std::int64_t windows_done(const plan_type::task& task) const {
    return plan_.segments.windows() - 1 - task.window;
  }

  const problem_type& p_;
  const plan_type& plan_;
  linear_attention_problem<V> recomputed_;  // problem of the forward pass that recomputes states
  row_array<V> q_sums_, k_sums_;
  task_queue::counter* counts_;
  worker_rooms head_rooms_;  // for each worker, or for each head if heads are divided
  worker_rooms worker_rooms_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
