// SPDX-License-Identifier: BSD-3-Clause
// Small vectors and matrices as lane types: their components are scalars, packs or complex lanes.
// adjoint_if() and outer() also accept the lane types of lanes.hpp.
#pragma once

#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/matrix.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

template <class L, int N>
struct real_lane<vec<L, N>> : real_lane<L> {};
template <class L, int N>
struct real_lane<mat<L, N>> : real_lane<L> {};
template <class T, int N>
inline constexpr int lanes_v<vec<T, N>> = lanes_v<T>;
template <class L, int N>
inline constexpr int lane_count<vec<L, N>> = lane_count<L>;
template <class L, int N>
inline constexpr int lane_count<mat<L, N>> = lane_count<L>;
template <class L, int N>
inline constexpr int leaf_count<vec<L, N>> = leaf_count<L>;
template <class L, int N>
inline constexpr int leaf_count<mat<L, N>> = leaf_count<L>;
template <class L, int N>
struct scalar_lane<vec<L, N>> {
  using type = vec<scalar_of<L>, N>;
};
template <class L, int N>
struct scalar_lane<mat<L, N>> {
  using type = mat<scalar_of<L>, N>;
};

/// Whether small vectors of compute type V can be processed in packs. They cannot if a matrix of
/// packs takes at least twice as many registers as AVX2 has, because compilers then take very long.
/// The instruction set has no influence, so that sums over lanes are the same on each.
template <class V>
inline constexpr bool vectors_in_packs = false;
template <class T, int N>
inline constexpr bool vectors_in_packs<vec<T, N>> = has_packs&& N <=
                                                    (scanrec::detail::is_complex<T> ? 2 : 3);

namespace detail {
template <class T, int N>
struct lane<vec<T, N>, 1> {
  using type = vec<typename lane<T, 1>::type, N>;
};
template <class T, int N>
struct lane<mat<T, N>, 1> {
  using type = mat<typename lane<T, 1>::type, N>;
};
template <class T, int N, int Lanes>
struct lane<vec<T, N>, Lanes> {
  using type = vec<typename lane<T, Lanes>::type, N>;
};
template <class T, int N, int Lanes>
struct lane<mat<T, N>, Lanes> {
  using type = mat<typename lane<T, Lanes>::type, N>;
};

// The vector or matrix type with components of another type.
template <class M, class L>
struct with_components;
template <class L, int N, class Other>
struct with_components<vec<L, N>, Other> {
  using type = vec<Other, N>;
};
template <class L, int N, class Other>
struct with_components<mat<L, N>, Other> {
  using type = mat<Other, N>;
};

// Applies f component by component.
template <class Result, class F, class L, int N, class... More>
SCANREC_HD SCANREC_INLINE Result each(F f, const vec<L, N>& x, const More&... more) {
  Result y;
  for (int i = 0; i < N; ++i) y.at[i] = f(x.at[i], more.at[i]...);
  return y;
}
template <class Result, class F, class L, int N, class... More>
SCANREC_HD SCANREC_INLINE Result each(F f, const mat<L, N>& x, const More&... more) {
  Result y;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) y.at[i][j] = f(x.at[i][j], more.at[i][j]...);
  return y;
}
}  // namespace detail

template <class M>
concept small_matrix = scanrec::detail::is_vec<M> || scanrec::detail::is_mat<M>;

namespace detail {
// Like each(), but deduces the result type from that of f.
template <class F, small_matrix M, class... More>
SCANREC_HD SCANREC_INLINE auto each_of(F f, const M& x, const More&... more) {
  using component = const typename M::component&;
  using result = decltype(f(std::declval<component>(), (void(more), std::declval<component>())...));
  return each<typename with_components<M, result>::type>(f, x, more...);
}
}  // namespace detail

}  // namespace scanrec::inline SCANREC_ABI::simd

namespace scanrec {

// This operator is in the namespace of vec and mat, so that argument-dependent lookup finds it.
template <simd::small_matrix M>
SCANREC_HD SCANREC_INLINE M operator+(const M& x, const M& y) {
  return simd::detail::each<M>([](auto a, auto b) SCANREC_LAMBDA { return a + b; }, x, y);
}

}  // namespace scanrec

