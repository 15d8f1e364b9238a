// SPDX-License-Identifier: BSD-3-Clause
// The rows of a chunk of linear attention: queries, keys, decays, and the triangles of their
// products.
//
// Storage. A matrix is transposed, (channel, step), or in packs, (pack of channels, row, lane).
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/math.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A range of heads of a sequence, and a range of packs of their columns.
struct attention_part {
  std::int64_t batch = 0;
  int head = 0, heads = 1;
  int pack = 0, packs = 1;
};

/// Rows, one per step, in packs of columns: row i of pack c begins at data + c * by_pack + i * W.
template <class V, int W>
struct attention_pack_rows {
  V* data = nullptr;
  std::int64_t by_pack = 0;

  [[nodiscard]] V* row(std::int64_t pack, int i) const { return data + pack * by_pack + i * W; }
};

/// A gradient that several heads may share. Each head adds its part after the previous one.
template <class V>
struct shared_gradient {
  row_array<V> to;
  row_array<V> sums;               // present if `to` is shared and not stored in V
  bool first = true, last = true;  // whether this head is the first or last that shares it

  template <int W>
  void add(std::int64_t batch, int head, std::int64_t t, std::int64_t channel, int n, int count,
           V* rows, bool update) const {
    const auto put = [&](const row_array<V>& array, bool add) {
      array.template store<W>(array.at(batch, t, channel, head), n, count, rows, add);
    };
    if (!sums.present()) return put(to, update || !first);
    if (!first) {
      V before[attention_limits::steps * W];
      sums.template load<W>(sums.at(batch, t, channel, head), n, count, before);
      for (int i = 0; i < n * W; ++i) rows[i] = before[i] + rows[i];
    }
    if (last)
      put(to, update);
    else
      put(sums, false);
  }
};

/// The first step after t, up to `end`, at which a sequence of a packed batch begins; otherwise
/// `end`.
inline std::int64_t next_reset(const recurrence::reset_field& resets, std::int64_t batch,
                               std::int64_t t, std::int64_t end) {
  if (!resets.present()) return end;
  for (++t; t < end && !resets.at(batch, t, 0);) ++t;
  return t;
}

/// Loads rows of a chunk, and computes decays and triangles.
template <class V, int W>
class attention_rows {
 public:
  static constexpr int steps = attention_limits::steps;

 protected:
  using lane = simd::lane_t<V, W>;

  attention_rows(const linear_attention_problem<V>& p, arena& memory)
      : p_(p),
        k_packs_((p.dk + W - 1) / W),
        kt_(memory.take<V>(transposed(p.dk))),
        decays_(memory.take<V>(steps * steps)),
        start_(memory.take<V>(steps)),
        beta_(memory.take<V>(steps)),
        factors_(memory.take<V>(steps)),
        gates_(memory.take<double>(steps)),
        products_(memory.take<double>(steps + 1)) {}

  /// Elements of a matrix, transposed or in packs, with up to `channels` channels per step.
  static std::int64_t transposed(int channels) {
    return std::int64_t{(channels + W - 1) / W} * W * steps;
  }
  static lane at(const V* p) { return load_lanes<lane>(p); }

