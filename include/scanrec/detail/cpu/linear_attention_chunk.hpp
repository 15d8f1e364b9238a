// SPDX-License-Identifier: BSD-3-Clause
// A chunk of up to 32 steps of some heads of linear attention, and the states before it.
//
// With a[t] the gate, E[i][j] = a[j+1] ... a[i], e[i] = a[0] ... a[i] (indices count the steps of
// the chunk), and S the state before the chunk:
//
//     r[i] = v[i] - e[i] S^T k[i] - sum over j < i of E[i][j] (k[i] . k[j]) u[j]
//     u[i] = beta[i] r[i]
//     o[i] = e[i] S^T q[i] + sum over j <= i of E[i][j] (q[i] . k[j]) u[j]
//     S'   = e[n-1] S + sum over j of E[n-1][j] k[j] u[j]^T
//
// Without the delta rule, u = v. Rows of u and o depend only on rows before them, so appending n
// steps at once, or one after the other, has the same bits. The triangles E (k . k) and E (q . k)
// serve all columns of the head. With gates per key, e and E have a number per channel of keys, and
// attention_key_gates.hpp computes the triangles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <scanrec/detail/cpu/attention_key_gates.hpp>
#include <scanrec/detail/cpu/attention_rows.hpp>
#include <scanrec/detail/cpu/attention_tile.hpp>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/linear_attention.hpp>
#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/linear_attention_stream.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Where states are: element (key, lane) of a pack of columns of a head. States have the strides of
/// an array, or are in packs, (head, column pack, key, lane).
template <class V>
struct attention_states {
  V* data = nullptr;
  std::int64_t by_head = 0, by_pack = 0, by_key = 0;
};

template <class V, int W>
class linear_attention_chunk : attention_key_gates<V, W> {
  using base = attention_key_gates<V, W>;
  using base::at, base::beta_, base::decayed_keys, base::decayed_queries, base::kt_, base::of_keys_,
      base::of_queries, base::p_, base::queries_, base::queries_of, base::start_;
  using typename base::lane;

 public:
  using base::steps;

  /// For parts of up to `heads` heads and `packs` packs of columns.
  linear_attention_chunk(const linear_attention_problem<V>& p, int heads, int packs, arena& memory)
      : base(p, p.out.present() ? p.queries() : 0, memory),
        memory_(memory.take<V>(std::int64_t{heads} * packs * p.dk * W)),
        u_(memory.take<V>(std::int64_t{packs} * steps * W)),
        stage_(memory.take<V>(steps * W)),
        scaled_(memory.take<V>(base::transposed(p.dk))),
        out_(memory.take<V>(p.out.present() ? panel_packs * steps * W : 0)) {}

  /// Sets the part to which the next calls belong.
  void use(const attention_part& part) { part_ = part; }
  /// Begins a part of a sequence with the initial states.
  void begin(const attention_part& part) { begin_at(part, memory_); }
  /// The same, with memory for the states at `s`.
  void begin_at(const attention_part& part, V* s) {
    use(part);
    resume(s, true, s);
    if (p_.initial.present()) load_states();
  }
  /// Begins a part of a call of at most one chunk. The states stay in the arrays of the call.
  void begin_in_place(const attention_part& part) {
    part_ = part;
    clear();
    if (p_.initial.present()) s_ = in_array(p_.initial), zero_state_ = false;
    if (p_.final_state.present()) folded_ = in_array(p_.final_state);
  }
  /// Whether begin_in_place() may be used.
  static bool fits_in_place(const linear_attention_problem<V>& p) {
    const auto plain = [&](const row_array<V>& array) {
      return !array.present() || (array.access == &rows_of<V, V> && array.strides.channel == 1);
    };
    return p.time > 0 && p.time <= steps && p.dv % W == 0 && !p.resets.present() &&
           !p.states.present() && plain(p.initial) && plain(p.final_state);
  }
  /// Sets the states to 0 and starts a chunk.
  void clear() { n_ = 0, zero_state_ = true; }

