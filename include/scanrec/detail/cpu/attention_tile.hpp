// SPDX-License-Identifier: BSD-3-Clause
// Matrix products in register tiles.
//
// Every element of a result is one chain of fused multiply-adds, in an order of the summation index
// that does not depend on the size of the tile. So this size changes no bits.
#pragma once

#include <cstdint>

#include <scanrec/detail/simd/memory.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The factor A of a product: element (row, k) is data[row * by_row + k * by_k].
template <class V>
struct left_factor {
  const V* data;
  std::int64_t by_row, by_k;
};
/// The factor B of a product: row k of pack p begins at data[k * by_k + p * by_pack].
template <class V>
struct right_factor {
  const V* data;
  std::int64_t by_k, by_pack;
};

template <class L, class V>
SCANREC_INLINE L load_lanes(const V* p) {
  if constexpr (simd::lane_count<L> == 1)
    return *p;
  else
    return simd::load_unit<L>(p);
}
/// Stops GCC from loading lanes again for every use.
template <class L>
SCANREC_INLINE void keep_loaded(L& x) {
  constexpr int lanes = simd::lane_count<L>, leaf = simd::leaf_count<L>;
  if constexpr (lanes > leaf)
    keep_loaded(x.lo), keep_loaded(x.hi);
  else if constexpr (lanes > 1)
    simd::detail::keep_loaded(x.v);
}
template <class V, class L>
SCANREC_INLINE void store_lanes(V* p, L x) {
  if constexpr (simd::lane_count<L> == 1)
    *p = x;
  else
    simd::store_unit(p, x);
}

/// R rows of P packs of W lanes.
template <class V, int W, int R, int P>
struct attention_tile {
  using lane = simd::lane_t<V, W>;
  static constexpr int rows = R, packs = P;
  lane x[R][P];

  /// Calls f(element, row, pack), with row and pack as constants.
  template <class F>
  SCANREC_INLINE void each(F f) {
    simd::detail::unrolled<R>([&](auto r) SCANREC_LAMBDA {
      simd::detail::unrolled<P>([&](auto p) SCANREC_LAMBDA { f(x[r][p], r, p); });
    });
  }
  SCANREC_INLINE void clear() {
    each([](lane& of, auto, auto) SCANREC_LAMBDA { of = simd::constant<lane>(0); });
  }
  /// x[r] += A[r][k] B[k] for k from 0 to n - 1.
  SCANREC_INLINE void add_product(left_factor<V> a, right_factor<V> b, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) {
      lane row[P];
      simd::detail::unrolled<P>([&](auto p) SCANREC_LAMBDA {
        row[p] = load_lanes<lane>(b.data + k * b.by_k + p * b.by_pack);
        keep_loaded(row[p]);
      });
      simd::detail::unrolled<R>([&](auto r) SCANREC_LAMBDA {
        const lane of(a.data[r * a.by_row + k * a.by_k]);
        simd::detail::unrolled<P>([&](auto p)
                                      SCANREC_LAMBDA { x[r][p] = simd::fma(of, row[p], x[r][p]); });
      });
    }
  }
  /// x[r] += A[row + r][k] B[k] for k from n - 1 down to row + R.
  SCANREC_INLINE void add_rest(left_factor<V> a, right_factor<V> b, int row, int n) {
    add_product({a.data + row * a.by_row + (n - 1) * a.by_k, a.by_row, -a.by_k},
                {b.data + (n - 1) * b.by_k, -b.by_k, b.by_pack}, n - (row + R));
  }
  /// The same for k from n - 1 down to row + r.
  SCANREC_INLINE void add_later(left_factor<V> a, right_factor<V> b, int row, int n) {
    add_rest(a, b, row, n);
    add_upper({a.data + row * (a.by_row + a.by_k), a.by_row, a.by_k},
              {b.data + row * b.by_k, b.by_k, b.by_pack});
  }
  /// x[r] += A[r][k] B[k] for k from R - 1 down to r.
  SCANREC_INLINE void add_upper(left_factor<V> a, right_factor<V> b) {
    simd::detail::unrolled<R>([&](auto above) SCANREC_LAMBDA {
      constexpr int k = R - 1 - above;
      simd::detail::unrolled<P>([&](auto p) SCANREC_LAMBDA {
        const lane row = load_lanes<lane>(b.data + k * b.by_k + p * b.by_pack);
        simd::detail::unrolled<k + 1>([&](auto r) SCANREC_LAMBDA {
          x[r][p] = simd::fma(lane(a.data[r * a.by_row + k * a.by_k]), row, x[r][p]);
        });
      });
    });
  }
  /// x[r] += A[r][k] B[k] for k from 0 to r: no row of B after row r is read for x[r].
  SCANREC_INLINE void add_lower(left_factor<V> a, right_factor<V> b) {
    simd::detail::unrolled<R>([&](auto k) SCANREC_LAMBDA {
      simd::detail::unrolled<P>([&](auto p) SCANREC_LAMBDA {
        const lane row = load_lanes<lane>(b.data + k * b.by_k + p * b.by_pack);
        simd::detail::unrolled<R - k>([&](auto below) SCANREC_LAMBDA {
          lane& of = x[k + below][p];
          of = simd::fma(lane(a.data[(k + below) * a.by_row + k * a.by_k]), row, of);
        });
      });
    });
  }
};

