// SPDX-License-Identifier: BSD-3-Clause
// The rows of a chunk of linear attention for its adjoint, and the gradients of values, of beta and
// of states. linear_attention_chunk_adjoint.hpp has the formulas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <scanrec/detail/cpu/attention_key_gates.hpp>
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
class attention_adjoint_rows : protected attention_key_gates<V, W> {
  using base = attention_key_gates<V, W>;

 public:
  using base::steps;
  using problem_type = linear_attention_vjp_problem<V>;

  /// Begins a head at the end of its sequence, with the gradient of the final state.
  void begin(std::int64_t batch, int head, const shared_gradient<V>& q_grad,
             const shared_gradient<V>& k_grad) {
    batch_ = batch, head_ = head, q_grad_ = q_grad, k_grad_ = k_grad;
    zero_grad_ = !p_.final_grad.present();
    for (int c = 0; c < v_packs_ && !zero_grad_; ++c)
      p_.final_grad.template load<W>(p_.final_grad.at(batch, 0, c * W, head), p_.dk, width(c),
                                     grad_ + c * state_pack());
  }
  /// Stores the gradient of the state before the last chunk.
  void store_initial_gradient() {
    if (!p_.initial_grad.present()) return;
    if (zero_grad_) std::fill_n(grad_, state_size(), V(0));
    for (int c = 0; c < v_packs_; ++c)
      p_.initial_grad.template store<W>(p_.initial_grad.at(batch_, 0, c * W, head_), p_.dk,
                                        width(c), grad_ + c * state_pack(), p_.update);
  }

 protected:
  using base::at, base::beta_, base::decayed_keys, base::decayed_queries, base::factors_,
      base::k_packs_, base::kt_, base::of_keys_, base::of_queries, base::queries_of, base::start_,
      base::sum_of, base::transposed;
  using typename base::lane;

  attention_adjoint_rows(const problem_type& p, arena& memory)
      : base(p, p.queries(), memory), p_(p), v_packs_((p.dv + W - 1) / W) {
    const std::int64_t triangle = steps * steps, queries = p.queries();
    const std::int64_t keys = transposed(p.dk), values = transposed(p.dv);
    const auto take = [&](std::initializer_list<V**> arrays, std::int64_t size) {
      for (V** const to : arrays) *to = memory.take<V>(size);
    };
    take({&grad_}, state_size());
    take({&kp_, &scaled_, &xt_, &yt_, &rows_}, keys);
    take({&u_, &ut_, &dv_, &dvt_}, values);
    take({&k_products_, &m_, &em_, &l_}, triangle);
    take({&qp_}, queries * keys);
    take({&do_, &dot_}, queries * values);
    take({&q_products_, &el_}, queries * triangle);
    take({&k_norms_, &numbers_}, steps);
    take({&q_norms_}, queries * steps);
    take({&dots_}, steps * W);
  }

  [[nodiscard]] std::int64_t state_pack() const { return std::int64_t{p_.dk} * W; }
  [[nodiscard]] std::int64_t state_size() const { return state_pack() * v_packs_; }
  [[nodiscard]] int width(int c) const { return std::min(W, p_.dv - c * W); }
  [[nodiscard]] int key_width(int c) const { return std::min(W, p_.dk - c * W); }
  [[nodiscard]] int out_head(int q) const { return head_ * p_.queries() + q; }
  [[nodiscard]] V* query_packs(int q) const { return qp_ + q * transposed(p_.dk); }
  [[nodiscard]] V* out_grads(int q) const { return do_ + q * transposed(p_.dv); }
  [[nodiscard]] V* out_grads_t(int q) const { return dot_ + q * transposed(p_.dv); }