namespace scanrec::inline SCANREC_ABI::simd {

template <class R, small_matrix M>
SCANREC_HD SCANREC_INLINE M select(R chosen, M yes, M no) {
  return detail::each<M>([=](auto a, auto b) SCANREC_LAMBDA { return select(chosen, a, b); }, yes,
                         no);
}
template <small_matrix L, class S>
SCANREC_HD SCANREC_INLINE L splat(S x) {
  using component = typename L::component;
  return detail::each<L>([](auto a) SCANREC_LAMBDA { return splat<component>(a); }, x);
}
template <int Upper, small_matrix M>
SCANREC_INLINE auto half_of(const M& x) {
  return detail::each_of([](auto a) SCANREC_LAMBDA { return half_of<Upper>(a); }, x);
}
template <small_matrix M>
SCANREC_INLINE auto join(const M& x, const M& y) {
  return detail::each_of([](auto a, auto b) SCANREC_LAMBDA { return join(a, b); }, x, y);
}
template <small_matrix M>
SCANREC_INLINE auto sum(const M& x) {
  return detail::each_of([](auto a) SCANREC_LAMBDA { return sum(a); }, x);
}
template <class Wide, small_matrix M>
SCANREC_HD SCANREC_INLINE Wide to_wide(M x) {
  using component = typename Wide::component;
  return detail::each<Wide>([](auto a) SCANREC_LAMBDA { return to_wide<component>(a); }, x);
}
template <class Narrow, small_matrix M>
SCANREC_HD SCANREC_INLINE Narrow from_wide(M x) {
  using component = typename Narrow::component;
  return detail::each<Narrow>([](auto a) SCANREC_LAMBDA { return from_wide<component>(a); }, x);
}
template <small_matrix M>
SCANREC_HD SCANREC_INLINE real_lane_t<M> zero_if_finite(M x) {
  auto sum = constant<real_lane_t<M>>(0);
  detail::each<M>([&](auto a) SCANREC_LAMBDA { return sum = sum + zero_if_finite(a), a; }, x);
  return sum;
}
template <class L, int N, class R>
SCANREC_HD SCANREC_INLINE vec<L, N> conj_if(R sign, vec<L, N> x) {
  return detail::each<vec<L, N>>([=](auto a) SCANREC_LAMBDA { return conj_if(sign, a); }, x);
}

/// a x + u, component by component. Products are added in the order of the columns.
template <class L, int N>
SCANREC_HD SCANREC_INLINE vec<L, N> fma(const mat<L, N>& a, const vec<L, N>& x, vec<L, N> u) {
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) u.at[i] = fma(a.at[i][j], x.at[j], u.at[i]);
  return u;
}
template <class L, int N>
SCANREC_HD SCANREC_INLINE vec<L, N> mul(const mat<L, N>& a, const vec<L, N>& x) {
  vec<L, N> y;
  for (int i = 0; i < N; ++i) {
    y.at[i] = mul(a.at[i][0], x.at[0]);
    for (int j = 1; j < N; ++j) y.at[i] = fma(a.at[i][j], x.at[j], y.at[i]);
  }
  return y;
}
template <class L, int N>
SCANREC_HD SCANREC_INLINE mat<L, N> mul(const mat<L, N>& a, const mat<L, N>& b) {
  mat<L, N> y;
  for (int i = 0; i < N; ++i)
    for (int k = 0; k < N; ++k) {
      y.at[i][k] = mul(a.at[i][0], b.at[0][k]);
      for (int j = 1; j < N; ++j) y.at[i][k] = fma(a.at[i][j], b.at[j][k], y.at[i][k]);
    }
  return y;
}

/// The factor in the adjoint: x conjugated where `sign` is -1, and transposed if x is a matrix.
template <class L, class R>
SCANREC_HD SCANREC_INLINE L adjoint_if(R sign, const L& x) {
  if constexpr (scanrec::detail::is_mat<L>) {
    L y = x;
    constexpr int n = sizeof(y.at) / sizeof(y.at[0]);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) y.at[i][j] = conj_if(sign, x.at[j][i]);
    return y;
  } else {
    return conj_if(sign, x);
  }
}

/// The gradient of a factor, for cotangent g and state y: g y^T for small vectors, otherwise g y.
template <class L>
SCANREC_HD SCANREC_INLINE factor_t<L> outer(const L& g, const L& y) {
  if constexpr (scanrec::detail::is_vec<L>) {
    factor_t<L> a;
    constexpr int n = sizeof(g.at) / sizeof(g.at[0]);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) a.at[i][j] = mul(g.at[i], y.at[j]);
    return a;
  } else {
    return mul(g, y);
  }
}

}  // namespace scanrec::inline SCANREC_ABI::simd
