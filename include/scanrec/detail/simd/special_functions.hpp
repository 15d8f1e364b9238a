// SPDX-License-Identifier: BSD-3-Clause
// tanh and the logistic sigmoid on the special-function unit of a GPU, which computes 2^x and 1 / x
// in one instruction each. On GPUs the cells of qrnn.hpp and min_gru.hpp use them for 16-bit
// elements, whose rounding error is at least 32 times that of these functions.
#pragma once

#include <scanrec/detail/simd/math.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

#if defined(__CUDA_ARCH__)
/// The two instructions, with errors up to 2 ULP. Subnormal numbers count as 0.
struct special_functions {
  SCANREC_HD static SCANREC_INLINE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  SCANREC_HD static SCANREC_INLINE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
};
#endif

namespace detail {
inline constexpr float log2e = 1.44269504f;
}  // namespace detail

/// 1 / (1 + exp(-x)). The complement is computed without cancellation. Relative error: 2^-17 of the
/// value and the complement, 2^-16 of the slope. If an exact result is below exp(-87), the computed
/// one may be any value from 0 to exp(-87). For infinite x, results whose limit is 0 are 0.
template <class Unit>
SCANREC_HD SCANREC_INLINE activated<float> rough_sigmoid(float x) {
  const float e = Unit::power_of_two(x * -detail::log2e), value = Unit::reciprocal(1 + e);
  const float complement = x < 0 ? 1 - value : e * value;  // e may be infinite where x < 0
  return {value, complement, value * complement};
}

/// tanh(x). The slope is 1 - tanh(x)^2, without cancellation. Relative error of value and slope:
/// 2^-16. If the exact slope is below exp(-85), the computed one may be any value from 0 to
/// exp(-85). For infinite x the slope is 0.
template <class Unit>
SCANREC_HD SCANREC_INLINE activated<float> rough_tanh(float x) {
  const float size = __builtin_fabsf(x);
  const float e = Unit::power_of_two(size * (-2 * detail::log2e)), part = Unit::reciprocal(1 + e);
  // Near 0, x - x^3 / 3 replaces 2 part - 1, which would cancel.
  const float near = x * __builtin_fmaf(x * x, -1.0f / 3, 1.0f);
  const float far = with_sign_of(x, __builtin_fmaf(2.0f, part, -1.0f));
  const float value = size < 0.0625f ? near : far;
  return {value, 1 - value, (4 * e * part) * part};
}

}  // namespace scanrec::inline SCANREC_ABI::simd
