// SPDX-License-Identifier: BSD-3-Clause
// The functions of selective scans on a GPU. For floats they use the special-function unit where it
// is accurate enough. The number of instructions limits the speed of the kernels, and with this
// unit a real gate takes only two.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cpu/selective_state_lanes.hpp>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/simd/sin_cos.hpp>
#include <scanrec/detail/simd/softplus.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

namespace simd = scanrec::simd;

/// exp(step * A), where `rate` is gate_rate(A). For floats the error is 2 ULP, plus a relative
/// error of 2^-23 |step * A| from two roundings of the argument. Float results below the smallest
/// normal number are 0.
template <class V>
SCANREC_DEVICE SCANREC_INLINE V selective_gate(V step, V rate) {
  if constexpr (std::is_same_v<V, float>)
    return device::exp2_nearby(step * rate);
  else
    return simd::exp_of_any(step * rate);
}
template <class V>
SCANREC_DEVICE SCANREC_INLINE V gate_rate(V rate) {
  if constexpr (std::is_same_v<V, float>)
    return static_cast<float>(static_cast<double>(rate) * 1.4426950408889634);
  else
    return rate;
}

/// exp(step * A) for complex A. The magnitude has the error of the real function. The point on the
/// unit circle has an error of 2 u + 2 u |angle|, where u is the unit roundoff.
template <class V>
SCANREC_DEVICE SCANREC_INLINE simd::complex_lanes<V> selective_gate(
    V step, const simd::complex_lanes<V>& rate) {
  return scanrec::detail::scaled(selective_gate(step, rate.re), simd::cos_sin(step * rate.im));
}
template <class V>
SCANREC_DEVICE SCANREC_INLINE simd::complex_lanes<V> gate_rate(const simd::complex_lanes<V>& rate) {
  return {gate_rate(rate.re), rate.im};
}
/// The sum over states, from the sum of their real parts. Complex states represent conjugate pairs,
/// so their sum is doubled.
template <class State, class V>
SCANREC_DEVICE SCANREC_INLINE V sum_of_pairs(V sum) {
  return scanrec::detail::parts_of<State> == 2 ? sum + sum : sum;
}

/// exp(-|x|), within 3 ULP. Results below the smallest normal number may be 0. The exponent of the
/// power of 2 is split into two parts. Constants contain the signs, because negating a value would
/// cost an instruction.
SCANREC_DEVICE SCANREC_INLINE float exp_of_minus_size(float x) {
  constexpr float log2e = 1.44269502f, rest = 1.92596299e-8f, ln2 = 0.693147182f;
  // Above 128 the result is 0. Without the limit, `below` would be NaN for an infinite x.
  const float size = std::fabs(x), y = size > 128.0f ? 128.0f : size;
  const float high = y * -log2e;
  const float below = simd::fma(y, rest, simd::fma(y, log2e, high));
  const float e = device::exp2_nearby(high);
  return simd::fma(e, below * -ln2, e);
}
/// 1 / d for a float in [1, 4], within 1 ULP.
SCANREC_DEVICE SCANREC_INLINE float refined_reciprocal(float d) {
  const float near = device::reciprocal_nearby(d);
  return simd::fma(simd::fma(-d, near, 1.0f), near, near);
}

/// log(1 + exp(x)) and its slope, within 6 ULP. For x above 20 they are x and 1. Results below the
/// smallest normal number may be 0.
template <class V>
SCANREC_DEVICE SCANREC_INLINE simd::value_and_slope<V> selective_softplus(V x) {
  if constexpr (!std::is_same_v<V, float>) {
    return simd::softplus(x);
  } else {
    const float e = exp_of_minus_size(x);
    const float d = 2.0f + e, near = device::reciprocal_nearby(d);
    float s = e * near;  // e / (2 + e)
    s = simd::fma(simd::fma(-d, s, e), near, s);
    const float w = s * s, twice = s + s;
    constexpr auto terms = simd::detail::log1p_polynomial<float>::q;
    float q = terms.of[4];
    SCANREC_UNROLL
    for (int i = 3; i >= 0; --i) q = simd::fma(q, w, terms.of[i]);
    const float log1p = simd::fma(twice * w, q, twice);
    const float large = refined_reciprocal(1.0f + e), small = e * large;
    return {x > 20.0f ? x : (x > 0.0f ? x : 0.0f) + log1p, x > 20.0f  ? 1.0f
                                                           : x < 0.0f ? small
                                                                      : large};
  }
}

/// 1 / (1 + exp(-x)) and its complement to 1, without cancellation, within 6 ULP. Results below the
/// smallest normal number may be 0.
template <class V>
struct value_and_complement {
  V value, complement;
};
template <class V>
SCANREC_DEVICE SCANREC_INLINE value_and_complement<V> selective_sigmoid(V x) {
  if constexpr (!std::is_same_v<V, float>) {
    const auto s = simd::sigmoid(x);
    return {s.value, s.complement};
  } else {
    const float e = exp_of_minus_size(x);
    const float large = refined_reciprocal(1.0f + e), small = e * large;
    return x < 0.0f ? value_and_complement<V>{small, large} : value_and_complement<V>{large, small};
  }
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
