// SPDX-License-Identifier: BSD-3-Clause
// Permutations of the lanes of packs: slides, reversal, interleaving, transposition.
#pragma once

#include <bit>
#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/simd/pack.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

namespace detail {
/// Lanes I of the concatenation of x and y.
template <int... I, class V>
SCANREC_INLINE auto shuffle_raw(V x, V y) {
#if defined(__CUDACC__)  // nvcc's front end rejects a parameter pack in a builtin
  constexpr int n = static_cast<int>(sizeof(V) / sizeof(x[0]));
  typename raw<std::remove_cvref_t<decltype(x[0])>, sizeof...(I)>::type shuffled;
  int lane = 0;
  ((shuffled[lane++] = I < n ? x[I % n] : y[I % n]), ...);
  return shuffled;
#else
  return __builtin_shufflevector(x, y, I...);
#endif
}
template <int K, class V, int... I>
SCANREC_INLINE V slide_raw(V before, V x, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(n - K + I)...>(before, x);
}
template <class V, int... I>
SCANREC_INLINE V reverse_raw(V x, std::integer_sequence<int, I...>) {
  return shuffle_raw<(static_cast<int>(sizeof...(I)) - 1 - I)...>(x, x);
}
template <class V, int... I>
SCANREC_INLINE V with_last_raw(V x, V last, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(I + (I == n - 1 ? n : 0))...>(x, last);
}
template <int Odd, class V, int... I>
SCANREC_INLINE V every_other_raw(V x, V y, std::integer_sequence<int, I...>) {
  return shuffle_raw<(2 * I + Odd)...>(x, y);
}
template <int Upper, class V, int... I>
SCANREC_INLINE V zip_raw(V x, V y, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(Upper * n / 2 + I / 2 + (I % 2) * n)...>(x, y);
}
// every_third_raw: lanes K, K + 3, ... of the concatenation of x, y and z.
// zip_raw of x, y and z: register K of x[0], y[0], z[0], x[1], ...
// Both shuffle two registers first, and then the result with the third.
template <int K, class V, int... I>
SCANREC_INLINE V every_third_raw(V x, V y, V z, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  const V of_two = shuffle_raw<(3 * I + K < 2 * n ? 3 * I + K : 0)...>(x, y);
  return shuffle_raw<(3 * I + K < 2 * n ? I : 3 * I + K - n)...>(of_two, z);
}
template <int K, class V, int... I>
SCANREC_INLINE V zip_raw(V x, V y, V z, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  const V of_two = shuffle_raw<((K * n + I) / 3 + ((K * n + I) % 3 == 1 ? n : 0))...>(x, y);
  return shuffle_raw<((K * n + I) % 3 == 2 ? n + (K * n + I) / 3 : I)...>(of_two, z);
}
template <class T>
using leaf_indices = std::make_integer_sequence<int, leaf_lanes<T>>;
}  // namespace detail

/// x moved K lanes up: lane i is x[i - K], and the first K lanes are the last K of `before`.
template <int K, class T, int N>
SCANREC_INLINE pack<T, N> slide_in(pack<T, N> before, pack<T, N> x) {
  if constexpr (K == 0)
    return x;
  else if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::slide_raw<K>(before.v, x.v, detail::leaf_indices<T>{}));
  else if constexpr (K < N / 2)
    return {slide_in<K>(before.hi, x.lo), slide_in<K>(x.lo, x.hi)};
  else
    return {slide_in<K - N / 2>(before.lo, before.hi), slide_in<K - N / 2>(before.hi, x.lo)};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> reverse(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::reverse_raw(x.v, detail::leaf_indices<T>{}));
  else
    return {reverse(x.hi), reverse(x.lo)};
}

/// Reverses the lanes of one register if `reversed`. The code selects between compiler vectors,
/// because packs would not stay in registers.
template <class T, int N>
SCANREC_INLINE pack<T, N> reverse_if(bool reversed, pack<T, N> x) {
  auto v = x.v;
  if (reversed) v = reverse(x).v;
  return pack<T, N>(v);
}

/// The first lane.
template <class T, int N>
SCANREC_INLINE T first(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return x.v[0];
  else
    return first(x.lo);
}

/// The last lane.
template <class T, int N>
SCANREC_INLINE T last(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return x.v[N - 1];
  else
    return last(x.hi);
}

/// Lanes Odd, Odd + 2, ... of the concatenation of x and y.
template <int Odd, class T, int N>
SCANREC_INLINE pack<T, N> every_other(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::every_other_raw<Odd>(x.v, y.v, detail::leaf_indices<T>{}));
  else
    return {every_other<Odd>(x.lo, x.hi), every_other<Odd>(y.lo, y.hi)};
}

/// The lower (Upper = 0) or upper half of x[0], y[0], x[1], y[1], ...
template <int Upper, class T, int N>
SCANREC_INLINE pack<T, N> zip(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>((detail::zip_raw<Upper>(x.v, y.v, detail::leaf_indices<T>{})));
  else if constexpr (Upper == 0)
    return {zip<0>(x.lo, y.lo), zip<1>(x.lo, y.lo)};
  else
    return {zip<0>(x.hi, y.hi), zip<1>(x.hi, y.hi)};
}