  /// Appends n steps, from step t of the sequence, and stores their outputs. With `fold`, then
  /// replaces the states by those after these steps and starts a new chunk. Keys and values
  /// are kept for one head only. So with several heads, an append that does not fold must be the
  /// last one, or be followed by clear().
  void append(std::int64_t t, int n, bool fold) {
    loaded_key_ = loaded_query_ = -1;
    for (int head = 0; head < part_.heads; ++head) append_to(head, t, n, fold);
    n_ = fold ? 0 : n_ + n;
    if (fold) zero_state_ = false, s_ = folded_;
  }
  /// Starts a chunk. The states before it are at `s`, or 0 if `zero`. Folding the chunk stores the
  /// next ones at `next`.
  void resume(V* s, bool zero, V* next) {
    s_ = in_packs(s), folded_ = in_packs(next), zero_state_ = zero, n_ = 0;
  }
  [[nodiscard]] bool zero_state() const { return zero_state_; }
  /// Continues a stream with one head of a sequence.
  void resume_stream(const typename linear_attention_stream<V>::head& from, std::int64_t batch,
                     int head, bool first) {
    part_ = {.batch = batch, .head = head, .heads = 1, .pack = 0, .packs = (p_.dv + W - 1) / W};
    s_ = folded_ = in_packs(from.state), u_ = from.values;
    kt_ = from.keys;
    n_ = from.steps, zero_state_ = from.zero_state;
    if (first) {
      clear();
      if (p_.initial.present()) load_states();
    }
    this->resume_decays(from.gates, from.key_gates, n_, from.gate_steps);
  }
  [[nodiscard]] int count() const { return n_; }
  /// Stores the residuals r of the next steps, if `r` has memory. Its first pack is the first pack
  /// of columns of the part.
  void keep_residuals(const attention_pack_rows<V, W>& r) { residuals_ = r; }
  /// Loads a state of the part's only head into packs at `to`.
  void load_state(const row_array<V>& from, std::int64_t element, V* to) {
    for (int c = 0; c < part_.packs; ++c)
      from.template load<W>(from.at(element, 0, column(c), part_.head), p_.dk, width(c),
                            to + std::int64_t{c} * p_.dk * W);
  }
  /// Stores the state after the steps so far, without ending the chunk. For streams.
  void store_next_state(const row_array<V>& to, std::int64_t element) {
    if (n_ == 0) return store_states(to, element);
    const attention_states<V> own = s_;
    folded_ = in_packs(memory_);
    this->scale_to_end(n_, scaled_);
    for (int c = 0; c < part_.packs; c += panel_packs)
      update_state(n_, 0, c, std::min(panel_packs, part_.packs - c));
    const bool zero = std::exchange(zero_state_, false);
    s_ = folded_;
    store_states(to, element);
    s_ = folded_ = own, zero_state_ = zero;
  }
  /// Stores the states before the chunk. `element` is the index along the batch axis.
  void store_states(const row_array<V>& to, std::int64_t element) {
    if (zero_state_) std::fill_n(s_.data, part_.heads * s_.by_head, V(0));
    each_pack(to, element, [&](std::byte* place, int width, const V* state) {
      to.template store<W>(place, p_.dk, width, state, false);
    });
  }

 private:
  // ---- memory ----------------------------------------------------------------------------------

  [[nodiscard]] attention_states<V> in_packs(V* data) const {
    const std::int64_t pack = std::int64_t{p_.dk} * W;
    return {data, pack * part_.packs, pack, W};
  }
  [[nodiscard]] attention_states<V> in_array(const row_array<V>& of) const {
    return {reinterpret_cast<V*>(of.at(part_.batch, 0, column(0), part_.head)), of.strides.group, W,
            of.strides.time};
  }
  // A pack of columns of the state of a head.
  [[nodiscard]] right_factor<V> state(int head, int c) const {
    return {s_.data + head * s_.by_head + c * s_.by_pack, s_.by_key, s_.by_pack};
  }
  void load_states() {
    zero_state_ = false;
    each_pack(p_.initial, part_.batch, [&](std::byte* from, int width, V* state) {
      p_.initial.template load<W>(from, p_.dk, width, state);
    });
  }
  [[nodiscard]] V* values(int c) const { return u_ + std::int64_t{c} * steps * W; }
  [[nodiscard]] int out_head(int head, int q) const {
    return (part_.head + head) * p_.queries() + q;
  }
  // The first column of a pack, and the number of its columns.
  [[nodiscard]] std::int64_t column(int c) const { return std::int64_t{part_.pack + c} * W; }
  [[nodiscard]] int width(int c) const {
    return static_cast<int>(std::min<std::int64_t>(W, p_.dv - column(c)));
  }
  // Calls f(element, columns, state) for the packs of all states, which are in packs.
  template <class F>
  void each_pack(const row_array<V>& array, std::int64_t element, F f) {
    for (int head = 0; head < part_.heads; ++head)
      for (int c = 0; c < part_.packs; ++c)
        f(array.at(element, 0, column(c), part_.head + head), width(c),
          s_.data + head * s_.by_head + c * s_.by_pack);
  }

