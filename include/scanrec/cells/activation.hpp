// SPDX-License-Identifier: BSD-3-Clause
// Activation functions that gated cells apply to pre-activations, as types.
#pragma once

#include <type_traits>

#include <scanrec/detail/simd/math.hpp>
#include <scanrec/detail/simd/special_functions.hpp>

namespace scanrec::inline SCANREC_ABI {

using simd::activated;

/// Activation types. Each has a static function `of`, which takes a real scalar or SIMD pack, and
/// returns the value, its complement (1 - value) and the slope. The value at NaN is NaN. Error
/// bounds hold for normal results, and for slopes of tanh of at least four times the smallest
/// normal number.
namespace activation {

/// x itself.
struct identity {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane one = simd::constant<Lane>(1);
    return {x, one - x, one};
  }
};

/// tanh(x), within 3.5 ULP; the slope within 6 ULP.
struct tanh {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    return simd::tanh(x);
  }
};

/// 1 / (1 + exp(-x)), within 5 ULP; 1 - value is within 5 ULP as well, without cancellation, and
/// the slope within 5.5 ULP.
struct sigmoid {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    return simd::sigmoid(x);
  }
};

/// The hard sigmoid of PyTorch and JAX: x / 6 + 1/2, clamped to [0, 1]. The slope is 0 for |x| >=
/// 3.
struct hard_sigmoid {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    using R = simd::scalar_of<Lane>;
    const Lane zero = simd::constant<Lane>(0), one = simd::constant<Lane>(1);
    const Lane sixth = simd::splat<Lane>(R(1) / R(6)), three = simd::splat<Lane>(R(3));
    const Lane line = simd::fma(x, sixth, simd::splat<Lane>(R(0.5)));
    const Lane value = simd::select_less(line, zero, zero, simd::select_less(one, line, one, line));
    const Lane size = simd::negative(simd::negative_size(x));
    return {value, one - value, simd::select_less(size, three, sixth, zero)};
  }
};

/// max(x, 0). The slope at 0 is 0.
struct relu {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane zero = simd::constant<Lane>(0), one = simd::constant<Lane>(1);
    const Lane value = simd::select_less(x, zero, zero, x);
    return {value, one - value, simd::select_less(zero, x, one, zero)};
  }
};

/// x * sigmoid(2 s) with s = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form of GELU (Hendrycks and
/// Gimpel, 2016).
struct gelu {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    using R = simd::scalar_of<Lane>;
    const Lane one = simd::constant<Lane>(1), square = simd::mul(x, x);
    const Lane twice = simd::splat<Lane>(R(1.5957691216057308));  // 2 sqrt(2 / pi)
    const Lane cubic = simd::splat<Lane>(R(0.044715)), slope = simd::splat<Lane>(R(0.134145));
    auto s = simd::sigmoid(simd::mul(simd::mul(twice, x), simd::fma(cubic, square, one)));
    const Lane value = simd::mul(x, s.value);
    const Lane inner = simd::mul(twice, simd::fma(slope, square, one));
    return {value, one - value, simd::fma(simd::mul(x, s.slope), inner, s.value)};
  }
};

/// exp(x), within 5 ULP, or 2 ULP if |x| <= 20. Underflows to 0 and overflows to infinity. The
/// slope equals the value.
struct exponential {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane value = simd::exp_of_any(x);
    return {value, simd::constant<Lane>(1) - value, value};
  }
  /// exp(x) as a sum of two numbers. The sum equals exp(x (1 + d)) with |d| below 3 units of
  /// roundoff, unless x is subnormal or exp(x) is close to underflow (simd::exp_in_two_parts).
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE simd::two_parts<Lane> in_two_parts(Lane x) {
    return simd::exp_in_two_parts(x);
  }
};

/// x + 1/2 for x >= 0, sigmoid(x) for x < 0: positive and increasing. Source: Feng et al., Were
/// RNNs All We Needed? (2024), appendix B.
struct positive {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    using R = simd::scalar_of<Lane>;
    const Lane zero = simd::constant<Lane>(0), one = simd::constant<Lane>(1);
    auto s = simd::sigmoid(x);
    const Lane value = simd::select_less(x, zero, s.value, x + simd::splat<Lane>(R(0.5)));
    return {value, one - value, simd::select_less(x, zero, s.slope, one)};
  }
};

/// The activation that the cells of qrnn.hpp and min_gru.hpp use for 16-bit elements. On GPUs, tanh
/// and sigmoid use the special-function unit, with a relative error of at most 2^-16 unless the
/// result underflows. All other activations, and all activations on CPUs, are unchanged.
template <class Activation>
struct rough : Activation {};
template <>
struct rough<tanh> {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<Lane, float>)
      return simd::rough_tanh<simd::special_functions>(x);
    else
#endif
      return simd::tanh(x);
  }
};
template <>
struct rough<sigmoid> {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<Lane, float>)
      return simd::rough_sigmoid<simd::special_functions>(x);
    else
#endif
      return simd::sigmoid(x);
  }
};

}  // namespace activation

}  // namespace scanrec::inline SCANREC_ABI
