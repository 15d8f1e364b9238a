// SPDX-License-Identifier: BSD-3-Clause
// Runs the tasks of a selective scan, and sums gradients over channels and sequences.
//
// A task is one checkpoint interval of one strip, a block of channels. In the order of tasks, all
// strips of an interval come before those of the next interval; the adjoint starts with the last
// interval in time. The states of a task, or their gradients, depend only on the previous interval
// of its strip. The gradients of intervals, and of B and C with a value per step, are sums over
// strips. Each strip adds its share after the strips before it, so the bits do not depend on the
// number of workers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include <scanrec/detail/cpu/row_calls.hpp>
#include <scanrec/detail/cpu/selective_adjoint.hpp>
#include <scanrec/detail/cpu/selective_bc_totals.hpp>
#include <scanrec/detail/cpu/selective_forward.hpp>
#include <scanrec/detail/cpu/selective_plan.hpp>
#include <scanrec/detail/cpu/selective_tile.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/executor.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

using selective_counter = std::atomic<std::int64_t>;
inline void start_counters(selective_counter* counters, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) ::new (&counters[i]) selective_counter(0);
}

/// Runs all tasks: f(worker, task, strip, n) for the n-th interval that each strip processes.
template <class F>
void run_checkpoint_intervals(const selective_plan& plan, const executor& on,
                              selective_counter* done, task_queue& tasks, F f) {
  start_counters(done, plan.strips());
  run_on(on, plan.workers, [&](int worker) {
    tasks.work_off(worker, [&](std::int64_t task) {
      const std::int64_t strip = task % plan.strips(), n = task / plan.strips();
      tasks.await(done[strip], n, task);
      f(worker, task, strip, n);
      done[strip].store(n + 1, std::memory_order_release);
    });
  });
  tasks.rethrow();
}

/// A forward call. The constructor takes memory, and operator() runs the call.
template <class V, int W>
class selective_forward_run {
 public:
  using plan_type = selective_plan;
  using tile = selective_forward<V, W>;
  using state = typename tile::state;

  selective_forward_run(const selective_problem<V>& p, const selective_plan& plan, arena& memory)
      : p_(p),
        plan_(plan),
        states_(memory.take<state>(clipped_product(plan.packs(), p.states))),
        done_(memory.take<selective_counter>(plan.strips())),
        rooms_(worker_rooms::of<tile>(p, plan.workers, memory)) {}

  void operator()(const executor& on) const {
    task_queue tasks(plan_.checkpoint_intervals * plan_.strips());
    run_checkpoint_intervals(
        plan_, on, done_, tasks, [&](int worker, std::int64_t, std::int64_t strip, std::int64_t n) {
          arena room = rooms_.room(worker);
          tile work(p_, room);
          plan_.for_packs(strip, n, [&](const selective_position& at, std::int64_t pack) {
            work.run(at, states_ + pack * p_.states);
          });
        });
  }

 private:
  const selective_problem<V>& p_;
  const selective_plan& plan_;
  state* states_;  // (pack, state)
  selective_counter* done_;
  worker_rooms rooms_;
};

/// An adjoint call. The constructor takes memory, and operator() runs the call.
template <class V, int W>
class selective_vjp_run {
 public:
  using plan_type = selective_plan;
  using tile = selective_adjoint<V, W>;
  using real = typename tile::real;
  using state = typename tile::state;