  // ---- one head --------------------------------------------------------------------------------

  void append_to(int head, std::int64_t t, int n, bool fold) {
    const int begin = n_, end = n_ + n, own = part_.head + head, key = p_.key_head(own);
    this->load_decays(part_.batch, own, t, begin, end);
    if (std::exchange(loaded_key_, key) != key)
      this->load_transposed(p_.k, part_.batch, key, t, begin, end, V(1), kt_, stage_, 0);
    if (p_.beta.present()) this->load_beta(part_.batch, own, t, begin, end);
    for (int q = 0; q < queries_; ++q) {
      const int query = p_.query_head(out_head(head, q));
      if (std::exchange(loaded_query_, query) != query)
        this->load_transposed(p_.q, part_.batch, query, t, begin, end, p_.scale, queries_of(q),
                              stage_, 0);
    }
    this->triangles(begin, end);
    if (fold) this->scale_to_end(end, scaled_);
    for (int first = 0; first < part_.packs; first += panel_packs) {
      const int packs = std::min(panel_packs, part_.packs - first);
      for (int c = first; c < first + packs; ++c)
        p_.v.template load<W>(p_.v.at(part_.batch, t, column(c), own), n, width(c),
                              values(c) + begin * W);
      int done = 0;  // query heads
      if (p_.beta.present() && n == 1 && queries_ > 0)
        step(begin, head, first, packs), store_rows(done++, t, begin, end, head, first, packs);
      else if (p_.beta.present())
        solve(begin, end, head, first, packs);
      for (; done < queries_; ++done) {
        compute_outputs(done, begin, end, head, first, packs);
        store_rows(done, t, begin, end, head, first, packs);
      }
      if (fold) update_state(end, head, first, packs);
    }
  }

  // ---- products --------------------------------------------------------------------------------

