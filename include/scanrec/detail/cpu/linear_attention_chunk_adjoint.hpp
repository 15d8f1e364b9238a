// SPDX-License-Identifier: BSD-3-Clause
// The adjoint of a chunk of linear attention.
//
// In the notation of linear_attention_chunk.hpp, with G the gradient of the state after the chunk,
// dO = scale out_grad, P = E (q . k), N = E (k . k), and sums over the steps of the chunk:
//
//     du[j] = E[n-1][j] G^T k[j] + sum over i >= j of P[i][j] dO[i]
//             - sum over i > j of N[i][j] dv[i],                     dv[j] = beta[j] du[j]
//
//     W = dO . u
//     M = dv . u
//
//     dq[i] = e[i] S dO[i] + sum over j <= i of E[i][j] W[i][j] k[j]
//
//     dk[j] = E[n-1][j] G u[j] - e[j] S dv[j] + sum over i >= j of E[i][j] W[i][j] q[i]
//             - sum over i of (E M + (E M)^T)[j][i] k[i]
//
//     dbeta[j] = du[j] . r[j]
//     G'    = e[n-1] G + sum over i of e[i] (q[i] dO[i]^T - k[i] dv[i]^T)
//
// W is a lower triangle with its diagonal, and M one without. Without the delta rule, dv = du and
// M = 0. G' is the gradient of the state before the chunk. The gradient of a gate is not divided by
// the gate, so it is right for a gate of 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/detail/recurrence/rows.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A chunk, and the state before it, which is 0 and not stored if `zero_state`.
template <class V>
struct attention_steps {
  std::int64_t t = 0;
  int n = 0;
  V* state = nullptr;
  bool zero_state = true;
  bool after_reset = false;
};

template <class V, int W>
class linear_attention_chunk_adjoint : attention_rows<V, W> {
  using base = attention_rows<V, W>;
  using base::at, base::beta_, base::decays_, base::factors_, base::gates_, base::k_packs_,
      base::kt_, base::start_, base::sum_of, base::transposed;
  using typename base::lane;

 public:
  using base::steps;
  using problem_type = linear_attention_vjp_problem<V>;

  linear_attention_chunk_adjoint(const problem_type& p, arena& memory)
      : base(p, memory), p_(p), v_packs_((p.dv + W - 1) / W) {
    const std::int64_t triangle = steps * steps, queries = p.queries();
    const std::int64_t keys = transposed(p.dk), values = transposed(p.dv);
    const auto take = [&](std::initializer_list<V**> arrays, std::int64_t size) {
      for (V** const to : arrays) *to = memory.take<V>(size);
    };
    take({&grad_}, state_size());
    take({&kp_, &scaled_, &xt_, &yt_, &rows_}, keys);
    take({&u_, &ut_, &dv_, &dvt_}, values);
    take({&k_products_, &n_, &m_, &em_, &w_, &z_}, triangle);
    take({&qt_, &qp_}, queries * keys);
    take({&do_, &dot_}, queries * values);
    take({&q_products_, &pd_, &ew_}, queries * triangle);
    take({&alpha_, &gamma_, &k_norms_, &numbers_}, steps);
    take({&q_norms_}, queries * steps);
    take({&dots_}, steps * W);
  }

  /// Begins a head at the end of its sequence, with the gradient of the final state.
  void begin(std::int64_t batch, int head, const shared_gradient<V>& q_grad,
             const shared_gradient<V>& k_grad) {
    batch_ = batch, head_ = head, q_grad_ = q_grad, k_grad_ = k_grad;
    zero_grad_ = !p_.final_grad.present();
    for (int c = 0; c < v_packs_ && !zero_grad_; ++c)
      p_.final_grad.template load<W>(p_.final_grad.at(batch, 0, c * W, head), p_.dk, width(c),
                                     grad_ + c * state_pack());
  }
  /// Computes the gradients of a chunk. `r` are the rows r of its steps, with the delta rule.
  void run(const attention_steps<V>& c, attention_kept<const V> r) {
    const std::int64_t t = c.t;
    const int n = c.n;
    s_ = c.state, zero_state_ = c.zero_state;
    load_rows(t, n, r);
    value_gradients(t, n, r);
    this->transpose(u_, n, p_.dv, ut_);
    std::fill_n(z_, steps * steps, V(0));
    std::fill_n(alpha_, steps, V(0));
    if (p_.beta.present()) {
      this->transpose(dv_, n, p_.dv, dvt_);
      this->triangle(dvt_, ut_, p_.dv, 0, n, m_, em_, true);
      add_products(n, m_, k_products_, true);
      mirror(n);
    }
    for (int q = 0; q < p_.queries(); ++q) query_gradients(q, t, n);
    key_gradients(t, n);
    if (p_.gate_grad.present()) gate_gradient(t, n);
    if (c.after_reset)
      zero_grad_ = true;
    else
      update_gradient(n);
  }
  /// Stores the gradient of the state before the last chunk.
  void store_initial_gradient() {
    if (!p_.initial_grad.present()) return;
    if (zero_grad_) std::fill_n(grad_, state_size(), V(0));
    for (int c = 0; c < v_packs_; ++c)
      p_.initial_grad.template store<W>(p_.initial_grad.at(batch_, 0, c * W, head_), p_.dk,
                                        width(c), grad_ + c * state_pack(), p_.update);
  }