  selective_vjp_run(const selective_vjp_problem<V>& p, const selective_plan& plan, arena& memory)
      : p_(p),
        plan_(plan),
        grads_(memory.take<state>(clipped_product(plan.packs(), p.states))),
        done_(memory.take<selective_counter>(plan.strips())),
        rooms_(worker_rooms::of<tile>(p, plan.workers, memory)),
        of_b_(p, plan, p.b_grad, p.update, memory),
        of_c_(p, plan, p.c_grad, p.update, memory),
        turns_(memory.take<selective_counter>(plan.group_count * plan.checkpoint_intervals)),
        intervals_(memory.take<double>(
            p.intervals_grad.present() ? clipped_product(plan.group_count, p.time) : 0)),
        a_values_(take_totals(p.a_grad, numbers(), memory)),
        b_(take_totals(p.b_grad.channels, numbers(), memory)),
        c_(take_totals(p.c_grad.channels, numbers(), memory)),
        d_(take_totals(p.d_grad, 1, memory)),
        bias_(take_totals(p.bias_grad, 1, memory)) {
    if (plan.checkpoint_intervals > 1 && !p.checkpoints.present()) {
      before_ = p;
      before_.out = {}, before_.final_state = {};
      const extents kept = memory::checkpoint_extents({.time = p.time});
      before_.checkpoints.strides = {.batch = kept.time * p.channels * p.states,
                                     .time = p.channels * p.states,
                                     .channel = 1,
                                     .group = p.channels};
      before_.checkpoints.data =
          memory.take<V>(clipped_product(p.batch, before_.checkpoints.strides.batch));
      checkpoints_run_.emplace(before_, plan_, memory);
    }
  }

  void operator()(const executor& on) {
    if (checkpoints_run_.has_value()) {
      (*checkpoints_run_)(on);
      p_.checkpoints = before_.checkpoints;
    }
    for (double* const totals : {a_values_, b_, c_})
      if (totals != nullptr) std::fill_n(totals, plan_.packs() * numbers() * W, 0.0);
    for (double* const totals : {d_, bias_})
      if (totals != nullptr) std::fill_n(totals, plan_.packs() * W, 0.0);
    start_counters(turns_, plan_.group_count * plan_.checkpoint_intervals);
    task_queue tasks(plan_.checkpoint_intervals * plan_.strips());
    run_checkpoint_intervals(
        plan_, on, done_, tasks,
        [&](int worker, std::int64_t task, std::int64_t strip, std::int64_t n) {
          arena room = rooms_.room(worker);
          tile work(p_, room);
          run_vjp(work, strip, plan_.checkpoint_intervals - 1 - n);
          add_sums(work, tasks, task, strip, plan_.checkpoint_intervals - 1 - n);
        });
    put_sums(p_.a_grad, a_values_, p_.states), put_sums(p_.b_grad.channels, b_, p_.states);
    put_sums(p_.c_grad.channels, c_, p_.states);
    put_sums(p_.d_grad, d_, 1), put_sums(p_.bias_grad, bias_, 1);
    if (plan_.group_strips == 0)
      for (std::int64_t g = 0; g < plan_.group_count; ++g)
        for (std::int64_t k = 0; k < plan_.checkpoint_intervals; ++k)
          for (const auto* const of : {&of_b_, &of_c_})
            if (of->wanted()) of->put(g, plan_.position(g, 0, k), true);
    put_intervals();
  }

