// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of linear attention for one head.
//
// The steps are processed in segments, from the last to the first. A segment first recomputes the
// states before its chunks, and then runs the adjoint of each chunk, from the last to the first.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/linear_attention_chunk.hpp>
#include <scanrec/detail/cpu/linear_attention_chunk_adjoint.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The segments of an adjoint.
struct attention_segments {
  std::int64_t steps = chunk;  // per segment, a multiple of those of a chunk
  std::int64_t count = 1;      // per sequence

  static constexpr std::int64_t chunk = attention_limits::steps;
  /// Bytes of the states of a segment. They bound the workspace of a thread to about twice as much.
  static constexpr std::int64_t state_bytes = 1024 * 1024;
  static constexpr std::int64_t least_steps = 256, most_steps = 4096;

  template <class V>
  static attention_segments of(const linear_attention_problem<V>& p) {
    const std::int64_t state = std::int64_t{p.dk} * p.dv * static_cast<std::int64_t>(sizeof(V));
    attention_segments s;
    s.steps = std::clamp(state_bytes / state * chunk, least_steps, most_steps);
    // Long sequences have about as many segments as segments have chunks.
    while (s.steps < most_steps && s.steps * s.steps < chunk * p.time) s.steps += chunk;
    if (p.states.present()) s.steps = p.interval;
    s.steps = std::min(s.steps, (std::max<std::int64_t>(p.time, 1) + chunk - 1) / chunk * chunk);
    s.count = std::max<std::int64_t>(1, (p.time + s.steps - 1) / s.steps);
    return s;
  }
};

template <class V, int W>
class linear_attention_adjoint {
  static constexpr int steps = attention_rows<V, W>::steps;

 public:
  using problem_type = linear_attention_vjp_problem<V>;

  /// `before` is p as a forward call without outputs.
  linear_attention_adjoint(const problem_type& p, const linear_attention_problem<V>& before,
                           const attention_segments& segments, arena& memory)
      : p_(p),
        segments_(segments),
        v_packs_((p.dv + W - 1) / W),
        forward_(before, 1, v_packs_, memory),
        chunk_(p, memory),
        starts_(memory.take<V>(clipped_product(segments.count, state_size()))),
        zero_starts_(memory.take<bool>(segments.count)),
        states_(memory.take<V>(clipped_product(segments.steps / steps, state_size()))),
        list_(memory.take<attention_steps<V>>(segments.steps)),
        residuals_(memory.take<V>(p.beta.present() ? segments.steps * W * v_packs_ : 0)) {}

  /// Computes the gradients of a head. Calls turn(t) before gradients of the steps from t on are
  /// added to arrays that other heads share, and done(t) after that.
  template <class Turn, class Done>
  void run(std::int64_t batch, int head, const shared_gradient<V>& q_grad,
           const shared_gradient<V>& k_grad, Turn turn, Done done) {
    batch_ = batch, head_ = head;
    chunk_.begin(batch, head, q_grad, k_grad);
    find_starts();
    for (std::int64_t s = segments_.count - 1; s >= 0 && p_.time > 0; --s)
      for (int i = find_states(s) - 1; i >= 0; --i) {
        turn(list_[i].t);
        const auto r = residuals(list_[i]);
        chunk_.run(list_[i], {r.data, r.by_pack});
        done(list_[i].t);
      }
    chunk_.store_initial_gradient();
  }

 private:
  [[nodiscard]] std::int64_t state_size() const { return std::int64_t{p_.dk} * W * v_packs_; }
  // The residuals r of a chunk, in the memory of its segment.
  [[nodiscard]] attention_residuals<V> residuals(const attention_steps<V>& c) const {
    return {residuals_ + c.t % segments_.steps * W, segments_.steps * W};
  }
  // Calls f(chunk) for the chunks of a segment, without states.
  template <class F>
  void for_chunks(std::int64_t segment, F f) const {
    const std::int64_t border = std::min(p_.time, (segment + 1) * segments_.steps);
    for (std::int64_t t = segment * segments_.steps; t < border;) {
      attention_steps<V> c;
      c.t = t;
      c.after_reset = p_.resets.present() && p_.resets.at(batch_, t, 0);
      t = next_reset(p_.resets, batch_, t, std::min(border, t + steps));
      c.n = static_cast<int>(t - c.t);
      f(c);
    }
  }
  [[nodiscard]] bool reset_at(std::int64_t t) const {
    return p_.resets.present() && t < p_.time && p_.resets.at(batch_, t, 0);
  }
  // Computes the state before each segment.
  void find_starts() {
    forward_.begin_at({.batch = batch_, .head = head_, .heads = 1, .pack = 0, .packs = v_packs_},
                      starts_);
    zero_starts_[0] = forward_.zero_state();
    for (std::int64_t s = 1; s < segments_.count; ++s) {
      V *const before = starts_ + (s - 1) * state_size(), *const after = before + state_size();
      zero_starts_[s] = false;
      if (p_.states.present()) {
        forward_.load_state(p_.states, batch_ * (p_.time / p_.interval) + s - 1, after);
        continue;
      }
      forward_.resume(before, zero_starts_[s - 1], after);
      for_chunks(s - 1, [&](const attention_steps<V>& c) {
        if (c.after_reset) forward_.clear();
        const bool border = c.t + c.n == s * segments_.steps;
        forward_.append(c.t, c.n, border || !reset_at(c.t + c.n));
      });
    }
  }
  // Computes the states before the chunks of a segment, and their residuals r. Returns their
  // number.
  int find_states(std::int64_t segment) {
    const std::int64_t end = std::min(p_.time, (segment + 1) * segments_.steps);
    V *state = starts_ + segment * state_size(), *next = states_;
    bool zero = zero_starts_[segment];
    int count = 0;
    for_chunks(segment, [&](attention_steps<V> c) {
      zero = zero || c.after_reset;
      c.state = state, c.zero_state = zero;
      list_[count++] = c;
      const bool fold = c.t + c.n < end && !reset_at(c.t + c.n);
      if (!fold && !p_.beta.present()) return;
      forward_.resume(state, zero, next);
      if (p_.beta.present()) forward_.keep_residuals(residuals(c));
      forward_.append(c.t, c.n, fold);
      if (fold) state = next, next += state_size(), zero = false;
    });
    forward_.keep_residuals({});
    return count;
  }

  const problem_type& p_;
  attention_segments segments_;
  int v_packs_;
  linear_attention_chunk<V, W> forward_;
  linear_attention_chunk_adjoint<V, W> chunk_;
  std::int64_t batch_ = 0;
  int head_ = 0;

  V* starts_;                 // states before segments
  bool* zero_starts_;         // whether they are 0, and not stored
  V* states_;                 // states before the chunks of a segment, except the first
  attention_steps<V>* list_;  // chunks of a segment
  V* residuals_;              // residuals r of a segment, (column pack, step, lane)
};

}  // namespace scanrec::detail::inline SCANREC_ABI
