// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of linear attention for a head, or for some columns of a head.
//
// The steps are processed in windows, from the last to the first. In a window, first the states
// before its chunks are recomputed. Then the adjoints of the chunks run, from the last to the
// first.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_head_memory.hpp>
#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/linear_attention_adjoint_plan.hpp>
#include <scanrec/detail/cpu/linear_attention_chunk.hpp>
#include <scanrec/detail/cpu/linear_attention_chunk_adjoint.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class V, int W>
class linear_attention_adjoint {
  static constexpr int steps = attention_limits::steps;
  using chunk = attention_adjoint_chunk<V, W>;

 public:
  using problem_type = linear_attention_vjp_problem<V>;
  using head_memory = attention_head_memory<V, W>;

  /// `recomputed` is p as a forward call without outputs.
  linear_attention_adjoint(const problem_type& p, const linear_attention_problem<V>& recomputed,
                           const linear_attention_vjp_plan& plan, arena& memory)
      : p_(p),
        segments_(plan.segments),
        forward_(recomputed, 0, plan.task_packs(), memory),
        chunk_(p, memory) {}

  /// Computes the gradients of a head. `part` has all of its columns. Calls turn(t) before
  /// gradients of the steps from t on are added to arrays that other heads share, and done(t) after
  /// that.
  template <class Turn, class Done>
  void run(const attention_part& part, const head_memory& memory, const shared_gradient<V>& q_grad,
           const shared_gradient<V>& k_grad, Turn turn, Done done) {
    begin(part, memory);
    for (std::int64_t w = segments_.windows() - 1; w >= 0; --w)
      run_window(w, [&](const chunk& c) {
        chunk_.run(c, q_grad, k_grad, [&] { turn(c.t); });
        done(c.t);
      });
  }
  /// Computes the gradients of values and states in a window, for the columns of a part, and keeps
  /// S, G, r and du for run_sums(). Windows run from the last to the first.
  void run_columns(const attention_part& part, const head_memory& memory, std::int64_t window) {
    begin(part, memory);
    run_window(window, [&](const chunk& c) { chunk_.run_columns(c); });
  }
  /// Computes the other gradients of the chunks that begin in [t, t + 32), after run_columns() for
  /// all columns. t is a multiple of 32. Calls turn() before gradients are added to arrays that
  /// other heads share.
  template <class Turn>
  void run_sums(const attention_part& part, const head_memory& memory, std::int64_t t,
                const shared_gradient<V>& q_grad, const shared_gradient<V>& k_grad, Turn turn) {
    begin(part, memory);
    for_chunks_of(t, [&](const chunk& c) { chunk_.run_sums(c, q_grad, k_grad, turn); });
  }

 private:
  void begin(const attention_part& part, const head_memory& memory) {
    part_ = part, memory_ = &memory;
    chunk_.begin(part);
  }
  template <class F>
  void run_window(std::int64_t window, F f) {
    const std::int64_t first = window * segments_.window_steps();
    const std::int64_t end = std::min(p_.time, first + segments_.window_steps());
    forward_.use(part_);
    if (window == segments_.windows() - 1) {
      forward_.begin_at(part_, own(memory_->state(0)));
      find_starts();
      load_final_gradient();
    } else if (!zero_grad(end)) {
      V *const from = own(memory_->grad_before(end)), *const to = own(memory_->grad_after(end));
      if (from != to) std::copy_n(from, part_.packs * state_pack(), to);
    }
    find_states(first, end);
    for (std::int64_t t = (end + steps - 1) / steps * steps; t > first;)
      for_chunks_of(t -= steps, f);
    if (window == 0) store_initial_gradient();
  }

  // ---- chunks ----------------------------------------------------------------------------------

