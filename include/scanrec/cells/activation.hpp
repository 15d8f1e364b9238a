// SPDX-License-Identifier: BSD-3-Clause
// Activations of gates and candidates, as types: what a gated cell applies to pre-activations.
#pragma once

#include <type_traits>

#include <scanrec/detail/simd/math.hpp>
#include <scanrec/detail/simd/special_functions.hpp>

namespace scanrec::inline SCANREC_ABI {

using simd::activated;

/// The activations. Each has `of(x)`, for every lane type; NaN in, NaN out.
namespace activation {

/// x itself.
struct identity {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane one = simd::constant<Lane>(1);
    return {x, one - x, one};
  }
};

/// tanh(x), to 3.5 ULP; slope to 6.
struct tanh {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    return simd::tanh(x);
  }
};

/// 1 / (1 + exp(-x)), to 5 ULP; so is 1 - value, which does not cancel; slope to 5.5.
struct sigmoid {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    return simd::sigmoid(x);
  }
};

/// x / 6 + 1/2 between 0 and 1: the hard sigmoid of PyTorch and JAX. Slope 0 from |x| = 3 on.
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

/// max(x, 0). Slope 0 at 0.
struct relu {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane zero = simd::constant<Lane>(0), one = simd::constant<Lane>(1);
    const Lane value = simd::select_less(x, zero, zero, x);
    return {value, one - value, simd::select_less(zero, x, one, zero)};
  }
};

/// x * sigmoid(2 s), s = sqrt(2 / pi) (x + 0.044715 x^3): the GELU of Hendrycks and Gimpel (2016)
/// in its tanh form.
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

/// exp(x), to 5 ULP, 2 between exp(-20) and exp(20); 0 and infinite beyond what the type can show.
/// Its slope is itself.
struct exponential {
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE activated<Lane> of(Lane x) {
    const Lane value = simd::exp_of_any(x);
    return {value, simd::constant<Lane>(1) - value, value};
  }
  /// The same as the sum of two numbers: exp(x (1 + d)), |d| below 3 units of roundoff.
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE simd::two_parts<Lane> in_two_parts(Lane x) {
    return simd::exp_in_two_parts(x);
  }
};

/// x + 1/2 from 0 on, sigmoid(x) below: positive and increasing. Source: Feng et al., Were RNNs All
/// We Needed? (2024), appendix B.
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

/// What stands in for an activation where elements have 16 bits: on GPUs, tanh and sigmoid of the
/// special-function unit, to 2^-16; all else, and everything on CPUs, is the activation itself.
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