 private:
  [[nodiscard]] std::int64_t state_pack() const { return std::int64_t{p_.dk} * W; }
  [[nodiscard]] std::int64_t state_size() const { return state_pack() * v_packs_; }
  [[nodiscard]] int width(int c) const { return std::min(W, p_.dv - c * W); }
  [[nodiscard]] int key_width(int c) const { return std::min(W, p_.dk - c * W); }
  [[nodiscard]] int out_head(int q) const { return head_ * p_.queries() + q; }
  [[nodiscard]] V* queries(int q) const { return qt_ + q * transposed(p_.dk); }
  [[nodiscard]] V* query_packs(int q) const { return qp_ + q * transposed(p_.dk); }
  [[nodiscard]] V* out_grads(int q) const { return do_ + q * transposed(p_.dv); }
  [[nodiscard]] V* out_grads_t(int q) const { return dot_ + q * transposed(p_.dv); }
  [[nodiscard]] V* p_of(int q) const { return pd_ + q * steps * steps; }

  void load_rows(std::int64_t t, int n, attention_kept<const V> r) {
    this->load_decays(batch_, head_, t, 0, n);
    const int key = p_.key_head(head_);
    load_both(p_.k, key, t, n, kt_, kp_, k_norms_);
    if (p_.beta.present()) {
      this->load_beta(batch_, head_, t, 0, n);
      this->triangle(kt_, kt_, p_.dk, 0, n, k_products_, n_, true);
    }
    for (int c = 0; c < v_packs_; ++c) {
      V* const u = u_ + c * steps * W;
      if (p_.beta.present())
        for (int i = 0; i < n; ++i)
          store_lanes(u + i * W, simd::mul(lane(beta_[i]), at(r.data + c * r.by_pack + i * W)));
      else
        p_.v.template load<W>(p_.v.at(batch_, t, c * W, head_), n, width(c), u);
    }
    for (int q = 0; q < p_.queries(); ++q) {
      load_both(p_.q, p_.query_head(out_head(q)), t, n, queries(q), query_packs(q),
                q_norms_ + q * steps);
      this->triangle(queries(q), kt_, p_.dk, 0, n, q_products_ + q * steps * steps, p_of(q));
      for (int c = 0; c < v_packs_; ++c) {
        V* const rows = out_grads(q) + c * steps * W;
        if (!p_.out_grad.present()) {
          std::fill_n(rows, n * W, V(0));
          continue;
        }
        p_.out_grad.template load<W>(p_.out_grad.at(batch_, t, c * W, out_head(q)), n, width(c),
                                     rows);
        for (int i = 0; i < n; ++i)
          store_lanes(rows + i * W, simd::mul(lane(p_.scale), at(rows + i * W)));
      }
      this->transpose(out_grads(q), n, p_.dv, out_grads_t(q));
    }
  }
  // Loads queries or keys, transposed and in packs, and 1 / norm of each.
  void load_both(const row_array<V>& from, int head, std::int64_t t, int n, V* columns, V* packs,
                 V* norms) {
    this->load_transposed(from, batch_, head, t, 0, n, V(1), columns, packs, steps * W);
    if (!p_.normalise) return;
    std::copy_n(factors_, steps, norms);
    for (int c = 0; c < k_packs_; ++c)
      for (int i = 0; i < n; ++i) {
        V* const x = packs + (c * steps + i) * W;
        store_lanes(x, simd::mul(lane(norms[i]), at(x)));
      }
  }

