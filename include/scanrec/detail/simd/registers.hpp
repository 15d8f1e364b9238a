// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores of one register: non-temporal stores, and conversions between storage type and
// compute type.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <scanrec/detail/simd/moves.hpp>
#include <scanrec/detail/simd/pack.hpp>
#include <scanrec/element.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

namespace detail {

template <class V>
SCANREC_INLINE V load_bytes(const void* p) {
  V x;
  std::memcpy(&x, p, sizeof(V));
  return x;
}

// Stores a register to an address that is a multiple of its size. On x86 the store is non-temporal
// if the register has at least 16 bytes.
template <class V>
SCANREC_INLINE void stream_register(void* p, V x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64)
    return _mm512_stream_si512(static_cast<__m512i*>(p), __builtin_bit_cast(__m512i, x));
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32)
    return _mm256_stream_si256(static_cast<__m256i*>(p), __builtin_bit_cast(__m256i, x));
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(V) == 16)
    return _mm_stream_si128(static_cast<__m128i*>(p), __builtin_bit_cast(__m128i, x));
#endif
  std::memcpy(p, &x, sizeof(V));
}

// Conversions of N unsigned integers: from 8 or 16 bits to 32 bits, and from 32 to 16 bits for
// integers that fit. They use intrinsics, because GCC 12 expands __builtin_convertvector lane by
// lane here. The intrinsics of AVX-512 are masked, because GCC 12 warns about the undefined operand
// inside the unmasked ones.
template <int N>
SCANREC_INLINE auto load_u8(const void* p) {
  using u32 = typename raw<std::uint32_t, N>::type;
  using u8 = typename raw<std::uint8_t, N>::type;
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return (u32)_mm512_maskz_cvtepu8_epi32(__mmask16(~0), load_bytes<__m128i>(p));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return (u32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) {
    const __m128i zero = _mm_setzero_si128();
    const __m128i bytes = _mm_cvtsi32_si128(load_bytes<int>(p));
    return (u32)_mm_unpacklo_epi16(_mm_unpacklo_epi8(bytes, zero), zero);
  }
#elif SCANREC_NEON
  if constexpr (N == 4) {
    const auto bytes = vreinterpret_u8_u32(vdup_n_u32(load_bytes<std::uint32_t>(p)));
    return (u32)vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
  }
#endif
  return __builtin_convertvector(load_bytes<u8>(p), u32);
}
template <int N>
SCANREC_INLINE auto load_u16(const void* p) {
  using u32 = typename raw<std::uint32_t, N>::type;
  using u16 = typename raw<std::uint16_t, N>::type;
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return (u32)_mm512_maskz_cvtepu16_epi32(__mmask16(~0), load_bytes<__m256i>(p));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return (u32)_mm256_cvtepu16_epi32(load_bytes<__m128i>(p));
#endif
#if defined(__SSE2__)
  if constexpr (N == 4)
    return (u32)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i*)p), _mm_setzero_si128());
#elif SCANREC_NEON
  if constexpr (N == 4) return (u32)vmovl_u16(load_bytes<uint16x4_t>(p));
#endif
  return __builtin_convertvector(load_bytes<u16>(p), u32);
}
template <int N, class U32>
SCANREC_INLINE auto to_u16(U32 x) {
  using u16 = typename raw<std::uint16_t, N>::type;
#if defined(__AVX512F__)
  if constexpr (N == 16) return (u16)_mm512_maskz_cvtepi32_epi16(__mmask16(~0), (__m512i)x);
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m256i halves = _mm256_packus_epi32((__m256i)x, (__m256i)x);
    return (u16)_mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
  }
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) {
    // Sign-extended, so that the signed saturation of SSE2 changes nothing.
    const __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)x, 16), 16);
    u16 packed;
    _mm_storel_epi64((__m128i*)&packed, _mm_packs_epi32(extended, extended));
    return packed;
  }
#endif
  return __builtin_convertvector(x, u16);
}

// The float16 conversions of element.hpp on a whole register.
template <int N>
struct half_lanes {
  using u16 = typename raw<std::uint16_t, N>::type;
  using u32 = typename raw<std::uint32_t, N>::type;
  using i32 = typename raw<std::int32_t, N>::type;
  using f32 = typename raw<float, N>::type;

