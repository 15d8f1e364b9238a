// SPDX-License-Identifier: BSD-3-Clause
// Products of gates per key, the keys and queries that they decay, and the triangles of a chunk of
// linear attention.
//
// The products of gates E[i][j] = a[j+1] ... a[i] and e[i] = a[0] ... a[i] have a number per
// channel of keys, and e[-1] = 1. An element of a triangle is the sum over channels of x[i] E[i][j]
// k[j], for queries or keys x.
//
// The chunk is divided into blocks of 8 steps. Let b be the first step of the block of i, and F[i]
// = a[b] ... a[i]. Then e[i] = F[i] e[b-1]. If j is in an earlier block, E[i][j] = F[i] E[b-1][j],
// and the element is the dot product of the rows F[i] x[i] and E[b-1][j] k[j]. If j is in the same
// block, k[j] is multiplied by one gate after the other. So there are no quotients, and gates of
// magnitude at most 1 make no number larger.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/detail/simd/moves.hpp>
#include <scanrec/linear_attention_stream.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The rows of a chunk, with gates per head or per key.
template <class V, int W>
class attention_key_gates : protected attention_rows<V, W> {
  using base = attention_rows<V, W>;
  using rows = attention_gate_rows<V>;

 public:
  using base::steps;

 protected:
  using base::at, base::decays_, base::k_packs_, base::kt_, base::p_, base::start_;
  using typename base::lane;
  static constexpr int block = attention_limits::block;

  // For `queries` query heads.
  attention_key_gates(const linear_attention_problem<V>& p, int queries, arena& memory)
      : base(p, memory),
        queries_(queries),
        qt_(memory.take<V>(queries * base::transposed(p.dk))),
        of_keys_(memory.take<V>(p.beta.present() ? steps * steps : 0)),
        of_queries_(memory.take<V>(std::int64_t{queries} * steps * steps)),
        g_(rows::at(memory.take<std::byte>(p.key_gates ? rows::bytes(channels()) : 0), channels())),
        end_decays_(memory.take<V>(p.key_gates ? channels() : 0)),
        ft_(memory.take<V>(p.key_gates ? base::transposed(p.dk) : 0)),
        decayed_(memory.take<V>(p.key_gates ? (1 + queries) * base::transposed(p.dk) : 0)) {}

  [[nodiscard]] int channels() const { return k_packs_ * W; }
  [[nodiscard]] V* queries_of(int q) const { return qt_ + q * base::transposed(p_.dk); }
  [[nodiscard]] V* of_queries(int q) const { return of_queries_ + std::int64_t{q} * steps * steps; }
  // With gates per key, e times queries or keys. Otherwise queries or keys themselves, since e is a
  // factor of products with them.
  [[nodiscard]] V* decayed_queries(int q) const {
    return p_.key_gates ? decayed_ + (1 + q) * base::transposed(p_.dk) : queries_of(q);
  }
  [[nodiscard]] V* decayed_keys() const { return p_.key_gates ? decayed_ : kt_; }

  // Loads gates of the steps [begin, end) of the chunk, and computes their products.
  void load_decays(std::int64_t batch, int head, std::int64_t t, int begin, int end) {
    if (!p_.key_gates) return base::load_decays(batch, head, t, begin, end);
    std::fill_n(start_, steps, V(1));  // e is a factor of queries and keys instead
    for (int c = 0; c < k_packs_; ++c)
      p_.gate.template load<W>(p_.gate.at(batch, t, c * W, head), end - begin,
                               std::min(W, p_.dk - c * W), g_.stored + (c * steps + begin) * W);
    take_gates(begin, end);
  }
  // Computes rows [begin, end) of the triangles. With gates per key, also columns [begin, end) of e
  // times keys and queries, whose earlier columns are overwritten. With gates per head,
  // `k_products` and `q_products` receive products without decays, unless they are null.
  void triangles(int begin, int end, V* k_products = nullptr, V* q_products = nullptr) {
    const bool delta = p_.beta.present();
    if (p_.key_gates)
      return key_triangles(begin, end, [&](auto f) {
        if (delta) f(kt_, decayed_keys(), of_keys_, true);
        for (int q = 0; q < queries_; ++q)
          f(queries_of(q), decayed_queries(q), of_queries(q), false);
      });
    if (delta) this->decayed_triangle(kt_, kt_, p_.dk, begin, end, k_products, of_keys_, true);
    for (int q = 0; q < queries_; ++q)
      this->decayed_triangle(queries_of(q), kt_, p_.dk, begin, end,
                             q_products == nullptr ? nullptr : q_products + q * steps * steps,
                             of_queries(q), false);
  }
  // Sets `to` to the keys E[n-1][j] k[j] of the first n steps, transposed. With gates per key, also
  // finds e[n-1].
  void scale_to_end(int n, V* to) {
    if (!p_.key_gates) {
      this->scale_columns(kt_, decays_ + (n - 1) * steps, n, to, false);
      return;
    }
    const int border = n / block * block;
    for (int d = 0; d < p_.dk; ++d) {
      const V* const keys = g_.keys + d * steps;
      std::copy_n(keys, n, to + d * steps);
      for (int j = 0; j < border && border < n; ++j) to[d * steps + j] *= g_.within[d];
    }
    for (int c = 0; c < k_packs_; ++c) decays_so_far(c, end_decays_ + c * W);
  }
  // Calls f(decay), where decay(d) is e[n-1] of channel d, after scale_to_end(n). It is one
  // number with gates per head, which the compiler keeps in a register.
  template <class F>
  void with_end_decays(int n, F f) const {
    if (p_.key_gates)
      f([of = end_decays_](int d) SCANREC_LAMBDA { return of[d]; });
    else
      f([e = start_[n - 1]](int) SCANREC_LAMBDA { return e; });
  }
  // Continues a chunk of a stream, which has n steps. `memory` has the gate rows of `known` steps,
  // which are more than n if steps were dropped.
  void resume_decays(double* gates, std::byte* memory, int n, int known) {
    if (!p_.key_gates) return base::resume_products(gates, n);
    g_ = rows::at(memory, channels());
    if (known == n) return;
    take_gates(0, n);
    for (int i = 0; i < n; ++i) {
      append_key(i);
      if ((i + 1) % block == 0) end_block(i + 1 - block);
    }
  }