  [[nodiscard]] bool reset_at(std::int64_t t) const {
    return p_.resets.present() && t < p_.time && p_.resets.at(part_.batch, t, 0);
  }
  // Whether the state before step t is 0, and not stored.
  [[nodiscard]] bool zero_state(std::int64_t t) const {
    return reset_at(t) || (t == 0 && !p_.initial.present());
  }
  // Whether the gradient of this state is 0, and not stored.
  [[nodiscard]] bool zero_grad(std::int64_t t) const {
    return reset_at(t) || (t == p_.time && !p_.final_grad.present());
  }
  // The end of a chunk that begins at step t: 32 steps later, a reset, or the end of the segment.
  [[nodiscard]] std::int64_t end_of(std::int64_t t) const {
    const std::int64_t border = (t / segments_.steps + 1) * segments_.steps;
    return next_reset(p_.resets, part_.batch, t, std::min({p_.time, border, t + steps}));
  }
  // Calls f(chunk) for the chunks that begin in [first, first + 32), from the last to the first.
  template <class F>
  void for_chunks_of(std::int64_t first, F f) const {
    std::int64_t begins[steps];
    int count = 0;
    const std::int64_t end = std::min(p_.time, first + steps);
    for (std::int64_t t = memory_->first_chunk(part_.pack, first); t < end; t = end_of(t))
      begins[count++] = t;
    while (count > 0) f(chunk_at(begins[--count]));
  }
  [[nodiscard]] chunk chunk_at(std::int64_t t) const {
    const std::int64_t end = end_of(t);
    chunk c;
    c.t = t, c.n = static_cast<int>(end - t);
    if (!zero_state(t)) c.state = memory_->state(t);
    if (!zero_grad(end)) c.grad = memory_->grad_after(end);
    if (!reset_at(t)) c.grad_before = memory_->grad_before(t);
    if (p_.beta.present()) c.r = memory_->residuals(t), c.du = memory_->value_grads(t);
    return c;
  }

  // ---- states ----------------------------------------------------------------------------------

  [[nodiscard]] std::int64_t state_pack() const { return std::int64_t{p_.dk} * W; }
  // The columns of the part in a state of the head.
  [[nodiscard]] V* own(V* state) const { return state + part_.pack * state_pack(); }

  // Whether the caller passed the state before step t.
  [[nodiscard]] bool given_state(std::int64_t t) const {
    return p_.states.present() && t > 0 && t % p_.interval == 0;
  }
  // Computes the states before the windows, unless the caller passed them.
  void find_starts() {
    const std::int64_t window = segments_.window_steps();
    for (std::int64_t first = 0; !p_.states.present() && first + window < p_.time;
         first += window) {
      const std::int64_t border = first + window;
      forward_.resume(own(memory_->state(first)), zero_state(first), own(memory_->state(border)));
      for (std::int64_t t = first, end = 0; t < border; t = end) {
        end = end_of(t);
        if (reset_at(t)) forward_.clear();
        forward_.append(t, static_cast<int>(end - t), end == border || !reset_at(end));
      }
    }
  }
  // Lists the chunks of a window, and computes the states before them, and their residuals.
  void find_states(std::int64_t first, std::int64_t border) {
    memory_->forget_chunks(part_.pack);
    for (std::int64_t t = first, end = 0; t < border; t = end) {
      end = end_of(t);
      memory_->add_chunk(part_.pack, t);
      if (given_state(t))
        forward_.load_state(p_.states, part_.batch * (p_.time / p_.interval) + t / p_.interval - 1,
                            own(memory_->state(t)));
      const bool fold = end < border && !reset_at(end) && !given_state(end);
      if (!fold && !p_.beta.present()) continue;
      forward_.resume(own(memory_->state(t)), zero_state(t), own(memory_->state(fold ? end : t)));
      if (p_.beta.present()) {
        auto r = memory_->residuals(t);
        r.data = r.row(part_.pack, 0);
        forward_.keep_residuals(r);
      }
      forward_.append(t, static_cast<int>(end - t), fold);
    }
    forward_.keep_residuals({});
  }

  // ---- gradients of states ---------------------------------------------------------------------

  // Calls f(position in the array, number of columns, pack of the matrix) for the columns of the
  // part.
  template <class F>
  void for_packs(const row_array<V>& array, V* matrix, F f) const {
    for (int c = part_.pack; c < part_.pack + part_.packs; ++c)
      f(array.at(part_.batch, 0, std::int64_t{c} * W, part_.head), std::min(W, p_.dv - c * W),
        matrix + c * state_pack());
  }
  void load_final_gradient() const {
    if (!p_.final_grad.present()) return;
    for_packs(p_.final_grad, memory_->grad_after(p_.time), [&](auto* from, int width, V* to) {
      p_.final_grad.template load<W>(from, p_.dk, width, to);
    });
  }
  void store_initial_gradient() const {
    if (!p_.initial_grad.present()) return;
    V* const grad = p_.time == 0 ? memory_->grad_after(0) : memory_->grad_before(0);
    if (zero_grad(0)) std::fill_n(own(grad), part_.packs * state_pack(), V(0));
    for_packs(p_.initial_grad, grad, [&](auto* to, int width, const V* from) {
      p_.initial_grad.template store<W>(to, p_.dk, width, from, p_.update);
    });
  }

  const problem_type& p_;
  attention_segments segments_;
  linear_attention_chunk<V, W> forward_;
  linear_attention_chunk_adjoint<V, W> chunk_;
  attention_part part_;
  const head_memory* memory_ = nullptr;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