 private:
  [[nodiscard]] std::int64_t numbers() const {  // real numbers of the states of a channel
    return std::int64_t{tile::parts} * p_.states;
  }
  template <class E>
  double* take_totals(const value_array<E>& grad, std::int64_t of, arena& memory) const {
    const std::int64_t count = clipped_product(plan_.packs() * W, of);
    return memory.take<double>(grad.present() ? count : 0);
  }
  void run_vjp(tile& work, std::int64_t strip, std::int64_t k) const {
    work.clear_sums();
    plan_.for_packs(strip, k, [&](const selective_position& at, std::int64_t pack) {
      const auto of = [&](const auto& grad, double* totals, std::int64_t count) {
        return grad.present() ? totals + pack * count * W : nullptr;
      };
      work.run(at, grads_ + pack * p_.states,
               {.a_values = of(p_.a_grad, a_values_, numbers()),
                .b = of(p_.b_grad.channels, b_, numbers()),
                .c = of(p_.c_grad.channels, c_, numbers()),
                .d = of(p_.d_grad, d_, 1),
                .bias = of(p_.bias_grad, bias_, 1)});
    });
  }
  // Waits for the earlier strips of the group, and adds the sums of this strip to the totals. The
  // last strip of a group stores the totals of B and C.
  void add_sums(const tile& work, const task_queue& tasks, std::int64_t task, std::int64_t strip,
                std::int64_t k) const {
    if (!of_b_.wanted() && !of_c_.wanted() && intervals_ == nullptr) return;
    const std::int64_t group = strip / plan_.group_strips, number = strip % plan_.group_strips;
    selective_counter* const turns = turns_ + group * plan_.checkpoint_intervals;
    // The totals reuse the memory of interval k + 2, which must be complete.
    if (number == 0 && k + 2 < plan_.checkpoint_intervals)
      tasks.await(turns[k + 2], plan_.group_strips, task);
    tasks.await(turns[k], number, task);
    const selective_position at = plan_.position(group, 0, k);
    const bool last = number + 1 == plan_.group_strips;
    const auto take = [&](const bc_totals<V>& of, const real* sums) {
      if (!of.wanted()) return;
      of.add(group, at, number == 0, sums);
      if (last) of.put(group, at);
    };
    take(of_b_, work.b_sums()), take(of_c_, work.c_sums());
    for (std::int64_t t = at.begin; intervals_ != nullptr && t < at.end; ++t) {
      double& total = intervals_[group * p_.time + t];
      total = (number == 0 ? 0.0 : total) + work.interval_sums()[t - at.begin];
    }
    turns[k].store(number + 1, std::memory_order_release);
  }
  // Adds up the sums of all sequences, in order. Stores the result in the gradient, or adds it
  // with `update`.
  template <class E>
  void put_sums(const value_array<E>& grad, const double* totals, std::int64_t states) const {
    constexpr int parts = is_complex<E> ? 2 : 1;
    if (!grad.present()) return;
    for (std::int64_t group = 0; group < plan_.groups; ++group)
      for (std::int64_t pack = 0; pack < plan_.group_packs; ++pack) {
        const selective_position at = plan_.position(group, pack, 0);
        for (std::int64_t n = 0; n < states; ++n)
          for (int i = 0; i < at.count; ++i) {
            double total[parts] = {};
            for (std::int64_t b = 0; b < p_.batch; ++b) {
              const std::int64_t of = (b * plan_.groups + group) * plan_.group_packs + pack;
              for (int part = 0; part < parts; ++part)
                total[part] += totals[((of * states + n) * parts + part) * W + i];
            }
            auto* const to = reinterpret_cast<real*>(grad.at(0, at.channel + i, n));
            for (int part = 0; part < parts; ++part)
              to[part] = (p_.update ? to[part] : real(0)) + static_cast<real>(total[part]);
          }
      }
  }
  // Adds up the sums of all groups of channels. Stores the result in the gradient of the intervals,
  // or adds it with `update`.
  void put_intervals() const {
    for (std::int64_t b = 0; intervals_ != nullptr && b < p_.batch; ++b)
      for (std::int64_t t = 0; t < p_.time; ++t) {
        double total = 0;
        for (std::int64_t g = 0; plan_.group_strips > 0 && g < plan_.groups; ++g)
          total += intervals_[(b * plan_.groups + g) * p_.time + t];
        real& to = *p_.intervals_grad.at(b, 0, 0, t);
        to = (p_.update ? to : real(0)) + static_cast<real>(total);
      }
  }

  selective_vjp_problem<V> p_;
  const selective_plan& plan_;
  state* grads_;  // (pack, state)
  selective_counter* done_;
  worker_rooms rooms_;
  bc_totals<V> of_b_, of_c_;
  selective_counter* turns_;  // (group, checkpoint interval)
  double* intervals_;         // (group, step)
  double *a_values_, *b_, *c_, *d_, *bias_;
  selective_problem<V> before_;  // problem of the forward pass that computes the checkpoints
  std::optional<selective_forward_run<V, W>> checkpoints_run_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
