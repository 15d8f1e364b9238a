// SPDX-License-Identifier: BSD-3-Clause
// The lane types, in which a recurrence computes: a scalar, a pack of scalars (pack.hpp), or a
// complex number whose two parts are scalars or packs. matrix_lanes.hpp adds small vectors.
//
// A function rounds in the same way for every lane type. So a recurrence is written once, and tails
// and threads do not change any bit. An instruction set changes bits only if it lacks fused
// multiply-adds.
//
// Local variables that hold lanes of several registers are not const. GCC 12 keeps a const object
// of class type in memory, and each step then stores and reloads it.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/simd/conversions.hpp>
#include <scanrec/detail/simd/moves.hpp>
#include <scanrec/detail/simd/pack.hpp>
#include <scanrec/element.hpp>
#include <scanrec/matrix.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

template <class R>
concept real_scalar =
    std::is_same_v<R, float> || std::is_same_v<R, double> || std::is_same_v<R, std::uint32_t>;

// ---- scalar lanes -----------------------------------------------------------------------------

SCANREC_HD SCANREC_INLINE float fma(float a, float b, float c) {
#if SCANREC_FUSED
  return __builtin_fmaf(a, b, c);
#else
  return detail::uncontracted(a * b) + c;
#endif
}
SCANREC_HD SCANREC_INLINE double fma(double a, double b, double c) {
#if SCANREC_FUSED
  return __builtin_fma(a, b, c);
#else
  return detail::uncontracted(a * b) + c;
#endif
}
SCANREC_HD SCANREC_INLINE std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return a * b + c;
}
/// a * b, rounded on its own: a later addition does not fuse with it.
SCANREC_HD SCANREC_INLINE float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return detail::uncontracted(a * b);
#endif
}
SCANREC_HD SCANREC_INLINE double mul(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return detail::uncontracted(a * b);
#endif
}
SCANREC_HD SCANREC_INLINE std::uint32_t mul(std::uint32_t a, std::uint32_t b) { return a * b; }
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R select(R chosen, R yes, R no) {
  return chosen != R(0) ? yes : no;
}
template <real_scalar R>
SCANREC_HD SCANREC_INLINE bool all_zero(R x) {
  return x == R(0);
}
SCANREC_HD SCANREC_INLINE double widen(float x) { return x; }
SCANREC_HD SCANREC_INLINE float narrow(double x) { return static_cast<float>(x); }

// ---- complex lanes ----------------------------------------------------------------------------

/// A complex number whose parts are scalars or packs. Products are written out: they need no
/// library call and do not recover infinities. Each part takes the same two steps everywhere.
template <class R>
struct complex_lanes {
  R re, im;

  complex_lanes() = default;
  SCANREC_HD SCANREC_INLINE complex_lanes(R real, R imaginary) : re(real), im(imaginary) {}
};

template <class L>
inline constexpr bool is_complex_lanes = false;
template <class R>
inline constexpr bool is_complex_lanes<complex_lanes<R>> = true;

/// The real lane type of the masks and signs that belong to lanes of type L.
template <class L>
struct real_lane {
  using type = L;
};
template <class R>
struct real_lane<complex_lanes<R>> {
  using type = R;
};
template <class L>
using real_lane_t = typename real_lane<L>::type;

template <real_scalar R>
SCANREC_HD SCANREC_INLINE R negative(R x) {
  return -x;
}

