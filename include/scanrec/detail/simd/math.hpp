// SPDX-License-Identifier: BSD-3-Clause
// tanh and the logistic sigmoid of scalars and packs. A scalar and every lane of a pack run the
// same operations, so tails and threads do not change any bit.
#pragma once

#include <xsimd/xsimd.hpp>

#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- building blocks --------------------------------------------------------------------------

template <real_scalar R>
SCANREC_HD SCANREC_INLINE R divide(R a, R b) {
  return a / b;
}
/// 1 / d, correctly rounded, for a float d in [1, 2]. `near` is within 4 ULP of the result. Each
/// Newton step squares the error. The result of the second step is correctly rounded except for the
/// largest float below 2, whose reciprocal is almost halfway between two floats (Markstein,
/// Computation of elementary functions on the IBM RISC System/6000 processor, 1990).
SCANREC_HD SCANREC_INLINE float refined_reciprocal(float d, float near) {
  const auto refine = [=](float y) { return __builtin_fmaf(__builtin_fmaf(-d, y, 1.0f), y, y); };
  return d == 0x1.fffffep0f ? 0x1.000002p-1f : refine(refine(near));
}
/// 1 / d for d in [1, 2] or NaN.
template <class L>
SCANREC_HD SCANREC_INLINE L reciprocal_of_one_to_two(L d) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<L, float>) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(d));
    return refined_reciprocal(d, near);
  }
#endif
  return divide(constant<L>(1), d);
}
/// a < b ? yes : no. If a or b is a NaN, the result is `no`.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R select_less(R a, R b, R yes, R no) {
  return a < b ? yes : no;
}
SCANREC_HD SCANREC_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
SCANREC_HD SCANREC_INLINE double square_root(double x) { return __builtin_sqrt(x); }

namespace detail {
// The correctly rounded square root. xsimd's function is correctly rounded on x86 only; on NEON it
// refines an estimate.
template <class T, class V>
SCANREC_INLINE V square_root_raw(V x) {
#if defined(__SSE2__)
  return __builtin_bit_cast(V, xsimd::sqrt(__builtin_bit_cast(xsimd::batch<T>, x)));
#elif SCANREC_NEON
  if constexpr (std::is_same_v<T, float>)
    return vsqrtq_f32(x);
  else
    return vsqrtq_f64(x);
#else
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(T)); ++i) x[i] = square_root(x[i]);
  return x;
#endif
}
}  // namespace detail

template <class T, int N>
SCANREC_INLINE pack<T, N> divide(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v / b.v);
  else
    return {divide(a.lo, b.lo), divide(a.hi, b.hi)};
}
template <class T, int N>
SCANREC_INLINE pack<T, N> select_less(pack<T, N> a, pack<T, N> b, pack<T, N> yes, pack<T, N> no) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v < b.v ? yes.v : no.v);
  else
    return {select_less(a.lo, b.lo, yes.lo, no.lo), select_less(a.hi, b.hi, yes.hi, no.hi)};
}
template <class T, int N>
SCANREC_INLINE pack<T, N> square_root(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::square_root_raw<T>(x.v));
  else
    return {square_root(x.lo), square_root(x.hi)};
}

/// -|x|.
template <class L>
SCANREC_HD SCANREC_INLINE L negative_size(L x) {
  using R = scalar_of<L>;
  return detail::on_bits(
      x, x, [](auto bits, auto) SCANREC_LAMBDA { return bits | detail::real_bits<R>::sign; });
}
/// |x| with the sign of y.
template <class L>
SCANREC_HD SCANREC_INLINE L with_sign_of(L y, L x) {
  using R = scalar_of<L>;
  return detail::on_bits(x, y, [](auto bits, auto other) SCANREC_LAMBDA {
    return (bits & ~detail::real_bits<R>::sign) | (other & detail::real_bits<R>::sign);
  });
}

// ---- the functions ----------------------------------------------------------------------------

/// The value of a function, 1 - value, and the derivative of the function. The compiler drops the
/// members that a caller does not use.
template <class L>
struct activated {
  L value, complement, slope;
};
/// 1 / (1 + exp(-x)). The complement is computed without cancellation. Error of the value and the
/// complement: 5 ULP, or 3.5 ULP for results above exp(-20). Error of the slope: 5.5 ULP. If an
/// exact result is below the smallest normal number, the computed one may be any value from 0 to
/// that number.
template <class L>
SCANREC_HD SCANREC_INLINE activated<L> sigmoid(L x) {
  const L e = exp_of_negative(negative_size(x));  // in [0, 1]
  const L large = reciprocal_of_one_to_two(constant<L>(1) + e), small = mul(e, large);
  const L zero = constant<L>(0);
  return {select_less(x, zero, small, large), select_less(x, zero, large, small),
          mul(large, small)};
}

/// tanh(x). The slope is 1 - tanh(x)^2, without cancellation. Error: 3.5 ULP for the value, 6 ULP
/// for the slope. A slope below four times the smallest normal number may become 0.
template <class L>
SCANREC_HD SCANREC_INLINE activated<L> tanh(L x) {
  const L one = constant<L>(1);
  const L y = negative_size(x);
  auto e = detail::split_exp<detail::exp_kind::expm1>(y + y);
  const L all = fma(e.power, e.q, e.power), less_one = fma(e.power, e.q, e.power - one);
  const L part = reciprocal_of_one_to_two((one + one) + less_one);  // 1 / (1 + exp(-2|x|))
  const L twice = part + part;
  const L value = with_sign_of(x, mul(less_one, part));
  return {value, one - value, mul(mul(twice, twice), all)};
}

}  // namespace scanrec::inline SCANREC_ABI::simd