/// Lanes Odd, Odd + 2, ... of a pack of more than one register.
template <int Odd, class T, int N>
SCANREC_INLINE pack<T, N / 2> every_other(pack<T, N> x) {
  return every_other<Odd>(x.lo, x.hi);
}
/// The concatenation of x and y.
template <class T, int N>
SCANREC_INLINE pack<T, 2 * N> join(pack<T, N> x, pack<T, N> y) {
  return {x, y};
}
/// x[0], y[0], x[1], y[1], ...
template <class T, int N>
SCANREC_INLINE pack<T, 2 * N> interleave(pack<T, N> x, pack<T, N> y) {
  return {zip<0>(x, y), zip<1>(x, y)};
}

namespace detail {
// Calls f(0), f(1), ... f(N - 1) with compile-time constants. Arrays of packs that are indexed by
// these stay in registers.
template <int N, class F>
SCANREC_INLINE void unrolled(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) SCANREC_LAMBDA {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}
}  // namespace detail

/// Deinterleaves registers that hold contiguous elements of M numbers each: afterwards register k
/// holds number k of every element. Splits M into factors of 2 and 3.
template <int M, class T>
SCANREC_INLINE void deinterleave(pack<T, leaf_lanes<T>> (&x)[M]) {
  using P = pack<T, leaf_lanes<T>>;
  if constexpr (M % 2 == 0) {
    P even[M / 2], odd[M / 2];
    detail::unrolled<M / 2>([&](auto i) SCANREC_LAMBDA {
      even[i] = every_other<0>(x[2 * i], x[2 * i + 1]);
      odd[i] = every_other<1>(x[2 * i], x[2 * i + 1]);
    });
    deinterleave<M / 2, T>(even), deinterleave<M / 2, T>(odd);
    detail::unrolled<M / 2>([&](auto i)
                                SCANREC_LAMBDA { x[2 * i] = even[i], x[2 * i + 1] = odd[i]; });
  } else if constexpr (M > 1) {
    static_assert(M % 3 == 0, "scanrec: M must be a product of twos and threes");
    P of_three[3][M / 3];
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA {
      constexpr int k = i % 3, j = i / 3;
      of_three[k][j] = P(detail::every_third_raw<k>(x[3 * j].v, x[3 * j + 1].v, x[3 * j + 2].v,
                                                    detail::leaf_indices<T>{}));
    });
    for (auto& of_one : of_three) deinterleave<M / 3, T>(of_one);
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA { x[i] = of_three[i % 3][i / 3]; });
  }
}
/// The inverse of deinterleave.
template <int M, class T>
SCANREC_INLINE void interleave(pack<T, leaf_lanes<T>> (&x)[M]) {
  using P = pack<T, leaf_lanes<T>>;
  if constexpr (M % 2 == 0) {
    P even[M / 2], odd[M / 2];
    detail::unrolled<M / 2>([&](auto i)
                                SCANREC_LAMBDA { even[i] = x[2 * i], odd[i] = x[2 * i + 1]; });
    interleave<M / 2, T>(even), interleave<M / 2, T>(odd);
    detail::unrolled<M / 2>([&](auto i) SCANREC_LAMBDA {
      x[2 * i] = zip<0>(even[i], odd[i]);
      x[2 * i + 1] = zip<1>(even[i], odd[i]);
    });
  } else if constexpr (M > 1) {
    P of_three[3][M / 3];
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA { of_three[i % 3][i / 3] = x[i]; });
    for (auto& of_one : of_three) interleave<M / 3, T>(of_one);
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA {
      constexpr int k = i % 3, j = i / 3;
      x[i] = P(detail::zip_raw<k>(of_three[0][j].v, of_three[1][j].v, of_three[2][j].v,
                                  detail::leaf_indices<T>{}));
    });
  }
}

/// Lane i of row k becomes lane k of row i. Unrolled by hand, because GCC keeps the loops in larger
/// functions, and the rows then go through memory.
template <class T, int N>
SCANREC_INLINE void transpose(pack<T, N> (&rows)[N]) {
  constexpr int rounds = std::countr_zero(static_cast<unsigned>(N));
  detail::unrolled<rounds>([&](auto) SCANREC_LAMBDA {
    pack<T, N> next[N];
    detail::unrolled<N / 2>([&](auto i) SCANREC_LAMBDA {
      next[2 * i] = zip<0>(rows[i], rows[i + N / 2]);
      next[2 * i + 1] = zip<1>(rows[i], rows[i + N / 2]);
    });
    detail::unrolled<N>([&](auto i) SCANREC_LAMBDA { rows[i] = next[i]; });
  });
}

/// The lanes of one register rotated down by K: lane i is x[(i + K) % N].
template <int K, class T, int N>
SCANREC_INLINE pack<T, N> rotate(pack<T, N> x) {
  return pack<T, N>(detail::slide_raw<N - K>(x.v, x.v, detail::leaf_indices<T>{}));
}

/// x with its last lane replaced.
template <class T, int N>
SCANREC_INLINE pack<T, N> with_last(pack<T, N> x, T last) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::with_last_raw(x.v, pack<T, N>(last).v, detail::leaf_indices<T>{}));
  else
    return {x.lo, with_last(x.hi, last)};
}

}  // namespace scanrec::inline SCANREC_ABI::simd
