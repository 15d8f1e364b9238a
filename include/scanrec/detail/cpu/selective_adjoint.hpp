// SPDX-License-Identifier: BSD-3-Clause
// The adjoint over a checkpoint interval of a pack of channels: recomputes states from a
// checkpoint, and computes gradients backwards in time.
//
//     l[t] = g[t] C[t] + a[t+1] l[t+1]
//     u:      delta sum_n l B + D g             A:  sum_t delta l a x[t-1]
//     delta:  u sum_n l B + sum_n A l a x[t-1]  B:  sum_d l delta u       C:  sum_d g x
//
// l[t] is the gradient of x[t], and g[t] that of the sum of C x over the states. The other lines
// give the gradients of u, delta, A, B and C; sum_n adds over states, sum_t over steps, and sum_d
// over channels. For complex states, a, A, B, C and x are conjugated, g is doubled (except in D g),
// and the gradients of u and delta take real parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/selective_tile.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Running sums over time of one pack of channels of one sequence, in the wide type, with W lanes
/// each. `b` and `c` are for time-invariant B and C.
struct selective_totals {
  double *a_values = nullptr, *b = nullptr, *c = nullptr;  // (state, part)
  double *d = nullptr, *bias = nullptr;
};

template <class V, int W>
class selective_adjoint : selective_tile<V, W> {
  using base = selective_tile<V, W>;

 public:
  using base::padded;
  using base::parts;
  using typename base::lane;
  using typename base::real;
  using typename base::state;

  selective_adjoint(const selective_vjp_problem<V>& p, arena& memory)
      : base(p, memory::checkpoint_interval, true, memory),
        p_(p),
        grad_(memory.take<lane>(memory::checkpoint_interval)),
        y_grad_(memory.take<lane>(memory::checkpoint_interval)),
        delta_u_sum_(memory.take<lane>(memory::checkpoint_interval)),
        gate_sum_(memory.take<lane>(memory::checkpoint_interval)),
        kept_(memory.take<state>(memory::checkpoint_interval * 2 * selective_block<state>)),
        states_(memory.take<state>(p.states)),
        of_a_values_(memory.take<state>(p.states)),
        of_b_(memory.take<state>(p.b.channels.present() ? p.states : 0)),
        of_c_(memory.take<state>(p.c.channels.present() ? p.states : 0)),
        b_sums_(memory.take<real>(p.b_grad.steps.present() ? sums_count(p) : 0)),
        c_sums_(memory.take<real>(p.c_grad.steps.present() ? sums_count(p) : 0)),
        interval_sums_(
            memory.take<real>(p.intervals_grad.present() ? memory::checkpoint_interval : 0)) {}

  /// Clears the sums over channels of a checkpoint interval.
  void clear_sums() {
    if (p_.b_grad.steps.present()) std::fill_n(b_sums_, sums_count(p_), real(0));
    if (p_.c_grad.steps.present()) std::fill_n(c_sums_, sums_count(p_), real(0));
    if (p_.intervals_grad.present())
      std::fill_n(interval_sums_, memory::checkpoint_interval, real(0));
  }
  /// Sums over the channels of all run() calls since clear_sums(): (step, part, padded(states)).
  [[nodiscard]] const real* b_sums() const { return b_sums_; }
  [[nodiscard]] const real* c_sums() const { return c_sums_; }
  /// For each step, the gradient of the argument `intervals` (factors of the step size), summed
  /// over the channels of all run() calls since clear_sums().
  [[nodiscard]] const real* interval_sums() const { return interval_sums_; }

  /// Computes the gradients of a checkpoint interval, and adds the sums over time to `totals`.
  /// Turns `grads`, the gradients of the states after the interval, into those of the states before
  /// it. At the last interval of a sequence, `grads` starts from the gradient of the final state.
  void run(const selective_position& position, state* grads, const selective_totals& totals) {
    this->stand_at(position);
    if (position.end == p_.time) this->load_states_or_zero(p_.final_grad, grads);
    if (position.begin > 0)
      this->load_states(p_.checkpoints, states_,
                        (p_.time - position.begin) / memory::checkpoint_interval - 1);
    else
      this->load_states_or_zero(p_.initial, states_);

    const std::int64_t steps = position.end - position.begin, padded = (steps + 15) / 16 * 16;
    const selective_rows<state> rows = this->template prepare<true>(position.begin, steps, padded);
    prepare_grads(steps, padded);
    const selective_grad_rows<state> back{.y_grad = y_grad_,
                                          .delta_u_sum = delta_u_sum_,
                                          .gate_sum = gate_sum_,
                                          .b_sums = p_.b_grad.steps.present() ? b_sums_ : nullptr,
                                          .c_sums = p_.c_grad.steps.present() ? c_sums_ : nullptr,
                                          .sums_stride = parts * base::padded(p_.states),
                                          .kept = kept_,
                                          .end = steps};
    const selective_grad_sums<state> sums{.a_values = of_a_values_,
                                          .b = p_.b.channels.present() ? of_b_ : nullptr,
                                          .c = p_.c.channels.present() ? of_c_ : nullptr};
    for (state* const sum : {sums.a_values, sums.b, sums.c})
      if (sum != nullptr) std::fill_n(sum, p_.states, simd::constant<state>(0));
    this->for_states(rows, [&](auto together, auto which, std::int64_t n) {
      vjp_states<together.value, which.value>(rows, back, sums, this->a_values_, n, states_, grads);
    });
    put_grads(steps, totals);
    const auto flush = [&](double* total, const state* from) {
      for (std::int64_t n = 0; total != nullptr && n < p_.states; ++n) {
        simd::add_into(total + parts * n * W, 1, W, part_of<0>(from[n]));
        if constexpr (parts == 2) simd::add_into(total + (2 * n + 1) * W, 1, W, from[n].im);
      }
    };
    flush(totals.a_values, of_a_values_), flush(totals.b, sums.b), flush(totals.c, sums.c);
    if (p_.initial_grad.present() && position.begin == 0)
      this->store_states(p_.initial_grad, grads, p_.update);
  }