  int queries_;
  V* qt_;          // queries, transposed
  V* of_keys_;     // (step, earlier step): -E (k . k)
  V* of_queries_;  // (step, earlier step): E (q . k)
  rows g_;

 private:
  // Computes rows [begin, end) of triangles, and e times keys and queries. each(f) calls f(x,
  // decayed, triangle, negative) for the keys and each of the queries x, which are transposed.
  // `decayed` receives F x, and then e x.
  template <class Each>
  void key_triangles(int begin, int end, Each each) {
    each([&](const V* x, V* decayed, V*, bool) { decay_in_block(x, begin, end, decayed); });
    for (int i = begin; i < end;)
      if (W > 1 && i % unit == 0 && i + unit <= end) {
        for (int first = i; first < i + unit; first += block) {
          each([&](const V*, const V* decayed, V* to, bool negative) {
            base::triangle(decayed, g_.keys, p_.dk, first, first + block, first, to, negative);
          });
          end_block(first);
        }
        each([&](const V* x, const V*, V* to, bool negative) { own_blocks(i, x, to, negative); });
        i += unit;
      } else {
        append_key(i);
        each([&](const V* x, const V* decayed, V* to, bool negative) {
          one_row(i, x, decayed, to, negative);
        });
        if (++i % block == 0) end_block(i - block);
      }
    each([&](const V*, V* decayed, V*, bool) { decay_from_start(decayed, begin, end); });
  }
  // Sets `to` to F x, in the packs that contain columns [begin, end).
  void decay_in_block(const V* x, int begin, int end, V* to) const {
    for (int d = 0; d < p_.dk; ++d)
      for (int i = begin / W * W; i < end; i += W)
        store_lanes(to + d * steps + i, simd::mul(at(ft_ + d * steps + i), at(x + d * steps + i)));
  }
  // Turns F x into e x, in the blocks that contain columns [begin, end). In the first block, e = F.
  void decay_from_start(V* x, int begin, int end) const {
    for (int d = 0; d < p_.dk; ++d)
      for (int first = std::max(begin / block, 1) * block; first < end; first += block)
        multiply_block(x + d * steps + first, g_.borders[first / block * channels() + d]);
  }
  // Steps that own_blocks() processes together: one register or one block, whichever is more.
  static constexpr int unit = std::max(block, simd::leaf_lanes<V>);

