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

/// A chunk of a head, and the memory of its adjoint.
template <class V, int W>
struct attention_adjoint_chunk {
  std::int64_t t = 0;
  int n = 0;
  const V *state = nullptr, *grad = nullptr;  // S and G in packs; null: 0
  V* grad_before = nullptr;                   // receives G' and may be `grad`; null after a reset
  attention_pack_rows<V, W> r, du;            // with the delta rule
};

template <class V, int W>
class attention_adjoint_rows : protected attention_key_gates<V, W> {
  using base = attention_key_gates<V, W>;

 public:
  using base::steps;
  using problem_type = linear_attention_vjp_problem<V>;

  /// Begins a part of a head.
  void begin(const attention_part& part) { part_ = part; }

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
    take({&kp_, &scaled_, &xt_, &yt_, &dk_}, keys);
    take({&u_, &ut_, &dv_, &dvt_}, values);
    take({&k_products_, &m_, &em_, &l_}, triangle);
    take({&qp_, &dq_}, queries * keys);
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
  [[nodiscard]] int out_head(int q) const { return part_.head * p_.queries() + q; }
  [[nodiscard]] V* query_packs(int q) const { return qp_ + q * transposed(p_.dk); }
  [[nodiscard]] V* query_grads(int q) const { return dq_ + q * transposed(p_.dk); }
  [[nodiscard]] V* out_grads(int q) const { return do_ + q * transposed(p_.dv); }
  [[nodiscard]] V* out_grads_t(int q) const { return dot_ + q * transposed(p_.dv); }

  // Loads gates, beta, keys and queries of a chunk, and computes its triangles.
  void load_rows(const attention_adjoint_chunk<V, W>& c) {
    c_ = c;
    this->load_decays(part_.batch, part_.head, c.t, 0, c.n);
    load_both(p_.k, p_.key_head(part_.head), kt_, kp_, k_norms_);
    if (p_.beta.present()) this->load_beta(part_.batch, part_.head, c.t, 0, c.n);
    for (int q = 0; q < p_.queries(); ++q)
      load_both(p_.q, p_.query_head(out_head(q)), queries_of(q), query_packs(q),
                q_norms_ + q * steps);
    this->triangles(0, c.n, k_products_, q_products_);
  }
  // Loads queries or keys, transposed and in packs, and 1 / norm of each.
  void load_both(const row_array<V>& from, int head, V* columns, V* packs, V* norms) {
    this->load_transposed(from, part_.batch, head, c_.t, 0, c_.n, V(1), columns, packs, steps * W);
    if (!p_.normalise) return;
    std::copy_n(factors_, steps, norms);
    for (int pack = 0; pack < k_packs_; ++pack)
      for (int i = 0; i < c_.n; ++i) {
        V* const x = packs + (pack * steps + i) * W;
        store_lanes(x, simd::mul(lane(norms[i]), at(x)));
      }
  }
  // Loads the gradients of outputs times the scale, for packs [first, first + packs) of columns.
  void load_out_grads(int first, int packs) {
    for (int q = 0; q < p_.queries(); ++q)
      for (int c = first; c < first + packs; ++c) {
        V* const rows = out_grads(q) + c * steps * W;
        if (!p_.out_grad.present()) {
          std::fill_n(rows, c_.n * W, V(0));
          continue;
        }
        p_.out_grad.template load<W>(p_.out_grad.at(part_.batch, c_.t, c * W, out_head(q)), c_.n,
                                     width(c), rows);
        for (int i = 0; i < c_.n; ++i)
          store_lanes(rows + i * W, simd::mul(lane(p_.scale), at(rows + i * W)));
      }
  }
  // Loads u of all columns and, with the delta rule, computes dv and the gradient of beta.
  void load_values() {
    const bool delta = p_.beta.present();
    std::fill_n(dots_, steps * W, V(0));
    for (int c = 0; c < v_packs_; ++c) {
      V *const u = u_ + c * steps * W, *const dv = dv_ + c * steps * W;
      if (!delta)
        p_.v.template load<W>(p_.v.at(part_.batch, c_.t, c * W, part_.head), c_.n, width(c), u);
      for (int i = 0; delta && i < c_.n; ++i) {
        const lane beta(beta_[i]), r = at(c_.r.row(c, i)), du = at(c_.du.row(c, i));
        store_lanes(u + i * W, simd::mul(beta, r)), store_lanes(dv + i * W, simd::mul(beta, du));
        store_lanes(dots_ + i * W, simd::fma(du, r, at(dots_ + i * W)));
      }
    }
    if (!p_.beta_grad.present()) return;
    for (int i = 0; i < c_.n; ++i) numbers_[i] = sum_of(at(dots_ + i * W));
    p_.beta_grad.template store<1>(p_.beta_grad.at(part_.batch, c_.t, 0, part_.head), c_.n, 1,
                                   numbers_, p_.update);
  }