template <class R>
SCANREC_HD SCANREC_INLINE complex_lanes<R> operator+(complex_lanes<R> a, complex_lanes<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
SCANREC_HD SCANREC_INLINE complex_lanes<R> operator-(complex_lanes<R> a, complex_lanes<R> b) {
  return {a.re - b.re, a.im - b.im};
}
/// a * b + c: re = a.re b.re + (c.re - a.im b.im), im = a.re b.im + (a.im b.re + c.im).
template <class R>
SCANREC_HD SCANREC_INLINE complex_lanes<R> fma(complex_lanes<R> a, complex_lanes<R> b,
                                               complex_lanes<R> c) {
  return {fma(a.re, b.re, fma(negative(a.im), b.im, c.re)), fma(a.re, b.im, fma(a.im, b.re, c.im))};
}
template <class R>
SCANREC_HD SCANREC_INLINE complex_lanes<R> mul(complex_lanes<R> a, complex_lanes<R> b) {
  return {fma(a.re, b.re, mul(negative(a.im), b.im)), fma(a.re, b.im, mul(a.im, b.re))};
}
/// fma and mul of std::complex. Operator scans use them if elements are maps with complex
/// coefficients.
template <class R>
SCANREC_INLINE std::complex<R> fma(std::complex<R> a, std::complex<R> b, std::complex<R> c) {
  using lanes = complex_lanes<R>;
  const lanes x =
      fma(lanes{a.real(), a.imag()}, lanes{b.real(), b.imag()}, lanes{c.real(), c.imag()});
  return {x.re, x.im};
}
template <class R>
SCANREC_INLINE std::complex<R> mul(std::complex<R> a, std::complex<R> b) {
  using lanes = complex_lanes<R>;
  const lanes x = mul(lanes{a.real(), a.imag()}, lanes{b.real(), b.imag()});
  return {x.re, x.im};
}
template <class R>
SCANREC_HD SCANREC_INLINE complex_lanes<R> select(R chosen, complex_lanes<R> yes,
                                                  complex_lanes<R> no) {
  return {select(chosen, yes.re, no.re), select(chosen, yes.im, no.im)};
}
template <class R>
SCANREC_HD SCANREC_INLINE bool all_zero(complex_lanes<R> x) {
  return all_zero(x.re) && all_zero(x.im);
}

/// The conjugate of x where `sign` is -1, and x where it is +1. Real lanes are unchanged.
template <class L, class R>
SCANREC_HD SCANREC_INLINE L conj_if(R sign, L x) {
  if constexpr (is_complex_lanes<L>)
    return {x.re, mul(sign, x.im)};
  else
    return x;
}

template <int K, class R>
SCANREC_INLINE complex_lanes<R> slide_in(complex_lanes<R> before, complex_lanes<R> x) {
  return {slide_in<K>(before.re, x.re), slide_in<K>(before.im, x.im)};
}
template <int Odd, class R>
SCANREC_INLINE auto every_other(complex_lanes<R> x) {
  return complex_lanes{every_other<Odd>(x.re), every_other<Odd>(x.im)};
}
template <class R>
SCANREC_INLINE auto join(complex_lanes<R> x, complex_lanes<R> y) {
  return complex_lanes{join(x.re, y.re), join(x.im, y.im)};
}
template <class R>
SCANREC_INLINE auto interleave(complex_lanes<R> x, complex_lanes<R> y) {
  return complex_lanes{interleave(x.re, y.re), interleave(x.im, y.im)};
}
template <class R>
SCANREC_INLINE auto first(complex_lanes<R> x) {
  return complex_lanes{first(x.re), first(x.im)};
}
template <class R>
SCANREC_INLINE auto last(complex_lanes<R> x) {
  return complex_lanes{last(x.re), last(x.im)};
}
template <class R>
SCANREC_INLINE auto sum(complex_lanes<R> x) {
  return complex_lanes{sum(x.re), sum(x.im)};
}
template <class R, int N>
SCANREC_INLINE void transpose(complex_lanes<R> (&rows)[N]) {
  R parts[N];
  for (int i = 0; i < N; ++i) parts[i] = rows[i].re;
  transpose(parts);
  for (int i = 0; i < N; ++i) rows[i].re = parts[i], parts[i] = rows[i].im;
  transpose(parts);
  for (int i = 0; i < N; ++i) rows[i].im = parts[i];
}
template <int K, class R>
SCANREC_INLINE complex_lanes<R> rotate(complex_lanes<R> x) {
  return {rotate<K>(x.re), rotate<K>(x.im)};
}
template <class R, class S>
SCANREC_INLINE complex_lanes<R> with_last(complex_lanes<R> x, complex_lanes<S> last) {
  return {with_last(x.re, last.re), with_last(x.im, last.im)};
}
template <class R>
SCANREC_HD SCANREC_INLINE auto widen(complex_lanes<R> x) {
  return complex_lanes{widen(x.re), widen(x.im)};
}
template <class R>
SCANREC_HD SCANREC_INLINE auto narrow(complex_lanes<R> x) {
  return complex_lanes{narrow(x.re), narrow(x.im)};
}

// ---- lanes of each element type ---------------------------------------------------------------

/// The number of lanes in a pack of compute type T, on every instruction set: 16, or 8 for double
/// and its complex type. This is one or two cache lines of elements.
template <class T>
inline constexpr int lanes_v = 16;
template <>
inline constexpr int lanes_v<double> = 8;
template <>
inline constexpr int lanes_v<std::complex<double>> = 8;

namespace detail {
template <class T, int N>
struct lane {
  using type = pack<T, N>;
};
template <class T>
struct lane<T, 1> {
  using type = T;
};
template <class T, int N>
struct lane<std::complex<T>, N> {
  using type = complex_lanes<typename lane<T, N>::type>;
};
template <class T>
struct lane<std::complex<T>, 1> {
  using type = complex_lanes<T>;
};
}  // namespace detail

/// The lane type of N contiguous elements of compute type T. For N = 1 it is T itself, except that
/// std::complex becomes complex_lanes.
template <class T, int N>
using lane_t = typename detail::lane<T, N>::type;

template <class L>
inline constexpr int lane_count = 1;
template <class T, int N>
inline constexpr int lane_count<pack<T, N>> = N;
template <class R>
inline constexpr int lane_count<complex_lanes<R>> = lane_count<R>;

/// The lane type of one element of L.
template <class L>
struct scalar_lane {
  using type = L;
};
template <class T, int N>
struct scalar_lane<pack<T, N>> {
  using type = T;
};
template <class R>
struct scalar_lane<complex_lanes<R>> {
  using type = complex_lanes<typename scalar_lane<R>::type>;
};
template <class L>
using scalar_of = typename scalar_lane<L>::type;

/// The number of lanes in one register of L.
template <class L>
inline constexpr int leaf_count = 1;
template <class T, int N>
inline constexpr int leaf_count<pack<T, N>> = leaf_lanes<T>;
template <class R>
inline constexpr int leaf_count<complex_lanes<R>> = leaf_count<R>;

/// The lower or upper half of the lanes.
template <int Upper, class T, int N>
SCANREC_INLINE auto half_of(pack<T, N> x) {
  if constexpr (Upper)
    return x.hi;
  else
    return x.lo;
}
template <int Upper, class R>
SCANREC_INLINE auto half_of(complex_lanes<R> x) {
  return complex_lanes{half_of<Upper>(x.re), half_of<Upper>(x.im)};
}
/// A small integer in every lane. A matrix becomes that multiple of the identity. For a vector the
/// integer must be 0.
template <class L>
SCANREC_HD SCANREC_INLINE L constant(int value) {
  if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    return {constant<R>(value), constant<R>(0)};
  } else if constexpr (scanrec::detail::is_vec<L>) {
    return L{};
  } else if constexpr (scanrec::detail::is_mat<L>) {
    L x{};
    for (int i = 0; i < static_cast<int>(sizeof(x.at) / sizeof(x.at[0])); ++i)
      x.at[i][i] = constant<typename L::component>(value);
    return x;
  } else if constexpr (is_pack<L>) {
    return L(static_cast<typename L::value_type>(value));
  } else {
    return static_cast<L>(value);
  }
}

