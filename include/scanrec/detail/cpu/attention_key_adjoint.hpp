// SPDX-License-Identifier: BSD-3-Clause
// The gradients of queries, keys and gates of a chunk of linear attention with gates per key.
//
// In the notation of linear_attention_chunk_adjoint.hpp, and for one channel of keys,
//
//     dq[i] = e[i] (S dO[i]) + sum over j <= i of E[i][j] L[i][j] k[j]
//
// is the last value of a linear recurrence, whose gates are those of the chunk:
//
//     h[j] = a[j] h[j-1] + L[i][j] k[j],      h[-1] = S dO[i],      dq[i] = h[i]
//
// Its adjoint gives the parts of dk and da that belong to q[i]:
//
//     g[i] = q[i],      g[j-1] = a[j] g[j],      dk[j] += L[i][j] g[j],      da[j] += g[j] h[j-1]
//
// With the delta rule there is the same recurrence with k[i], -dv[i] and -M instead of q[i], dO[i]
// and L, and its last value is a part of dk[i].
//
// Within a block of 8 steps, all recurrences run step by step. Let b be the first step of the
// block, and end the step after it. The values h[b-1] are e[b-1] (S dO[i]) plus a product of L with
// the keys E[b-1][j] k[j] of earlier blocks. C[j] is the gradient of E[end-1][j] k[j] that comes
// from G and from later blocks, and s that of e[end-1]. One more recurrence gives their parts of dk
// and da: its inputs are C[j] k[j], and it starts from e[b-1] s plus the sum of E[b-1][j] k[j] C[j]
// over the earlier j. Nothing is divided by a gate.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/linear_attention_arrays.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A pack of channels of queries or keys, and what belongs to their recurrences, one per step.
template <class V>
struct attention_key_rows {
  const V* x = nullptr;        // (step, lane): q or k
  const V* weights = nullptr;  // (step, earlier step): L or -M
  V* sums = nullptr;           // (step, lane): S dO or -S dv; then the last values
  bool queries = true;
};

/// The gradients of a pack of channels of a chunk.
template <class V, int W>
class attention_key_adjoint {
  static constexpr int steps = attention_limits::steps, block = attention_limits::block;
  using lane = simd::lane_t<V, W>;

 public:
  /// For n steps with the rows `gates` and `keys`. e[b-1] begins at starts + b / 8 * by_block, and
  /// `starts` is null if S is 0.
  attention_key_adjoint(int n, const V* gates, const V* keys, const V* starts,
                        std::int64_t by_block)
      : n_(n), a_(gates), k_(keys), starts_(starts), by_block_(by_block) {
    for (int b = block; b < n; b += block) {
      lane rest = simd::constant<lane>(1);
      for (int j = b - 1; j >= b - block; --j) {
        store_lanes(decayed(b) + j * W, simd::mul(rest, at(k_, j)));
        rest = simd::mul(rest, at(a_, j));
      }
      for (int j = 0; j < b - block; ++j)
        store_lanes(decayed(b) + j * W, simd::mul(rest, at(decayed(b - block), j)));
    }
  }
  /// `c` has G u, and is overwritten. `s` are the row sums of S times G, element by element. Sets
  /// dk and da, and replaces the sums of the parts by the last values of their recurrences.
  void run(V* c, lane s, const attention_key_rows<V>* parts, int count, V* dk, V* da) {
    c_ = c, s_ = s, dk_ = dk, da_ = da;
    for (int b = (n_ - 1) / block * block; b >= 0; b -= block) {
      const int end = std::min(b + block, n_);
      later_steps(b, end);
      for (int part = 0; part < count; ++part) own_steps(b, end, parts[part]);
    }
  }

 private:
  static lane at(const V* rows, int i) { return load_lanes<lane>(rows + i * W); }
  // The first keys, times decays up to the border b.
  V* decayed(int b) { return decayed_ + b * (b - block) / (2 * block) * W; }