template <int R, int P>
struct tile_size {
  static constexpr int rows = R, packs = P;
};
/// Tiles that cover `Packs` packs. A pack of 16 floats is one register with AVX-512, two with AVX2
/// and four with SSE2 or NEON. Eight accumulators hide the latency of multiply-adds; sixteen also
/// load less.
template <class V, int Packs>
struct attention_tiles {
  static constexpr bool one_register = simd::leaf_lanes<V> == simd::lanes_v<V>;
  static constexpr int few = one_register ? 8 : 4, rows = Packs == 4 ? 4 : few;
  using of_rows = tile_size<rows, one_register ? Packs : 1>;
  using of_one_row = tile_size<1, Packs>;

  /// Calls f(tile size, first row, first pack) for the rows [begin, end) of `Packs` packs.
  template <class F>
  static SCANREC_INLINE void down(int begin, int end, int pack, F& f) {
    for (; begin + of_rows::rows <= end; begin += of_rows::rows)
      for (int p = 0; p < Packs; p += of_rows::packs) f(of_rows{}, begin, pack + p);
    for (; begin < end; ++begin) f(of_one_row{}, begin, pack);
  }
  /// The same from the last row to the first.
  template <class F>
  static SCANREC_INLINE void up(int end, int pack, F& f) {
    for (; end % of_rows::rows != 0; --end) f(of_one_row{}, end - 1, pack);
    for (; end > 0; end -= of_rows::rows)
      for (int p = 0; p < Packs; p += of_rows::packs) f(of_rows{}, end - of_rows::rows, pack + p);
  }
};
/// The most packs that are processed together.
inline constexpr int panel_packs = 4;

/// Calls f(tile size, first row, first pack) for tiles that cover the rows [begin, end) of `packs`
/// packs. The tile size is a value of type tile_size<R, P>.
template <class V, class F>
SCANREC_INLINE void for_tiles(int begin, int end, int packs, F f) {
  int pack = 0;
  for (; pack + 4 <= packs; pack += 4) attention_tiles<V, 4>::down(begin, end, pack, f);
  for (; pack + 2 <= packs; pack += 2) attention_tiles<V, 2>::down(begin, end, pack, f);
  for (; pack < packs; ++pack) attention_tiles<V, 1>::down(begin, end, pack, f);
}
/// The same for the rows [0, end), from the last to the first.
template <class V, class F>
SCANREC_INLINE void for_tiles_upwards(int end, int packs, F f) {
  int pack = 0;
  for (; pack + 4 <= packs; pack += 4) attention_tiles<V, 4>::up(end, pack, f);
  for (; pack + 2 <= packs; pack += 2) attention_tiles<V, 2>::up(end, pack, f);
  for (; pack < packs; ++pack) attention_tiles<V, 1>::up(end, pack, f);
}

}  // namespace scanrec::detail::inline SCANREC_ABI
