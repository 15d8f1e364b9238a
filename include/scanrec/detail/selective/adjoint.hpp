// SPDX-License-Identifier: BSD-3-Clause
// A stretch of steps of a strip of channels, back: states are computed anew from a checkpoint, and
// gradients pulled through them.
//
//     l[t] = g[t] C[t] + a[t+1] l[t+1]          gradient of x[t]; g: of the sum of C x
//     u:      delta sum_n l B + D g             A:  sum_t delta l a x[t-1]
//     delta:  u sum_n l B + sum_n A l a x[t-1]  B:  sum_d l delta u       C:  sum_d g x
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/selective/tile.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Running sums over time of one pack of channels of one sequence, in the wide type, W of each.
struct selective_totals {
  double *rates = nullptr, *b = nullptr, *c = nullptr;  // (state); B, C: where constant
  double *skip = nullptr, *bias = nullptr;
};

template <class V, int W>
class selective_adjoint : selective_tile<V, W> {
  using base = selective_tile<V, W>;

 public:
  using base::padded;
  using typename base::lane;

  selective_adjoint(const selective_vjp_problem<V>& p, arena& memory)
      : base(p, selective_stretch, memory),
        p_(p),
        grad_(memory.take<lane>(selective_stretch)),
        y_grad_(memory.take<lane>(selective_stretch)),
        fed_sum_(memory.take<lane>(selective_stretch)),
        gate_sum_(memory.take<lane>(selective_stretch)),
        kept_(memory.take<lane>(selective_stretch * 2 * selective_block)),
        states_(memory.take<lane>(p.states)),
        of_rates_(memory.take<lane>(p.states)),
        of_b_(memory.take<lane>(p.b.channels.present() ? p.states : 0)),
        of_c_(memory.take<lane>(p.c.channels.present() ? p.states : 0)),
        b_sums_(
            memory.take<V>(p.b_grad.steps.present() ? selective_stretch * padded(p.states) : 0)),
        c_sums_(
            memory.take<V>(p.c_grad.steps.present() ? selective_stretch * padded(p.states) : 0)) {}

  /// Forgets the sums over channels of a stretch.
  void clear_sums() {
    const std::int64_t count = selective_stretch * padded(p_.states);
    if (p_.b_grad.steps.present()) std::fill_n(b_sums_, count, V(0));
    if (p_.c_grad.steps.present()) std::fill_n(c_sums_, count, V(0));
  }
  /// Sums over the channels since then, (step, padded(states)).
  [[nodiscard]] const V* b_sums() const { return b_sums_; }
  [[nodiscard]] const V* c_sums() const { return c_sums_; }

  /// Takes the gradients of the states behind a stretch to those of the states before it; at the
  /// last one they are set.
  void run(const selective_place& place, lane* grads, const selective_totals& totals) {
    this->stand_at(place);
    if (place.end == p_.time) this->load_states_or_zero(p_.final_grad, grads);
    if (place.begin > 0)
      this->load_states(p_.checkpoints, states_, (p_.time - place.begin) / selective_stretch - 1);
    else
      this->load_states_or_zero(p_.initial, states_);

    const std::int64_t steps = place.end - place.begin, padded = (steps + 15) / 16 * 16;
    const selective_rows<lane> rows = this->template prepare<true>(place.begin, steps, padded);
    prepare_grads(steps, padded);
    const selective_grad_rows<lane> back{.y_grad = y_grad_,
                                         .fed_sum = fed_sum_,
                                         .gate_sum = gate_sum_,
                                         .b_sums = p_.b_grad.steps.present() ? b_sums_ : nullptr,
                                         .c_sums = p_.c_grad.steps.present() ? c_sums_ : nullptr,
                                         .sums_stride = base::padded(p_.states),
                                         .kept = kept_,
                                         .end = steps};
    const selective_grad_sums<lane> sums{.rates = of_rates_,
                                         .b = p_.b.channels.present() ? of_b_ : nullptr,
                                         .c = p_.c.channels.present() ? of_c_ : nullptr};
    for (lane* const sum : {sums.rates, sums.b, sums.c})
      if (sum != nullptr) std::fill_n(sum, p_.states, this->zero());
    this->for_states(rows, [&](auto together, auto which, std::int64_t n) {
      pull_states<together.value, which.value>(rows, back, sums, this->rates_, n, states_, grads);
    });
    put_grads(steps, totals);
    const auto drain = [&](double* total, const lane* from) {
      for (std::int64_t n = 0; total != nullptr && n < p_.states; ++n)
        simd::add_into(total + n * W, 1, W, from[n]);
    };
    drain(totals.rates, of_rates_), drain(totals.b, sums.b), drain(totals.c, sums.c);
    if (p_.initial_grad.present() && place.begin == 0)
      this->store_states(p_.initial_grad, grads, p_.update);
  }

 private:
  // The gradients of the sums of C x, from those of what was put out.
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
    std::fill(y_grad_ + steps, y_grad_ + padded, this->zero());
    std::fill_n(fed_sum_, padded, this->zero()), std::fill_n(gate_sum_, padded, this->zero());
  }
  // What is left of the gradients of u, delta and z.
  void put_grads(std::int64_t steps, const selective_totals& totals) {
    lane of_skip = this->zero(), of_bias = this->zero();
    lane *const u = this->u_, *const z = this->z_;
    for (std::int64_t t = 0; t < steps; ++t) {
      const lane delta_sum = simd::fma(u[t], fed_sum_[t], gate_sum_[t]);
      const lane delta_grad = simd::mul(delta_sum, this->slope_[t]);
      of_skip = simd::fma(y_grad_[t], u[t], of_skip);
      of_bias = simd::fma(delta_sum, this->slope_[t], of_bias);
      if (p_.z.present()) {
        // z silu'(z) / z = s (1 + z (1 - s))
        const auto s = simd::sigmoid(z[t]);
        const lane slope = simd::mul(s.value, simd::fma(z[t], s.complement, this->one()));
        z[t] = simd::mul(simd::mul(grad_[t], simd::fma(this->skip_, u[t], this->y_[t])), slope);
      }
      u[t] = simd::fma(this->skip_, y_grad_[t], simd::mul(this->delta_[t], fed_sum_[t]));
      gate_sum_[t] = delta_grad;
    }
    const std::int64_t begin = this->at_.begin;
    if (p_.u_grad.present()) this->store(p_.u_grad, begin, steps, u, p_.update);
    if (p_.delta_grad.present()) this->store(p_.delta_grad, begin, steps, gate_sum_, p_.update);
    if (p_.z_grad.present()) this->store(p_.z_grad, begin, steps, z, p_.update);
    if (totals.skip != nullptr) simd::add_into(totals.skip, 1, W, of_skip);
    if (totals.bias != nullptr) simd::add_into(totals.bias, 1, W, of_bias);
  }

  const selective_vjp_problem<V>& p_;
  lane *grad_, *y_grad_, *fed_sum_, *gate_sum_, *kept_;
  lane *states_, *of_rates_, *of_b_, *of_c_;
  V *b_sums_, *c_sums_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