  // Loads steps [t, t + end - begin) of queries or keys into columns [begin, end) of a transposed
  // matrix, normalised if the call says so, and times `scale`. Uses `packs` as a buffer, where pack
  // i begins at packs + i * by_pack.
  void load_transposed(const row_array<V>& from, std::int64_t batch, int head, std::int64_t t,
                       int begin, int end, V scale, V* to, V* packs, std::int64_t by_pack) {
    const int n = end - begin;
    for (int pack = 0; pack < k_packs_; ++pack, packs += by_pack) {
      const int first = pack * W, count = std::min(W, p_.dk - first);
      from.template load<W>(from.at(batch, t, first, head), n, count, packs);
      to_columns(packs, begin, end, count, to + std::int64_t{first} * steps);
    }
    if (!p_.normalise && scale == V(1)) return;
    std::fill_n(factors_, steps, scale);
    if (p_.normalise) normalise(begin, end, scale, to);
    for (int d = 0; d < p_.dk; ++d) {
      V* const x = to + d * steps;
      if (begin == 0)
        for (int i = 0; i < n; i += W) store_lanes(x + i, simd::mul(at(factors_ + i), at(x + i)));
      else
        for (int i = begin; i < end; ++i) x[i] *= factors_[i];
    }
  }
  // The first rows of a pack become columns [begin, end) of `count` channels.
  static void to_columns(const V* packs, int begin, int end, int count, V* to) {
    if (begin % W == 0 && end - begin >= W / 4)
      return transpose_pack(packs, end - begin, to + begin);
    for (int i = begin; i < end; ++i)
      for (int k = 0; k < std::min(W, count); ++k) to[k * steps + i] = packs[(i - begin) * W + k];
  }
  // The first n rows of a pack become columns.
  static void transpose_pack(const V* rows, int n, V* to) {
    for (int i = 0; i < n; i += W) {
      lane square[W];
      simd::detail::unrolled<W>([&](auto k) SCANREC_LAMBDA { square[k] = at(rows + (i + k) * W); });
      if constexpr (W > 1) simd::transpose(square);
      simd::detail::unrolled<W>([&](auto k)
                                    SCANREC_LAMBDA { store_lanes(to + k * steps + i, square[k]); });
    }
  }
  // Rows of a matrix in packs become columns.
  static void transpose(const V* packs, int n, int channels, V* to) {
    for (int first = 0; first < channels; first += W)
      transpose_pack(packs + first * steps, n, to + first * steps);
  }
  // Rows of a transposed matrix, each step times its factor, become packs.
  void to_packs(const V* columns, const V* factors, int n, V* packs) const {
    for (int c = 0; c < k_packs_; ++c)
      for (int i = 0; i < n; i += W) {
        lane square[W];
        const lane factor = at(factors + i);
        simd::detail::unrolled<W>([&](auto d) SCANREC_LAMBDA {
          // Rows past dk are not stored.
          square[d] = c * W + d < p_.dk ? simd::mul(factor, at(columns + (c * W + d) * steps + i))
                                        : simd::constant<lane>(0);
        });
        if constexpr (W > 1) simd::transpose(square);
        simd::detail::unrolled<W>([&](auto k) SCANREC_LAMBDA {
          store_lanes(packs + (c * steps + i + k) * W, square[k]);
        });
      }
  }
  // to = the first n columns of a transposed matrix, each times its factor or minus its factor.
  void scale_columns(const V* columns, const V* factors, int n, V* to, bool negative) const {
    for (int d = 0; d < p_.dk; ++d)
      for (int i = 0; i < n; i += W) {
        const lane of = simd::mul(at(factors + i), at(columns + d * steps + i));
        store_lanes(to + d * steps + i, negative ? simd::negative(of) : of);
      }
  }
  // to[i] += or -= (x[i] . y[i]), for transposed x and y.
  void add_dots(const V* x, const V* y, int n, V* to, bool negative) const {
    for (int i = 0; i < n; i += W) {
      lane sum = simd::constant<lane>(0);
      for (int d = 0; d < p_.dk; ++d)
        sum = simd::fma(at(x + d * steps + i), at(y + d * steps + i), sum);
      store_lanes(to + i, at(to + i) + (negative ? simd::negative(sum) : sum));
    }
  }
  static V sum_of(lane x) {
    if constexpr (W == 1)
      return x;
    else
      return simd::sum(x);
  }
  // Computes rows [begin, end) of E, and e. Products are in double and rounded once: products of
  // rounded decays would drift, and differences of summed logarithms would cancel.
  void load_decays(std::int64_t batch, int head, std::int64_t t, int begin, int end) {
    const int n = end - begin;
    if (begin == 0) start_products();
    if (p_.gate.present()) {
      p_.gate.template load<1>(p_.gate.at(batch, t, 0, head), n, 1, start_ + begin);
      std::copy_n(start_ + begin, n, gates_ + begin);
      if (p_.logarithms) exponentials(begin, end);
    } else {
      std::fill_n(gates_ + begin, n, 1.0);
    }
    for (int i = begin; i < end; ++i) multiply_products(i);
  }
  // Continues a chunk of a stream with n gates.
  void resume_products(double* gates, int n) {
    gates_ = gates;
    start_products();
    for (int i = 0; i < n; ++i) multiply_products(i);
  }
  void load_beta(std::int64_t batch, int head, std::int64_t t, int begin, int end) {
    p_.beta.template load<1>(p_.beta.at(batch, t, 0, head), end - begin, 1, beta_ + begin);
  }