  // Computes du and dv, the gradient of values, for the columns of the part.
  void value_gradients() {
    this->scale_to_end(c_.n, scaled_);
    const bool delta = p_.beta.present();
    for_tiles_upwards<V>(c_.n, part_.packs, [&](auto size, int j, int of_part) SCANREC_LAMBDA {
      using tile_type = attention_tile<V, W, decltype(size)::rows, decltype(size)::packs>;
      constexpr int rows = tile_type::rows;
      const int pack = part_.pack + of_part;
      tile_type tile;
      tile.clear();
      if (c_.grad != nullptr)
        tile.add_product({scaled_ + j, 1, steps}, {c_.grad + pack * state_pack(), W, state_pack()},
                         p_.dk);
      for (int q = 0; q < p_.queries(); ++q)
        tile.add_later({of_queries(q), 1, steps}, {out_grads(q) + pack * steps * W, W, steps * W},
                       j, c_.n);
      V* const dv = dv_ + pack * steps * W;
      if (delta) {
        tile.add_rest({of_keys_, 1, steps}, {dv, W, steps * W}, j, c_.n);
        simd::detail::unrolled<rows>([&](auto above) SCANREC_LAMBDA {
          constexpr int r = rows - 1 - above;
          simd::detail::unrolled<tile_type::packs>([&](auto p) SCANREC_LAMBDA {
            lane& x = tile.x[r][p];
            simd::detail::unrolled<above>([&](auto later) SCANREC_LAMBDA {
              constexpr int k = rows - 1 - later;
              x = simd::fma(lane(of_keys_[(j + k) * steps + j + r]), tile.x[k][p], x);
            });
            store_lanes(c_.du.row(pack + p, j + r), x);
            x = simd::mul(lane(beta_[j + r]), x);
          });
        });
      }
      tile.each([&](lane& x, auto r, auto p)
                    SCANREC_LAMBDA { store_lanes(dv + p * steps * W + (j + r) * W, x); });
    });
    if (!p_.v_grad.present()) return;
    for (int c = part_.pack; c < part_.pack + part_.packs; ++c)
      p_.v_grad.template store<W>(p_.v_grad.at(part_.batch, c_.t, c * W, part_.head), c_.n,
                                  width(c), dv_ + c * steps * W, p_.update);
  }
  // to = A x, transposed, where A is S or G in packs and x is transposed with dv rows.
  void times_columns(const V* matrix, const V* x, V* to) const {
    for_tiles<V>(0, p_.dk, (c_.n + W - 1) / W, [&](auto size, int d, int pack) SCANREC_LAMBDA {
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
  void add_rows(const shared_gradient<V>& to, int head, const V* x, const V* norms, V* of) const {
    if (!to.to.present()) return;
    for (int i = 0; i < c_.n && p_.normalise; ++i) {
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
      to.template add<W>(part_.batch, head, c_.t, c * W, c_.n, key_width(c), of + c * steps * W,
                         p_.update);
  }
  // Computes the gradient of the state before the chunk, for the columns of the part. Overwrites
  // the transposed queries.
  void state_gradient() {
    const bool delta = p_.beta.present();
    const int n = c_.n;
    for (int q = 0; q < p_.queries() && !p_.key_gates; ++q)
      this->scale_columns(queries_of(q), start_, n, queries_of(q), false);
    if (delta) this->scale_columns(decayed_keys(), start_, n, scaled_, true);
    this->with_end_decays(n, [&](auto decay) {
      for_tiles<V>(0, p_.dk, part_.packs, [&](auto size, int d, int of_part) SCANREC_LAMBDA {
        attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
        const int pack = part_.pack + of_part;
        const std::int64_t first = pack * state_pack() + d * W;
        tile.clear();
        if (c_.grad != nullptr)
          tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
            x = simd::mul(lane(decay(d + r)), at(c_.grad + first + p * state_pack() + r * W));
          });
        for (int q = 0; q < p_.queries(); ++q)
          tile.add_product({decayed_queries(q) + d * steps, steps, 1},
                           {out_grads(q) + pack * steps * W, W, steps * W}, n);
        if (delta)
          tile.add_product({scaled_ + d * steps, steps, 1}, {dv_ + pack * steps * W, W, steps * W},
                           n);
        tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
          store_lanes(c_.grad_before + first + p * state_pack() + r * W, x);
        });
      });
    });
  }

  const problem_type& p_;
  int v_packs_;
  attention_part part_;
  attention_adjoint_chunk<V, W> c_;

  // Matrices of a chunk; *t are transposed, u_, dv_, do_ and *p are in packs.
  V *kp_, *scaled_, *xt_, *yt_, *dk_, *u_, *ut_, *dv_, *dvt_;
  V *qp_, *dq_, *do_, *dot_;
  V *k_products_, *q_products_;  // k . k and q . k, with gates per head
  V *m_, *em_, *l_, *el_;  // M, -(E M + (E M)^T), L, E L; with gates per key: em_ = -M, el_ = L
  V *k_norms_, *q_norms_;  // 1 / norm
  V *numbers_, *dots_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
