// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of a chunk of linear attention.
//
// In the notation of linear_attention_chunk.hpp, with G the gradient of the state after the chunk,
// dO = scale out_grad, P = E (q . k), N = E (k . k), and sums over the steps of the chunk:
//
//     du[j] = E[n-1][j] G^T k[j] + sum over i >= j of P[i][j] dO[i]
//             - sum over i > j of N[i][j] dv[i],                     dv[j] = beta[j] du[j]
//
//     L = dO . u
//     M = dv . u
//
//     dq[i] = e[i] S dO[i] + sum over j <= i of E[i][j] L[i][j] k[j]
//
//     dk[j] = E[n-1][j] G u[j] - e[j] S dv[j] + sum over i >= j of E[i][j] L[i][j] q[i]
//             - sum over i of (E M + (E M)^T)[j][i] k[i]
//
//     dbeta[j] = du[j] . r[j]
//     G'    = e[n-1] G + sum over i of e[i] (q[i] dO[i]^T - k[i] dv[i]^T)
//
// L is a lower triangle with its diagonal, and M one without. Without the delta rule, dv = du and
// M = 0. G' is the gradient of the state before the chunk. The gradient of a gate is not divided by
// the gate, so it is right for a gate of 0. With gates per key, e and E have a number per channel
// of keys, and attention_key_adjoint.hpp computes dq, dk and the gradients of gates.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_adjoint_rows.hpp>
#include <scanrec/detail/cpu/attention_key_adjoint.hpp>
#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class V, int W>
class linear_attention_chunk_adjoint : attention_adjoint_rows<V, W> {
  using base = attention_adjoint_rows<V, W>;
  using base::add_rows, base::at, base::c_, base::decays_, base::dk_, base::dots_, base::dv_,
      base::dvt_, base::el_, base::em_, base::k_norms_, base::k_packs_, base::kp_, base::kt_,
      base::l_, base::m_, base::numbers_, base::out_grads, base::out_grads_t, base::out_head,
      base::p_, base::part_, base::q_norms_, base::queries_of, base::query_grads, base::query_packs,
      base::scaled_, base::start_, base::state_pack, base::sum_of, base::times_columns,
      base::transposed, base::u_, base::ut_, base::v_packs_, base::xt_, base::yt_;
  using typename base::lane;

 public:
  using base::begin, base::steps;
  using problem_type = linear_attention_vjp_problem<V>;
  using chunk = attention_adjoint_chunk<V, W>;

  linear_attention_chunk_adjoint(const problem_type& p, arena& memory) : base(p, memory) {
    const std::int64_t channels = base::channels(), queries = p.queries();
    if (!p.key_gates) {
      z_ = memory.take<V>(steps * steps);
      alpha_ = memory.take<V>(steps), gamma_ = memory.take<V>(steps);
      return;
    }
    gate_rows_ = memory.take<V>(channels * steps), gate_grads_ = memory.take<V>(channels * steps);
    parts_ = memory.take<attention_key_rows<V>>(1 + queries);
  }
  /// Computes the gradients of a chunk. The part has all columns. Calls turn() before rows are
  /// added to the gradients of queries and keys.
  template <class Turn>
  void run(const chunk& c, const shared_gradient<V>& q_grad, const shared_gradient<V>& k_grad,
           Turn turn) {
    this->load_rows(c);
    this->load_out_grads(0, v_packs_);
    this->value_gradients();
    sums_over_columns();
    if (c.grad_before != nullptr) this->state_gradient();
    turn();
    add_sums(q_grad, k_grad);
  }
  /// Computes those gradients that have columns: of the values and of the state before the chunk,
  /// for the columns of the part. Stores du, with the delta rule.
  void run_columns(const chunk& c) {
    this->load_rows(c);
    this->load_out_grads(part_.pack, part_.packs);
    this->value_gradients();
    if (c.grad_before != nullptr) this->state_gradient();
  }
  /// Computes the other gradients, which are sums over all columns, after run_columns() for these.
  template <class Turn>
  void run_sums(const chunk& c, const shared_gradient<V>& q_grad, const shared_gradient<V>& k_grad,
                Turn turn) {
    this->load_rows(c);
    this->load_out_grads(0, v_packs_);
    sums_over_columns();
    turn();
    add_sums(q_grad, k_grad);
  }