  // S^T x for the rows of a tile. `x` is transposed.
  template <class Tile>
  SCANREC_INLINE void times_state(Tile& tile, const V* x, int row, right_factor<V> state) const {
    tile.clear();
    if (!zero_state_) tile.add_product({x + row, 1, steps}, state, p_.dk);
  }
  // Replaces rows [begin, end) of v by u.
  void solve(int begin, int end, int head, int first, int packs) {
    for_tiles<V>(begin, end, packs, [&](auto size, int i, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      V* const u = values(first + pack);
      times_state(tile, decayed_keys(), i, state(head, first + pack));
      tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
        const lane v = at(u + p * steps * W + (i + r) * W);
        x = zero_state_ ? v : simd::fma(lane(-start_[i + r]), x, v);
      });
      const V* const n = of_keys_ + i * steps;
      tile.add_product({n, steps, 1}, {u, W, steps * W}, i);
      tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
        // Rows of the tile before this one are complete.
        simd::detail::unrolled<r>([&](auto j) SCANREC_LAMBDA {
          x = simd::fma(lane(n[r * steps + i + j]), tile.x[j][p], x);
        });
        if (residuals_.data != nullptr) store_lanes(residuals_.row(first + pack + p, i + r), x);
        x = simd::mul(lane(beta_[i + r]), x);
        store_lanes(u + p * steps * W + (i + r) * W, x);
      });
    });
  }
  // Computes rows [begin, end) of the outputs of a query head.
  void compute_outputs(int q, int begin, int end, int head, int first, int packs) {
    for_tiles<V>(begin, end, packs, [&](auto size, int i, int pack) SCANREC_LAMBDA {
      attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
      const V* const u = values(first + pack);
      times_state(tile, decayed_queries(q), i, state(head, first + pack));
      // Without a state, start_ may be infinite.
      if (!zero_state_)
        tile.each([&](lane& x, auto r, auto)
                      SCANREC_LAMBDA { x = simd::mul(lane(start_[i + r]), x); });
      const V* const of = of_queries(q) + i * steps;
      tile.add_product({of, steps, 1}, {u, W, steps * W}, i);
      tile.add_lower({of + i, steps, 1}, {u + i * W, W, steps * W});
      tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
        store_lanes(out_ + (pack + p) * steps * W + (i + r) * W, x);
      });
    });
  }
  void store_rows(int q, std::int64_t t, int begin, int end, int head, int first, int packs) const {
    for (int c = 0; c < packs; ++c)
      p_.out.template store<W>(p_.out.at(part_.batch, t, column(first + c), out_head(head, q)),
                               end - begin, width(first + c), out_ + (c * steps + begin) * W,
                               false);
  }
  // solve() and compute_outputs() for one step and the first query head, in one pass over the
  // state.
  void step(int i, int head, int first, int packs) {
    const V *const k = decayed_keys(), *const q = decayed_queries(0);
    const V *const n = of_keys_ + i * steps, *const of = of_queries(0) + i * steps;
    const auto columns = [&](auto size, int pack) SCANREC_LAMBDA {
      constexpr int count = decltype(size)::packs;
      attention_tile<V, W, 1, count> r, o;
      r.clear(), o.clear();
      const right_factor<V> s = state(head, first + pack);
      for (int d = 0; d < p_.dk && !zero_state_; ++d) {
        const lane of_key(k[d * steps + i]), of_query(q[d * steps + i]);
        r.each([&](lane& x, auto, auto p) SCANREC_LAMBDA {
          lane row = at(s.data + d * s.by_k + p * s.by_pack);
          keep_loaded(row);
          x = simd::fma(of_key, row, x), o.x[0][p] = simd::fma(of_query, row, o.x[0][p]);
        });
      }
      V* const u = values(first + pack);
      r.each([&](lane& x, auto, auto p) SCANREC_LAMBDA {
        const lane v = at(u + p * steps * W + i * W);
        x = zero_state_ ? v : simd::fma(lane(-start_[i]), x, v);
        if (!zero_state_) o.x[0][p] = simd::mul(lane(start_[i]), o.x[0][p]);
      });
      r.add_product({n, steps, 1}, {u, W, steps * W}, i);
      o.add_product({of, steps, 1}, {u, W, steps * W}, i);
      r.each([&](lane& x, auto, auto p) SCANREC_LAMBDA {
        x = simd::mul(lane(beta_[i]), x);
        store_lanes(u + p * steps * W + i * W, x);
        store_lanes(out_ + (pack + p) * steps * W + i * W, simd::fma(lane(of[i]), x, o.x[0][p]));
      });
    };
    int pack = 0;
    for (; pack + 2 <= packs; pack += 2) columns(tile_size<1, 2>{}, pack);
    for (; pack < packs; ++pack) columns(tile_size<1, 1>{}, pack);
  }
  // Replaces columns of the state by those after n steps.
  void update_state(int n, int head, int first, int packs) {
    this->with_end_decays(n, [&](auto decay) {
      for_tiles<V>(0, p_.dk, packs, [&](auto size, int d, int pack) SCANREC_LAMBDA {
        attention_tile<V, W, decltype(size)::rows, decltype(size)::packs> tile;
        const right_factor<V> s = state(head, first + pack);
        tile.clear();
        if (!zero_state_)
          tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
            x = simd::mul(lane(decay(d + r)), at(s.data + p * s.by_pack + (d + r) * s.by_k));
          });
        tile.add_product({scaled_ + d * steps, steps, 1}, {values(first + pack), W, steps * W}, n);
        V* const to = folded_.data + head * folded_.by_head + (first + pack) * folded_.by_pack;
        tile.each([&](lane& x, auto r, auto p) SCANREC_LAMBDA {
          store_lanes(to + p * folded_.by_pack + (d + r) * folded_.by_key, x);
        });
      });
    });
  }

  attention_part part_;
  int n_ = 0;                                // steps of the chunk
  bool zero_state_ = true;                   // the states before the chunk are 0, and not stored
  int loaded_key_ = -1, loaded_query_ = -1;  // key head in kt_, query head last loaded into qt_

  V* memory_;                       // for states, unless they are elsewhere
  attention_states<V> s_, folded_;  // the states before the chunk, and those after it
  V* u_;                            // in packs, (column pack, step, lane)
  V* stage_;                        // (step, lane)
  V* scaled_;                       // keys times decays, transposed
  V* out_;                          // outputs of a panel, in packs
  attention_pack_rows<V, W> residuals_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