  // Computes the parts of the gradients of a block that come from later steps and from G. Then
  // moves C of earlier steps, and the sum of S G, to the border before the block.
  void later_steps(int b, int end) {
    lane x = simd::constant<lane>(0), y = simd::constant<lane>(1);
    if (starts_ != nullptr) x = simd::mul(load_lanes<lane>(starts_ + b / block * by_block_), s_);
    for (int j = 0; j < b; ++j) x = simd::fma(at(decayed(b), j), at(c_, j), x);
    for (int t = b; t < end; ++t) {
      store_lanes(da_ + t * W, x);
      x = simd::fma(at(a_, t), x, simd::mul(at(k_, t), at(c_, t)));
    }
    for (int t = end - 1; t >= b; --t) {
      store_lanes(da_ + t * W, simd::mul(y, at(da_, t)));
      store_lanes(dk_ + t * W, simd::mul(y, at(c_, t)));
      y = simd::mul(y, at(a_, t));
    }
    for (int j = 0; j < b; ++j) store_lanes(c_ + j * W, simd::mul(y, at(c_, j)));
    s_ = simd::mul(y, s_);
  }
  // Runs the recurrences of the steps of a block, and their adjoints.
  void own_steps(int b, int end, const attention_key_rows<V>& part) {
    V product[block * W];  // F x
    lane f = simd::constant<lane>(1);
    for (int i = b; i < end; ++i) {
      f = simd::mul(f, at(a_, i));
      const lane x = simd::mul(f, at(part.x, i));
      store_lanes(product + (i - b) * W, x);
      if (starts_ != nullptr) s_ = simd::fma(x, at(part.sums, i), s_);
    }
    initial_values(b, end, part);
    lane g[block], h[block], before[block][block];
    for (int i = b; i < end; ++i) g[i - b] = at(part.x, i), h[i - b] = at(part.sums, i);
    for (int t = b; t < end; ++t)
      for (int i = t; i < end; ++i) {
        lane& x = h[i - b];
        before[t - b][i - b] = x;
        x = simd::mul(at(a_, t), x);
        if (i > t || part.queries) x = simd::fma(lane(part.weights[i * steps + t]), at(k_, t), x);
      }
    for (int t = end - 1; t >= b; --t) {
      lane dk = at(dk_, t), da = at(da_, t);
      for (int i = t; i < end; ++i) {
        lane& x = g[i - b];
        if (i > t || part.queries) dk = simd::fma(lane(part.weights[i * steps + t]), x, dk);
        da = simd::fma(x, before[t - b][i - b], da);
        x = simd::mul(at(a_, t), x);
      }
      store_lanes(dk_ + t * W, dk), store_lanes(da_ + t * W, da);
    }
    for (int i = b; i < end; ++i) {
      store_lanes(part.sums + i * W, h[i - b]);
      if (!part.queries) store_lanes(dk_ + i * W, at(dk_, i) + h[i - b]);
    }
    const auto to_earlier = [&](auto size, int j, int) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, 1> tile;
      tile.each([&](lane& x, auto r, auto) SCANREC_LAMBDA { x = at(c_, j + r); });
      tile.add_product({part.weights + b * steps + j, 1, steps}, {product, W, 0}, end - b);
      tile.each([&](lane& x, auto r, auto) SCANREC_LAMBDA { store_lanes(c_ + (j + r) * W, x); });
    };
    attention_tiles<V, 1>::down(0, b, 0, to_earlier);
  }
  // The values h[b-1] of the recurrences of a block.
  void initial_values(int b, int end, const attention_key_rows<V>& part) {
    const auto f = [&](auto size, int i, int) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, 1> tile;
      tile.clear();
      if (starts_ != nullptr) {
        const lane start = load_lanes<lane>(starts_ + b / block * by_block_);
        tile.each([&](lane& x, auto r, auto)
                      SCANREC_LAMBDA { x = simd::mul(start, at(part.sums, i + r)); });
      }
      tile.add_product({part.weights + i * steps, steps, 1}, {decayed(b), W, 0}, b);
      tile.each([&](lane& x, auto r, auto)
                    SCANREC_LAMBDA { store_lanes(part.sums + (i + r) * W, x); });
    };
    attention_tiles<V, 1>::down(b, end, 0, f);
  }

  int n_;
  const V *a_, *k_, *starts_;
  std::int64_t by_block_;
  V *c_ = nullptr, *dk_ = nullptr, *da_ = nullptr;
  lane s_;
  V decayed_[6 * block * W];  // for three borders
};

}  // namespace scanrec::detail::inline SCANREC_ABI
