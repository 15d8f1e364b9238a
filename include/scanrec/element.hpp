// SPDX-License-Identifier: BSD-3-Clause
// Element types of arrays, the type in which each is computed, and the wider type of sums.
#pragma once

#include <bit>
#include <complex>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/config.hpp>

namespace scanrec {

namespace detail {

/// float -> bfloat16 bits: round to nearest, ties to even; a NaN stays a (quiet) NaN.
SCANREC_HD SCANREC_INLINE constexpr std::uint16_t bfloat16_bits(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (!std::is_constant_evaluated()) {  // one instruction; gives every NaN the same bits
    std::uint16_t rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
  }
#endif
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

SCANREC_HD SCANREC_INLINE constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// float -> IEEE binary16 bits, rounded as by the hardware conversion: to nearest, ties to even.
/// Subnormals are kept, and overflow gives infinity. A NaN stays a quiet NaN; its payload is
/// truncated on CPUs and lost on GPUs.
SCANREC_HD SCANREC_INLINE constexpr std::uint16_t float16_bits(float value) {
#if defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    std::uint16_t rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
  }
#endif
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and above
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal: rebias 127 -> 15; a carry may reach infinity
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // Subnormal: the last bit of a subnormal binary16 is 2^-24, like that of a float in [0.5, 1).
    // So adding 0.5 rounds to that bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

SCANREC_HD SCANREC_INLINE constexpr float float16_value(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
#endif
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  std::uint32_t bits = 0;
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN made quiet
    bits = 0x7f800000u | ((magnitude & 0x3ffu) << 13) | (magnitude > 0x7c00u ? 0x400000u : 0u);
  } else if (magnitude >= 0x0400u) {
    bits = (magnitude << 13) + 0x38000000u;
  } else {  // subnormal: magnitude * 2^-24, exact in float
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

}  // namespace detail

/// 16-bit storage with float's range and 8 bits of precision; arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  SCANREC_HD SCANREC_INLINE constexpr explicit bfloat16(float value)
      : bits(detail::bfloat16_bits(value)) {}
  SCANREC_HD SCANREC_INLINE constexpr explicit operator float() const {
    return detail::bfloat16_value(bits);
  }
};

/// IEEE binary16 storage; arithmetic happens in float.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  SCANREC_HD SCANREC_INLINE constexpr explicit float16(float value)
      : bits(detail::float16_bits(value)) {}
  SCANREC_HD SCANREC_INLINE constexpr explicit operator float() const {
    return detail::float16_value(bits);
  }
};

namespace detail {

template <class T>
struct element_traits;  // only the types below, and those of matrix.hpp, are elements

template <class Compute, class Wide>
struct element_types {
  using compute = Compute;
  using wide = Wide;
};
template <>
struct element_traits<float> : element_types<float, double> {};
template <>
struct element_traits<double> : element_types<double, double> {};
template <>
struct element_traits<std::uint32_t> : element_types<std::uint32_t, std::uint32_t> {};
template <>
struct element_traits<bfloat16> : element_types<float, double> {};
template <>
struct element_traits<float16> : element_types<float, double> {};
template <>
struct element_traits<std::complex<float>>
    : element_types<std::complex<float>, std::complex<double>> {};
template <>
struct element_traits<std::complex<double>>
    : element_types<std::complex<double>, std::complex<double>> {};

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;

}  // namespace detail

/// The element types of linear scans: float, double, std::complex of both, bfloat16, float16 and
/// uint32_t; also the small vectors and matrices of matrix.hpp. The cells of cells/ take float,
/// double, bfloat16 and float16. Composing affine maps modulo 2^32 is exactly associative, so with
/// uint32_t every backend must match `sequential` bit for bit.
template <class T>
concept element = requires {
  typename detail::element_traits<std::remove_cv_t<T>>::compute;
};

/// The compute type of an element: float for the 16-bit types, the element type itself otherwise.
template <element T>
using compute_t = typename detail::element_traits<std::remove_cv_t<T>>::compute;

/// The wide type, used for sums over many steps: double for data computed in float, complex<double>
/// for complex<float>, vectors and matrices of wide components, otherwise the compute type.
template <element T>
using wide_t = typename detail::element_traits<std::remove_cv_t<T>>::wide;

}  // namespace scanrec