/// Broadcasts a scalar to every lane.
template <class L, class S>
SCANREC_HD SCANREC_INLINE L splat(S x) {
  if constexpr (is_complex_lanes<L>)
    return {splat<real_lane_t<L>>(x.re), splat<real_lane_t<L>>(x.im)};
  else
    return L(x);
}

/// Converts to and from the wide lane type, if it differs.
template <class Wide, class L>
SCANREC_HD SCANREC_INLINE Wide to_wide(L x) {
  if constexpr (std::is_same_v<Wide, L>)
    return x;
  else
    return widen(x);
}
template <class L, class Wide>
SCANREC_HD SCANREC_INLINE L from_wide(Wide x) {
  if constexpr (std::is_same_v<Wide, L>)
    return x;
  else
    return narrow(x);
}

/// Multiplies one half of the lanes of x with the other, in the wide type, until the number of
/// lanes is that of Wide.
template <class Wide, class L>
SCANREC_INLINE Wide fold_product(L x) {
  if constexpr (lane_count<L> == lane_count<Wide>)
    return to_wide<Wide>(x);
  else
    return mul(fold_product<Wide>(half_of<0>(x)), fold_product<Wide>(half_of<1>(x)));
}

/// |x| of a real scalar; |re| + |im| of a complex scalar.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R size_of(R x) {
  return x < R(0) ? -x : x;
}
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R size_of(complex_lanes<R> x) {
  return size_of(x.re) + size_of(x.im);
}

/// The product of all lanes. Halves are multiplied until one register is left, and then its lanes.
template <class L>
SCANREC_INLINE auto product(L x) {
  if constexpr ((leaf_count<L>) < (lane_count<L>)) {
    return product(mul(half_of<0>(x), half_of<1>(x)));
  } else {
    if constexpr (lane_count<L> >= 16) x = mul(x, rotate<8>(x));
    if constexpr (lane_count<L> >= 8) x = mul(x, rotate<4>(x));
    if constexpr (lane_count<L> >= 4) x = mul(x, rotate<2>(x));
    return first(mul(x, rotate<1>(x)));
  }
}

/// Zero in lanes where x is finite, NaN elsewhere; integers are always finite.
template <class L>
SCANREC_HD SCANREC_INLINE real_lane_t<L> zero_if_finite(L x) {
  if constexpr (is_complex_lanes<L>)
    return (x.re - x.re) + (x.im - x.im);
  else
    return x - x;
}

}  // namespace scanrec::inline SCANREC_ABI::simd