  static void multiply_block(V* x, V factor) {
    typename simd::raw<V, block>::type of;
    std::memcpy(&of, x, sizeof of);
    of *= factor;
    std::memcpy(x, &of, sizeof of);
  }
  // Computes a, F and e of the steps [begin, end) from the stored gates.
  void take_gates(int begin, int end) {
    for (int c = 0; c < k_packs_; ++c) {
      V a[steps * W], f[steps * W];
      V* const within = g_.within + c * W;
      double* const total = g_.total + c * W;
      if (begin == 0) std::fill_n(total, W, p_.logarithms ? 0.0 : 1.0);
      for (int i = begin; i < end; ++i) {
        const V* const stored = g_.stored + (c * steps + i) * W;
        const lane x = p_.logarithms ? simd::exp_of_any(at(stored)) : at(stored);
        if (i % block == 0) decays_so_far(c, g_.borders + i / block * channels() + c * W);
        store_lanes(a + (i - begin) * W, x);
        const lane product = i % block == 0 ? x : simd::mul(at(within), x);
        store_lanes(f + (i - begin) * W, product), store_lanes(within, product);
        for (int l = 0; l < W; ++l) {
          const double next = stored[l];
          total[l] = p_.logarithms ? total[l] + next : total[l] * next;
        }
      }
      base::to_columns(a, begin, end, p_.dk - c * W, g_.gates + c * W * steps);
      base::to_columns(f, begin, end, p_.dk - c * W, ft_ + c * W * steps);
    }
  }
  // The product of the gates so far, for a pack of channels. It multiplies the state in every
  // chunk, so it is computed in double and rounded once.
  void decays_so_far(int c, V* to) const {
    constexpr int lanes = std::min(W, simd::lanes_v<double>);
    using doubles = simd::lane_t<double, lanes>;
    const double* const total = g_.total + c * W;
    for (int l = 0; l < W; l += lanes) {
      double x[lanes];
      const doubles of = load_lanes<doubles>(total + l);
      store_lanes(x, p_.logarithms ? simd::exp_of_any(of) : of);
      std::copy_n(x, lanes, to + l);
    }
  }
  // Multiplies the keys before step i in its block by a[i], and appends k[i].
  void append_key(int i) {
    for (int d = 0; d < p_.dk; ++d) {
      V* const keys = g_.keys + d * steps;
      const V gate = g_.gates[d * steps + i];
      for (int j = i / block * block; j < i; ++j) keys[j] *= gate;
      keys[i] = kt_[d * steps + i];
    }
  }
  // Multiplies the keys before a block by its gates. Sets its own keys to E[i][j] k[j], where i is
  // its last step.
  void end_block(int first) {
    for (int d = 0; d < p_.dk; ++d) {
      V* const keys = g_.keys + d * steps;
      const V *const gates = g_.gates + d * steps + first, *const k = kt_ + d * steps + first;
      V of[block], rest = 1;
      for (int j = block - 1; j >= 0; --j) of[j] = k[j] * rest, rest *= gates[j];
      for (int j = 0; j < first; j += block) multiply_block(keys + j, rest);
      std::copy_n(of, block, keys + first);
    }
  }
  // The rows [first, first + unit), in the columns of their own blocks. Lane i of sums[back] is the
  // element of step first + i and the step `back` before it.
  void own_blocks(int first, const V* x, V* to, bool negative) const {
    using lanes = simd::lane_t<V, unit>;
    lanes sums[block];
    for (lanes& sum : sums) sum = simd::constant<lanes>(0);
    for (int d = 0; d < p_.dk; ++d) {
      const auto row = [&](const V* of) { return load_lanes<lanes>(of + d * steps + first); };
      const lanes of = row(x), gates = row(g_.gates);
      lanes keys = row(kt_);
      sums[0] = simd::fma(of, keys, sums[0]);
      simd::detail::unrolled<block - 1>([&](auto back) SCANREC_LAMBDA {
        keys = simd::mul(simd::slide_in<1>(keys, keys), gates);
        sums[back + 1] = simd::fma(of, keys, sums[back + 1]);
      });
    }
    for (int back = 0; back < block; ++back) {
      V numbers[unit];
      store_lanes(numbers, negative ? simd::negative(sums[back]) : sums[back]);
      for (int i = 0; i < unit; ++i)
        if (i % block >= back) to[(first + i) * steps + first + i - back] = numbers[i];
    }
  }
  // Row i of a triangle. `decayed` is F x.
  void one_row(int i, const V* x, const V* decayed, V* to, bool negative) const {
    const int own = i / block * block;
    for (int j = 0; j <= i; j += W) {
      attention_tile<V, W, 1, 1> earlier, same;
      const right_factor<V> keys{g_.keys + j, steps, 0};
      V numbers[W];
      if (j < own) {
        earlier.clear(), earlier.add_product({decayed + i, 0, steps}, keys, p_.dk);
        store_lanes(numbers, earlier.x[0][0]);
        for (int l = 0; l < W && j + l < own; ++l)
          to[i * steps + j + l] = negative ? -numbers[l] : numbers[l];
      }
      if (j + W > own) {
        same.clear(), same.add_product({x + i, 0, steps}, keys, p_.dk);
        store_lanes(numbers, same.x[0][0]);
        for (int l = std::max(0, own - j); l < W && j + l <= i; ++l)
          to[i * steps + j + l] = negative ? -numbers[l] : numbers[l];
      }
    }
  }

  V* end_decays_;  // (channel), with gates per key
  V* ft_;          // F of the steps of the last append, transposed
  V* decayed_;     // e times keys and times queries, transposed
};

}  // namespace scanrec::detail::inline SCANREC_ABI