  static SCANREC_INLINE u32 choose(i32 chosen, u32 yes, u32 no) { return chosen ? yes : no; }
  static SCANREC_INLINE u16 from_float(f32 value) {
    const u32 bits = (u32)value;
    const u32 sign = (bits >> 16) & 0x8000u;
    const u32 magnitude = bits & 0x7fffffffu;
    const u32 normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const u32 subnormal = (u32)((f32)magnitude + 0.5f) - 0x3f000000u;
    const u32 nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    u32 half = choose(magnitude >= 0x38800000u, normal, subnormal);
    half = choose(magnitude >= 0x47800000u, half * 0u + 0x7c00u, half);
    half = choose(magnitude > 0x7f800000u, nan, half);
    return to_u16<N>(sign | half);
  }
  static SCANREC_INLINE f32 to_float(u32 half) {
    const u32 sign = (half & 0x8000u) << 16;
    const u32 magnitude = half & 0x7fffu;
    const u32 normal = (magnitude << 13) + 0x38000000u;
    const u32 subnormal = (u32)(__builtin_convertvector((i32)magnitude, f32) * 0x1p-24f);
    const u32 quiet = choose(magnitude > 0x7c00u, magnitude * 0u + 0x400000u, magnitude * 0u);
    const u32 infinite = 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet;
    u32 bits = choose(magnitude >= 0x0400u, normal, subnormal);
    bits = choose(magnitude >= 0x7c00u, infinite, bits);
    return (f32)(sign | bits);
  }
};

template <class T, class S>
SCANREC_INLINE typename raw<T>::type load_register(const S* p) {
  constexpr int n = leaf_lanes<T>;
  using vector = typename raw<T>::type;
  if constexpr (std::is_same_v<S, T>) {
    return load_bytes<vector>(p);
  } else if constexpr (std::is_same_v<S, bfloat16>) {
    return (vector)(load_u16<n>(p) << 16);
  } else if constexpr (std::is_same_v<S, float16>) {
#if defined(__F16C__)
#if defined(__AVX512F__)
    // Masked, because GCC 12 warns about the undefined operand inside the unmasked intrinsic.
    if constexpr (n == 16) return _mm512_maskz_cvtph_ps(__mmask16(~0), load_bytes<__m256i>(p));
#endif
    if constexpr (n == 8) return _mm256_cvtph_ps(load_bytes<__m128i>(p));
#elif SCANREC_NEON
    if constexpr (n == 4) return (vector)vcvt_f32_f16(load_bytes<float16x4_t>(p));
#endif
    return half_lanes<n>::to_float(load_u16<n>(p));
  } else {
    static_assert(std::is_same_v<S, bool>, "scanrec: unsupported stored type of a load");
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "scanrec: a mask lane must have 4 or 8 bytes");
    using i32 = typename raw<std::int32_t, n>::type;
    if constexpr (sizeof(T) == 4)
      return __builtin_convertvector((i32)load_u8<n>(p), vector);
    else
      return __builtin_convertvector(load_bytes<typename raw<std::uint8_t, n>::type>(p), vector);
  }
}

// Converts a register to storage type S.
template <class S, class T>
SCANREC_INLINE auto to_storage(typename raw<T>::type x) {
  constexpr int n = leaf_lanes<T>;
  if constexpr (std::is_same_v<S, T>) {
    return x;
  } else if constexpr (std::is_same_v<S, bfloat16>) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
    // The instruction treats subnormal numbers as zero, so registers that contain any, which are
    // rare, are converted below.
    constexpr int subnormal = 0x20;
    if constexpr (n == 16)
      if (_mm512_fpclass_ps_mask(x, subnormal) == 0) [[likely]]
        return (typename raw<std::uint16_t, n>::type)_mm512_cvtneps_pbh(x);
#endif
    using u32 = typename raw<std::uint32_t, n>::type;
    const u32 bits = (u32)x;
    const u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const u32 quiet = bits | 0x400000u;
    return to_u16<n>((x != x ? quiet : rounded) >> 16);
  } else {
    static_assert(std::is_same_v<S, float16>, "scanrec: unsupported stored type of a store");
#if defined(__F16C__)
    [[maybe_unused]] constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
    if constexpr (n == 16) return _mm512_maskz_cvtps_ph(__mmask16(~0), x, nearest);
#endif
    if constexpr (n == 8) return _mm256_cvtps_ph(x, nearest);
#endif
#if SCANREC_NEON
    return (typename raw<std::uint16_t, n>::type)vcvt_f16_f32(x);
#else
    if constexpr (n != 8 && n != 16) return half_lanes<n>::from_float(x);
#endif
  }
}

// Stops GCC from loading a register again for every shuffle that uses it.
template <class V>
SCANREC_INLINE void keep_loaded([[maybe_unused]] V& x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
}

}  // namespace detail

}  // namespace scanrec::inline SCANREC_ABI::simd