  void load_rows(std::int64_t t, int n, attention_residuals<const V> r) {
    this->load_decays(batch_, head_, t, 0, n);
    const int key = p_.key_head(head_);
    load_both(p_.k, key, t, n, kt_, kp_, k_norms_);
    if (p_.beta.present()) this->load_beta(batch_, head_, t, 0, n);
    for (int c = 0; c < v_packs_; ++c) {
      V* const u = u_ + c * steps * W;
      if (p_.beta.present())
        for (int i = 0; i < n; ++i)
          store_lanes(u + i * W, simd::mul(lane(beta_[i]), at(r.data + c * r.by_pack + i * W)));
      else
        p_.v.template load<W>(p_.v.at(batch_, t, c * W, head_), n, width(c), u);
    }
    for (int q = 0; q < p_.queries(); ++q) {
      load_both(p_.q, p_.query_head(out_head(q)), t, n, queries_of(q), query_packs(q),
                q_norms_ + q * steps);
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
    this->triangles(0, n, k_products_, q_products_);
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
  void value_gradients(std::int64_t t, int n, attention_residuals<const V> r_of) {
    this->scale_to_end(n, scaled_);
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
        tile.add_later({of_queries(q), 1, steps}, {out_grads(q) + pack * steps * W, W, steps * W},
                       j, n);
      V* const dv = dv_ + pack * steps * W;
      if (delta) {
        tile.add_rest({of_keys_, 1, steps}, {dv, W, steps * W}, j, n);
        simd::detail::unrolled<rows>([&](auto above) SCANREC_LAMBDA {
          constexpr int r = rows - 1 - above;
          simd::detail::unrolled<tile_type::packs>([&](auto p) SCANREC_LAMBDA {
            lane& x = tile.x[r][p];
            simd::detail::unrolled<above>([&](auto later) SCANREC_LAMBDA {
              constexpr int k = rows - 1 - later;
              x = simd::fma(lane(of_keys_[(j + k) * steps + j + r]), tile.x[k][p], x);
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
  // Adds rows to the gradient of queries or keys. With normalised x, these are (rows - x (x .
  // rows)) / norm.
  void add_rows(const shared_gradient<V>& to, int head, std::int64_t t, int n, const V* x,
                const V* norms, V* of) const {
    if (!to.to.present()) return;
    for (int i = 0; i < n && p_.normalise; ++i) {
      lane sum = simd::constant<lane>(0);
      for (int c = 0; c < k_packs_; ++c)
        sum = simd::fma(at(x + (c * steps + i) * W), at(of + (c * steps + i) * W), sum);
      const lane dot(-sum_of(sum));
      for (int c = 0; c < k_packs_; ++c) {
        V* const row = of + (c * steps + i) * W;
        const lane rest = simd::fma(dot, at(x + (c * steps + i) * W), at(row));
        store_lanes(row, simd::mul(lane(norms[i]), rest));
      }
    }
    for (int c = 0; c < k_packs_; ++c)
      to.template add<W>(batch_, head, t, c * W, n, key_width(c), of + c * steps * W, p_.update);
  }
  // Replaces G by the gradient of the state before the chunk.
  void update_gradient(int n) {
    const bool delta = p_.beta.present();
    for (int q = 0; q < p_.queries() && !p_.key_gates; ++q)
      this->scale_columns(queries_of(q), start_, n, queries_of(q), false);
    if (delta) this->scale_columns(decayed_keys(), start_, n, scaled_, true);
    for_tiles<V>(0, p_.dk, v_packs_, [&](auto size, int d, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const to = grad_ + pack * state_pack() + d * W;
      tile.clear();
      if (!zero_grad_)
        tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
          x = simd::mul(lane(this->end_decay(d + r)), at(to + p * state_pack() + r * W));
        });
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_product({decayed_queries(q) + d * steps, steps, 1},
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
  V *qp_, *do_, *dot_;
  V *k_products_, *q_products_;  // k . k and q . k, with gates per head
  V *m_, *em_, *l_, *el_;  // M, -(E M + (E M)^T), L, E L; with gates per key: em_ = -M, el_ = L
  V *k_norms_, *q_norms_;  // 1 / norm
  V *numbers_, *dots_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