 private:
  void sums_over_columns() {
    this->load_values();
    this->transpose(u_, c_.n, p_.dv, ut_);
    if (p_.beta.present()) this->transpose(dv_, c_.n, p_.dv, dvt_);
    for (int q = 0; q < p_.queries(); ++q)
      this->transpose(out_grads(q), c_.n, p_.dv, out_grads_t(q));
    if (p_.key_gates)
      with_key_gates(c_.n);
    else
      with_head_gates(c_.n);
  }
  void add_sums(const shared_gradient<V>& q_grad, const shared_gradient<V>& k_grad) {
    for (int q = 0; q < p_.queries(); ++q)
      add_rows(q_grad, p_.query_head(out_head(q)), query_packs(q), q_norms_ + q * steps,
               query_grads(q));
    add_rows(k_grad, p_.key_head(part_.head), kp_, k_norms_, dk_);
  }

  // ---- gates per head, or none -----------------------------------------------------------------

  // Computes the gradients of queries, keys and gates.
  void with_head_gates(int n) {
    std::fill_n(z_, steps * steps, V(0));
    std::fill_n(alpha_, steps, V(0));
    if (p_.beta.present()) {
      this->decayed_triangle(dvt_, ut_, p_.dv, 0, n, m_, em_, true);
      add_products(n, m_, base::k_products_, true);
      mirror(n);
    }
    for (int q = 0; q < p_.queries(); ++q) query_gradients(q, n);
    key_gradients(n);
    if (p_.gate_grad.present()) gate_gradient(n);
  }
  // Adds w * products to z, or subtracts it, below the diagonal.
  void add_products(int n, const V* w, const V* products, bool negative) {
    for (int i = 1; i < n; ++i)
      for (int j = 0; j < i; ++j) {
        const V x = w[i * steps + j];
        z_[i * steps + j] =
            simd::fma(negative ? -x : x, products[i * steps + j], z_[i * steps + j]);
      }
  }
  // Turns the strict lower triangle -E M into the symmetric matrix -(E M + (E M)^T).
  void mirror(int n) {
    for (int i = 0; i < n; ++i) {
      em_[i * steps + i] = 0;
      for (int j = 0; j < i; ++j) em_[j * steps + i] = em_[i * steps + j];
    }
  }
  void query_gradients(int q, int n) {
    V *const el = el_ + q * steps * steps, *const dq = query_grads(q);
    this->decayed_triangle(out_grads_t(q), ut_, p_.dv, 0, n, l_, el, false);
    add_products(n, l_, base::q_products_ + q * steps * steps, false);
    if (c_.state == nullptr) {
      std::fill_n(dq, transposed(p_.dk), V(0));
    } else {
      times_columns(c_.state, out_grads_t(q), xt_);
      this->add_dots(queries_of(q), xt_, n, alpha_, false);
      this->to_packs(xt_, start_, n, dq);
    }
    if (!p_.q_grad.present()) return;
    for_tiles<V>(0, n, k_packs_, [&](auto size, int i, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const rows = dq + (pack * steps + i) * W;
      const V *const k = kp_ + pack * steps * W, *const of = el + i * steps;
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { x = at(rows + p * steps * W + r * W); });
      tile.add_product({of, steps, 1}, {k, W, steps * W}, i);
      tile.add_lower({of + i, steps, 1}, {k + i * W, W, steps * W});
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(rows + p * steps * W + r * W, x); });
    });
  }
  void key_gradients(int n) {
    const bool delta = p_.beta.present();
    std::fill_n(gamma_, steps, V(0));
    if (c_.grad == nullptr) {
      std::fill_n(dk_, transposed(p_.dk), V(0));
    } else {
      times_columns(c_.grad, ut_, xt_);
      this->add_dots(kt_, xt_, n, gamma_, false);
      this->to_packs(xt_, decays_ + (n - 1) * steps, n, dk_);
    }
    if (delta && c_.state != nullptr) {
      times_columns(c_.state, dvt_, yt_);
      this->add_dots(kt_, yt_, n, alpha_, true);
      this->to_packs(yt_, start_, n, scaled_);
      for (std::int64_t i = 0; i < transposed(p_.dk); i += W)
        store_lanes(dk_ + i, at(dk_ + i) - at(scaled_ + i));
    }
    if (!p_.k_grad.present()) return;
    for_tiles_upwards<V>(n, k_packs_, [&](auto size, int j, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const rows = dk_ + (pack * steps + j) * W;
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { x = at(rows + p * steps * W + r * W); });
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_later({el_ + q * steps * steps, 1, steps},
                       {query_packs(q) + pack * steps * W, W, steps * W}, j, n);
      if (delta)
        tile.add_product({em_ + j * steps, steps, 1}, {kp_ + pack * steps * W, W, steps * W}, n);
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(rows + p * steps * W + r * W, x); });
    });
  }

  void gate_gradient(int n) {
    const V after = c_.grad == nullptr || c_.state == nullptr ? V(0) : dot_of_states();
    this->gate_gradients(n, z_, c_.state == nullptr ? nullptr : alpha_, gamma_, after, dots_,
                         numbers_);
    p_.gate_grad.template store<1>(p_.gate_grad.at(part_.batch, c_.t, 0, part_.head), n, 1,
                                   numbers_, p_.update);
  }
  // The sum of S times G, element by element.
  [[nodiscard]] V dot_of_states() const {
    lane sums[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * W <= base::state_size(); i += 4 * W)
      for (int k = 0; k < 4; ++k)
        sums[k] = simd::fma(at(c_.state + i + k * W), at(c_.grad + i + k * W), sums[k]);
    for (; i < base::state_size(); i += W)
      sums[0] = simd::fma(at(c_.state + i), at(c_.grad + i), sums[0]);
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }

  // ---- gates per key ---------------------------------------------------------------------------

  // Computes the gradients of queries, keys and gates.
  void with_key_gates(int n) {
    const int count = p_.queries(), delta = p_.beta.present() ? 1 : 0;
    for (int q = 0; q < count; ++q) {
      this->triangle(out_grads_t(q), ut_, p_.dv, 0, n, n, el_ + q * steps * steps, false);
      if (c_.state == nullptr) continue;
      times_columns(c_.state, out_grads_t(q), xt_);
      this->to_packs(xt_, start_, n, query_grads(q));
    }
    if (delta) this->triangle(dvt_, ut_, p_.dv, 0, n, n, em_, true);
    if (delta && c_.state != nullptr) {
      std::fill_n(base::factors_, steps, V(-1));
      times_columns(c_.state, dvt_, xt_);
      this->to_packs(xt_, base::factors_, n, yt_);
    }
    if (c_.grad == nullptr) {
      std::fill_n(scaled_, transposed(p_.dk), V(0));
    } else {
      times_columns(c_.grad, ut_, xt_);
      this->to_packs(xt_, start_, n, scaled_);
    }
    this->to_packs(base::g_.gates, start_, n, gate_rows_);
    for (int c = 0; c < k_packs_; ++c) {
      const int first = c * steps * W;
      // Without a state, the first gate is not used. It may be NaN.
      if (c_.state == nullptr) std::fill_n(gate_rows_ + first, W, V(0));
      for (int q = 0; q < count; ++q)
        parts_[q] = {query_packs(q) + first, el_ + q * steps * steps, query_grads(q) + first, true};
      if (delta) parts_[count] = {kp_ + first, em_, yt_ + first, false};
      attention_key_adjoint<V, W> work(n, gate_rows_ + first, kp_ + first,
                                       c_.state == nullptr ? nullptr : base::g_.borders + c * W,
                                       this->channels());
      V* const da = gate_grads_ + first;
      work.run(scaled_ + first, dots_of_states(c), parts_, count + delta, dk_ + first, da);
      if (!p_.gate_grad.present()) continue;
      for (int i = 0; i < n * W && p_.logarithms; ++i) da[i] *= gate_rows_[first + i];
      p_.gate_grad.template store<W>(p_.gate_grad.at(part_.batch, c_.t, c * W, part_.head), n,
                                     base::key_width(c), da, p_.update);
    }
  }
  // The sums of S times G over columns, for a pack of channels of keys.
  [[nodiscard]] lane dots_of_states(int c) const {
    V dots[W] = {};
    for (int d = 0; d < base::key_width(c) && c_.grad != nullptr && c_.state != nullptr; ++d) {
      lane sum = simd::constant<lane>(0);
      for (int pack = 0; pack < v_packs_; ++pack) {
        const std::int64_t element = pack * state_pack() + (c * W + d) * W;
        sum = simd::fma(at(c_.state + element), at(c_.grad + element), sum);
      }
      dots[d] = sum_of(sum);
    }
    return at(dots);
  }

  // With gates per head.
  V* z_ = nullptr;                         // L (q . k) - M (k . k), strictly below the diagonal
  V *alpha_ = nullptr, *gamma_ = nullptr;  // q . S dO - k . S dv, and k . G u
  // With gates per key: gates and their gradients, in packs.
  V *gate_rows_ = nullptr, *gate_grads_ = nullptr;
  attention_key_rows<V>* parts_ = nullptr;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