 private:
  // Computes the gradients of the sums of C x from those of the outputs.
  void prepare_grads(std::int64_t steps, std::int64_t padded) {
    if (p_.out_grad.present())
      this->load(p_.out_grad, this->at_.begin, steps, grad_);
    else
      std::fill_n(grad_, steps, this->zero());
    if (p_.z.present()) this->load(p_.z, this->at_.begin, steps, this->z_);
    for (std::int64_t t = 0; t < steps; ++t) {
      y_grad_[t] = grad_[t];
      if (!p_.z.present()) continue;
      const lane z = this->z_[t];
      y_grad_[t] = simd::mul(grad_[t], simd::mul(z, simd::sigmoid(z).value));
    }
    if constexpr (parts == 2)  // the output is 2 Re(C x)
      for (std::int64_t t = 0; t < steps; ++t) y_grad_[t] = y_grad_[t] + y_grad_[t];
    std::fill(y_grad_ + steps, y_grad_ + padded, this->zero());
    std::fill_n(delta_u_sum_, padded, this->zero()), std::fill_n(gate_sum_, padded, this->zero());
  }
  // Stores the gradients of u, delta and z. Adds those of D, bias and intervals to their sums.
  void put_grads(std::int64_t steps, const selective_totals& totals) {
    lane of_d = this->zero(), of_bias = this->zero();
    lane *const u = this->u_, *const z = this->z_;
    for (std::int64_t t = 0; t < steps; ++t) {
      lane y = this->y_[t], y_grad = y_grad_[t];
      if constexpr (parts == 2) y = y + y, y_grad = simd::mul(y_grad, simd::splat<lane>(real(0.5)));
      const lane delta_sum = simd::fma(u[t], delta_u_sum_[t], gate_sum_[t]);
      const lane delta_grad = simd::mul(delta_sum, this->slope_[t]);
      if (p_.intervals_grad.present())
        interval_sums_[t] += sum_of(simd::mul(delta_sum, this->soft_[t]));
      of_d = simd::fma(y_grad, u[t], of_d);
      of_bias = simd::fma(delta_sum, this->slope_[t], of_bias);
      if (p_.z.present()) {
        // silu'(z) = s (1 + z (1 - s)), with s = sigmoid(z)
        auto s = simd::sigmoid(z[t]);
        const lane slope = simd::mul(s.value, simd::fma(z[t], s.complement, this->one()));
        z[t] = simd::mul(simd::mul(grad_[t], simd::fma(this->d_, u[t], y)), slope);
      }
      u[t] = simd::fma(this->d_, y_grad, simd::mul(this->delta_[t], delta_u_sum_[t]));
      gate_sum_[t] = delta_grad;
    }
    const std::int64_t begin = this->at_.begin;
    if (p_.u_grad.present()) this->store(p_.u_grad, begin, steps, u, p_.update);
    if (p_.delta_grad.present()) this->store(p_.delta_grad, begin, steps, gate_sum_, p_.update);
    if (p_.z_grad.present()) this->store(p_.z_grad, begin, steps, z, p_.update);
    if (totals.d != nullptr) simd::add_into(totals.d, 1, W, of_d);
    if (totals.bias != nullptr) simd::add_into(totals.bias, 1, W, of_bias);
  }

  static std::int64_t sums_count(const selective_problem<V>& p) {
    return memory::checkpoint_interval * parts * padded(p.states);
  }
  // Sum over lanes. Not inlined, so that no compiler fuses a product into it.
  [[gnu::noinline]] static real sum_of(lane x) {
    if constexpr (W == 1)
      return x;
    else
      return simd::sum(x);
  }

  const selective_vjp_problem<V>& p_;
  lane *grad_, *y_grad_, *delta_u_sum_, *gate_sum_;
  state *kept_, *states_, *of_a_values_, *of_b_, *of_c_;
  real *b_sums_, *c_sums_, *interval_sums_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