  // Computes dv and its gradient, and that of beta.
  void value_gradients(std::int64_t t, int n, attention_kept<const V> r_of) {
    this->scale_columns(kt_, decays_ + (n - 1) * steps, n, scaled_, false);
    std::fill_n(dots_, steps * W, V(0));
    const bool delta = p_.beta.present();
    for_tiles_upwards<V>(n, v_packs_, [&](auto size, int j, int pack) SCANREC_LAMBDA {
      using tile_type = attention_tile<V, W, decltype(size)::rows, decltype(size)::packs>;
      constexpr int rows = tile_type::rows;
      tile_type tile;
      tile.clear();
      if (!zero_grad_)
        tile.add_product({scaled_ + j, 1, steps}, {grad_ + pack * state_pack(), W, state_pack()},
                         p_.dk);
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_later({p_of(q), 1, steps}, {out_grads(q) + pack * steps * W, W, steps * W}, j, n);
      V* const dv = dv_ + pack * steps * W;
      if (delta) {
        tile.add_rest({n_, 1, steps}, {dv, W, steps * W}, j, n);
        simd::detail::unrolled<rows>([&](auto above) SCANREC_LAMBDA {
          constexpr int r = rows - 1 - above;
          simd::detail::unrolled<tile_type::packs>([&](auto p) SCANREC_LAMBDA {
            lane& x = tile.x[r][p];
            simd::detail::unrolled<above>([&](auto later) SCANREC_LAMBDA {
              constexpr int k = rows - 1 - later;
              x = simd::fma(lane(n_[(j + k) * steps + j + r]), tile.x[k][p], x);
            });
            V* const dots = dots_ + (j + r) * W;
            const V* const row = r_of.data + (pack + p) * r_of.by_pack + (j + r) * W;
            store_lanes(dots, simd::fma(x, at(row), at(dots)));
            x = simd::mul(lane(beta_[j + r]), x);
          });
        });
      }
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(dv + p * steps * W + (j + r) * W, x); });
    });
    if (p_.v_grad.present())
      for (int c = 0; c < v_packs_; ++c)
        p_.v_grad.template store<W>(p_.v_grad.at(batch_, t, c * W, head_), n, width(c),
                                    dv_ + c * steps * W, p_.update);
    if (!p_.beta_grad.present()) return;
    for (int i = 0; i < n; ++i) numbers_[i] = sum_of(at(dots_ + i * W));
    p_.beta_grad.template store<1>(p_.beta_grad.at(batch_, t, 0, head_), n, 1, numbers_, p_.update);
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
  // to = A x, transposed, where A is S or G in packs and x is transposed with dv rows.
  void times_columns(const V* matrix, const V* x, int n, V* to) const {
    for_tiles<V>(0, p_.dk, (n + W - 1) / W, [&](auto size, int d, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      tile.clear();
      for (int c = 0; c < v_packs_; ++c)
        tile.add_product({matrix + c * state_pack() + d * W, W, 1},
                         {x + c * W * steps + pack * W, steps, W}, width(c));
      tile.each([&](lane& of, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(to + (d + r) * steps + (pack + p) * W, of); });
    });
  }
  // Adds rows_ to the gradient of queries or keys. With normalised x, these are (rows - x (x .
  // rows)) / norm.
  void add_rows(const shared_gradient<V>& to, int head, std::int64_t t, int n, const V* x,
                const V* norms) const {
    for (int i = 0; i < n && p_.normalise; ++i) {
      lane sum = simd::constant<lane>(0);
      for (int c = 0; c < k_packs_; ++c)
        sum = simd::fma(at(x + (c * steps + i) * W), at(rows_ + (c * steps + i) * W), sum);
      const lane dot(-sum_of(sum));
      for (int c = 0; c < k_packs_; ++c) {
        V* const row = rows_ + (c * steps + i) * W;
        const lane rest = simd::fma(dot, at(x + (c * steps + i) * W), at(row));
        store_lanes(row, simd::mul(lane(norms[i]), rest));
      }
    }
    for (int c = 0; c < k_packs_; ++c)
      to.template add<W>(batch_, head, t, c * W, n, key_width(c), rows_ + c * steps * W, p_.update);
  }
  void query_gradients(int q, std::int64_t t, int n) {
    V* const ew = ew_ + q * steps * steps;
    this->triangle(out_grads_t(q), ut_, p_.dv, 0, n, w_, ew);
    add_products(n, w_, q_products_ + q * steps * steps, false);
    if (zero_state_) {
      std::fill_n(rows_, transposed(p_.dk), V(0));
    } else {
      times_columns(s_, out_grads_t(q), n, xt_);
      this->add_dots(queries(q), xt_, n, alpha_, false);
      this->to_packs(xt_, start_, n, rows_);
    }
    if (!q_grad_.to.present()) return;
    for_tiles<V>(0, n, k_packs_, [&](auto size, int i, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const rows = rows_ + (pack * steps + i) * W;
      const V *const k = kp_ + pack * steps * W, *const of = ew + i * steps;
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { x = at(rows + p * steps * W + r * W); });
      tile.add_product({of, steps, 1}, {k, W, steps * W}, i);
      tile.add_lower({of + i, steps, 1}, {k + i * W, W, steps * W});
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(rows + p * steps * W + r * W, x); });
    });
    add_rows(q_grad_, p_.query_head(out_head(q)), t, n, query_packs(q), q_norms_ + q * steps);
  }
  void key_gradients(std::int64_t t, int n) {
    const bool delta = p_.beta.present();
    std::fill_n(gamma_, steps, V(0));
    if (zero_grad_) {
      std::fill_n(rows_, transposed(p_.dk), V(0));
    } else {
      times_columns(grad_, ut_, n, xt_);
      this->add_dots(kt_, xt_, n, gamma_, false);
      this->to_packs(xt_, decays_ + (n - 1) * steps, n, rows_);
    }
    if (delta && !zero_state_) {
      times_columns(s_, dvt_, n, yt_);
      this->add_dots(kt_, yt_, n, alpha_, true);
      this->to_packs(yt_, start_, n, scaled_);
      for (std::int64_t i = 0; i < transposed(p_.dk); i += W)
        store_lanes(rows_ + i, at(rows_ + i) - at(scaled_ + i));
    }
    if (!k_grad_.to.present()) return;
    for_tiles_upwards<V>(n, k_packs_, [&](auto size, int j, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const rows = rows_ + (pack * steps + j) * W;
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { x = at(rows + p * steps * W + r * W); });
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_later({ew_ + q * steps * steps, 1, steps},
                       {query_packs(q) + pack * steps * W, W, steps * W}, j, n);
      if (delta)
        tile.add_product({em_ + j * steps, steps, 1}, {kp_ + pack * steps * W, W, steps * W}, n);
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(rows + p * steps * W + r * W, x); });
    });
    add_rows(k_grad_, p_.key_head(head_), t, n, kp_, k_norms_);
  }

  void gate_gradient(std::int64_t t, int n) {
    const V after = zero_grad_ || zero_state_ ? V(0) : dot_of_states();
    this->gate_gradients(n, z_, zero_state_ ? nullptr : alpha_, gamma_, after, dots_, numbers_);
    p_.gate_grad.template store<1>(p_.gate_grad.at(batch_, t, 0, head_), n, 1, numbers_, p_.update);
  }
  // The sum of S times G, element by element.
  [[nodiscard]] V dot_of_states() const {
    lane sums[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * W <= state_size(); i += 4 * W)
      for (int k = 0; k < 4; ++k)
        sums[k] = simd::fma(at(s_ + i + k * W), at(grad_ + i + k * W), sums[k]);
    for (; i < state_size(); i += W) sums[0] = simd::fma(at(s_ + i), at(grad_ + i), sums[0]);
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  // Replaces G by the gradient of the state before the chunk.
  void update_gradient(int n) {
    const bool delta = p_.beta.present();
    for (int q = 0; q < p_.queries(); ++q)
      this->scale_columns(queries(q), start_, n, queries(q), false);
    if (delta) this->scale_columns(kt_, start_, n, scaled_, true);
    for_tiles<V>(0, p_.dk, v_packs_, [&](auto size, int d, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const to = grad_ + pack * state_pack() + d * W;
      tile.clear();
      if (!zero_grad_)
        tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
          x = simd::mul(lane(start_[n - 1]), at(to + p * state_pack() + r * W));
        });
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_product({queries(q) + d * steps, steps, 1},
                         {out_grads(q) + pack * steps * W, W, steps * W}, n);
      if (delta)
        tile.add_product({scaled_ + d * steps, steps, 1}, {dv_ + pack * steps * W, W, steps * W},
                         n);
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(to + p * state_pack() + r * W, x); });
    });
    zero_grad_ = false;
  }

  const problem_type& p_;
  int v_packs_;
  std::int64_t batch_ = 0;
  int head_ = 0;
  shared_gradient<V> q_grad_, k_grad_;
  const V* s_ = nullptr;  // the state before the chunk
  bool zero_state_ = true, zero_grad_ = true;

  V* grad_;  // G, in packs like a state
  // Matrices of a chunk; *t are transposed, u_, dv_, do_ and *p are in packs.
  V *kp_, *scaled_, *xt_, *yt_, *rows_, *u_, *ut_, *dv_, *dvt_;
  V *qt_, *qp_, *do_, *dot_;
  V *k_products_, *n_;     // k . k and -E (k . k)
  V *q_products_, *pd_;    // q . k and E (q . k)
  V *m_, *em_, *w_, *ew_;  // M, -(E M + (E M)^T), W, E W
  V* z_;                   // W (q . k) - M (k . k), strictly below the diagonal
  V *alpha_, *gamma_;      // q . S dO - k . S dv, and k . G u
  V *k_norms_, *q_norms_;  // 1 / norm
  V *numbers_, *dots_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