  // Calls store(i * 32 + j, x[i] . y[j]) for a pack of columns j at a time. Rows i are in [begin,
  // end). Columns are up to the diagonal and below `columns`, rounded up to packs. x and y are
  // transposed, with `channels` rows.
  template <class Store>
  static void dot_products(const V* x, const V* y, int channels, int begin, int end, int columns,
                           Store store) {
    const auto f = [&](auto size, int i, int pack) SCANREC_LAMBDA {
      using tile_type = attention_tile<V, W, decltype(size)::rows, 1>;
      if (pack * W >= i + tile_type::rows) return;
      tile_type tile;
      tile.clear();
      tile.add_product({x + i, 1, steps}, {y + pack * W, steps, 0}, channels);
      tile.each([&](lane& of, auto r, auto)
                    SCANREC_LAMBDA { store((i + r) * steps + pack * W, of); });
    };
    for (int pack = 0; pack * W < columns; ++pack) attention_tiles<V, 1>::down(begin, end, pack, f);
  }
  // Stores these products, or their negatives.
  static void triangle(const V* x, const V* y, int channels, int begin, int end, int columns, V* to,
                       bool negative) {
    dot_products(x, y, channels, begin, end, columns, [&](std::int64_t i, lane of) SCANREC_LAMBDA {
      store_lanes(to + i, negative ? simd::negative(of) : of);
    });
  }
  // Rows [begin, end) of x . y, up to the diagonal, and these numbers times E or -E. `products` may
  // be null.
  void decayed_triangle(const V* x, const V* y, int channels, int begin, int end, V* products,
                        V* decayed, bool negative) const {
    dot_products(x, y, channels, begin, end, end, [&](std::int64_t i, lane of) SCANREC_LAMBDA {
      if (products != nullptr) store_lanes(products + i, of);
      of = simd::mul(at(decays_ + i), of);
      store_lanes(decayed + i, negative ? simd::negative(of) : of);
    });
  }

  const linear_attention_problem<V>& p_;
  int k_packs_;
  V* kt_;      // keys, transposed
  V* decays_;  // (step, earlier step): E
  V* start_;   // e
  V *beta_, *factors_;
  double* gates_;  // a

  // The gradients of the gates. A gate a[g] is a factor of the gates from step j to step i, which
  // are E[i][g] a[g] E[g-1][j], for j < g <= i. j = -1 stands for the state before the chunk, and
  // i = n for the state after it. The gradient is the sum of E[i][g] E[g-1][j] times z[i][j]. This
  // coefficient is alpha[i] for j = -1, gamma[j] for i = n, and `after` for both. alpha is null if
  // the state is 0. `sums` has room for a row.
  void gate_gradients(int n, const V* z, const V* alpha, const V* gamma, V after, V* sums,
                      V* gradients) const {
    const V* const last = decays_ + (n - 1) * steps;
    for (int g = 0; g < n; ++g) {
      V of_start = 0;
      if (alpha != nullptr) of_start = last[g] * after;
      for (int i = g; i < n && alpha != nullptr; ++i)
        of_start = simd::fma(decays_[i * steps + g], alpha[i], of_start);
      for (int j = 0; j < g; j += W) {
        lane sum = simd::mul(lane(last[g]), at(gamma + j));
        for (int i = g; i < n; ++i)
          sum = simd::fma(lane(decays_[i * steps + g]), at(z + i * steps + j), sum);
        store_lanes(sums + j, sum);
      }
      if (g == 0 && alpha == nullptr) {  // a gate that is not used, and may be NaN
        gradients[g] = 0;
        continue;
      }
      V total = alpha == nullptr ? V(0) : (g > 0 ? start_[g - 1] : V(1)) * of_start;
      for (int j = 0; j < g; ++j) total = simd::fma(decays_[(g - 1) * steps + j], sums[j], total);
      gradients[g] = p_.logarithms ? static_cast<V>(gates_[g]) * total : total;
    }
  }

 private:
  void start_products() { std::fill_n(products_, steps, 0.0), products_[steps] = 1; }
  // Computes row i of E, and e[i], from those before.
  void multiply_products(int i) {
    for (int j = 0; j <= steps; ++j) products_[j] *= gates_[i];
    products_[i] = 1;
    for (int j = 0; j < steps; ++j) decays_[i * steps + j] = static_cast<V>(products_[j]);
    start_[i] = static_cast<V>(products_[steps]);
  }
  // Sets the factors to scale / sqrt(sum of squares + 1e-6).
  void normalise(int begin, int end, V scale, const V* x) {
    for (int i = begin; i < end; i += W) {
      const int first = std::min(i, steps - W);  // so that the pack lies within the matrix
      lane sum = simd::constant<lane>(0);
      for (int d = 0; d < p_.dk; ++d)
        sum = simd::fma(at(x + d * steps + first), at(x + d * steps + first), sum);
      store_lanes(factors_ + first, sum);
    }
    for (int i = begin; i < end; ++i)
      factors_[i] = scale / simd::square_root(factors_[i] + V(1e-6));
  }
  void exponentials(int begin, int end) {
    constexpr int lanes = simd::lanes_v<double>;
    using doubles = simd::lane_t<double, lanes>;
    for (int i = begin; i < end; i += lanes) {
      const int count = std::min(lanes, end - i);
      simd::store_some(gates_ + i, simd::exp_of_any(simd::load_some<doubles>(gates_ + i, count)),
                       count);
    }
  }

  double* products_;  // the last row of E, and the last e
};

}  // namespace scanrec::detail::inline SCANREC_ABI
