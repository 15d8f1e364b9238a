// SPDX-License-Identifier: BSD-3-Clause
// Lanes to and from memory: unit, reversed, broadcast and arbitrary strides, partial vectors,
// 16-bit and complex storage, non-temporal stores.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>

#include <scanrec/element.hpp>
#include <scanrec/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- one element ------------------------------------------------------------------------------

/// The lane that a stored element becomes.
template <class S>
SCANREC_HD SCANREC_INLINE auto from_element(S x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return complex_lanes{x.real(), x.imag()};
  else if constexpr (std::is_same_v<S, bfloat16> || std::is_same_v<S, float16>)
    return static_cast<float>(x);
  else
    return x;
}

/// The element that a scalar lane is stored as.
template <class S, class L>
SCANREC_HD SCANREC_INLINE S to_element(L x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return S(x.re, x.im);
  else
    return static_cast<S>(x);
}

// ---- one register -----------------------------------------------------------------------------

namespace detail {

template <class V>
SCANREC_INLINE V load_bytes(const void* p) {
  V x;
  std::memcpy(&x, p, sizeof(V));
  return x;
}

// A non-temporal store of V, in the widest pieces that p's alignment allows. Ordinary allocations
// are only 16-byte aligned; consecutive 16-byte pieces still fill whole lines.
template <class V>
SCANREC_INLINE void stream_bytes(void* p, V x) {
#if defined(__SSE2__)
  const auto address = reinterpret_cast<std::uintptr_t>(p);
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    if (address % 64 == 0) [[likely]] {
      _mm512_stream_si512(static_cast<__m512i*>(p), __builtin_bit_cast(__m512i, x));
      return;
    }
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) {
    if (address % 32 == 0) [[likely]] {
      _mm256_stream_si256(static_cast<__m256i*>(p), __builtin_bit_cast(__m256i, x));
      return;
    }
  }
#endif
  if constexpr (sizeof(V) % 16 == 0) {
    if (address % 16 == 0) [[likely]] {
      struct pieces {
        __m128i piece[sizeof(V) / 16];
      };
      const auto all = __builtin_bit_cast(pieces, x);
#pragma GCC unroll 4
      for (unsigned i = 0; i < sizeof(V) / 16; ++i)
        _mm_stream_si128(static_cast<__m128i*>(p) + i, all.piece[i]);
      return;
    }
  }
#endif
  std::memcpy(p, &x, sizeof(V));
}

// The float16 conversions of element.hpp on a whole register.
template <int N>
struct half_lanes {
  using u16 = typename raw<std::uint16_t, N>::type;
  using u32 = typename raw<std::uint32_t, N>::type;
  using i32 = typename raw<std::int32_t, N>::type;
  using f32 = typename raw<float, N>::type;

  static SCANREC_INLINE u32 choose(i32 chosen, u32 yes, u32 no) {
    const u32 mask = (u32)chosen;
    return (yes & mask) | (no & ~mask);
  }
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
    return __builtin_convertvector(sign | half, u16);
  }
  static SCANREC_INLINE f32 to_float(u16 stored) {
    const u32 half = __builtin_convertvector(stored, u32);
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
SCANREC_INLINE leaf<T> load_leaf(const S* p) {
  constexpr int n = leaf_lanes<T>;
  if constexpr (std::is_same_v<S, T>) {
    return leaf<T>::load_unaligned(p);
  } else if constexpr (std::is_same_v<S, bfloat16>) {
    using u16 = typename raw<std::uint16_t, n>::type;
    using u32 = typename raw<std::uint32_t, n>::type;
    const u32 bits = __builtin_convertvector(load_bytes<u16>(p), u32) << 16;
    return from_raw<float>((typename raw<float>::type)bits);
  } else if constexpr (std::is_same_v<S, float16>) {
#if defined(__F16C__)
#if defined(__AVX512F__)
    // The masked forms: GCC 12 warns about the undefined operand inside the plain ones.
    if constexpr (n == 16)
      return leaf<float>(_mm512_maskz_cvtph_ps(__mmask16(~0), load_bytes<__m256i>(p)));
#endif
    if constexpr (n == 8) return leaf<float>(_mm256_cvtph_ps(load_bytes<__m128i>(p)));
#endif
    using u16 = typename raw<std::uint16_t, n>::type;
    return from_raw<float>(half_lanes<n>::to_float(load_bytes<u16>(p)));
  } else {
    static_assert(std::is_same_v<S, bool>, "scanrec: no such conversion on load");
    using u8 = typename raw<std::uint8_t, n>::type;
    using i32 = typename raw<std::int32_t, n>::type;
    return from_raw<T>(__builtin_convertvector(__builtin_convertvector(load_bytes<u8>(p), i32),
                                               typename raw<T>::type));
  }
}

template <class S, class T>
SCANREC_INLINE void store_leaf(S* p, leaf<T> x, bool stream) {
  constexpr int n = leaf_lanes<T>;
  if constexpr (std::is_same_v<S, T>) {
    if (stream)
      stream_bytes(p, to_raw(x));
    else
      x.store_unaligned(p);
  } else {
    using u16 = typename raw<std::uint16_t, n>::type;
    using u32 = typename raw<std::uint32_t, n>::type;
    u16 out;
    if constexpr (std::is_same_v<S, bfloat16>) {
      const u32 bits = (u32)to_raw(x);
      const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      const auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
      out = __builtin_convertvector(half_lanes<n>::choose(is_nan, (bits >> 16) | 0x40u, rounded),
                                    u16);
    } else {
      static_assert(std::is_same_v<S, float16>, "scanrec: no such conversion on store");
#if defined(__F16C__)
      constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      if constexpr (n == 8) out = __builtin_bit_cast(u16, _mm256_cvtps_ph(x, nearest));
#if defined(__AVX512F__)
      else if constexpr (n == 16)
        out = __builtin_bit_cast(u16, _mm512_maskz_cvtps_ph(__mmask16(~0), x, nearest));
#endif
      else
#endif
        out = half_lanes<n>::from_float(to_raw(x));
    }
    if (stream)
      stream_bytes(p, out);
    else
      std::memcpy(static_cast<void*>(p), &out, sizeof out);
  }
}

}  // namespace detail

// ---- a whole lane, elements side by side ------------------------------------------------------

template <class L, class S>
SCANREC_INLINE L load_unit(const S* p) {
  if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    const auto* parts = reinterpret_cast<const typename R::value_type*>(p);
    const R low = load_unit<R>(parts);
    const R high = load_unit<R>(parts + R::lanes);
    return {every_other<0>(low, high), every_other<1>(low, high)};
  } else if constexpr (is_leaf<typename L::value_type, L::lanes>) {
    return L(detail::load_leaf<typename L::value_type>(p));
  } else {
    using half = decltype(L::lo);
    return {load_unit<half>(p), load_unit<half>(p + L::lanes / 2)};
  }
}

template <class S, class L>
SCANREC_INLINE void store_unit(S* p, L x, bool stream) {
  if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    auto* parts = reinterpret_cast<typename R::value_type*>(p);
    store_unit(parts, zip<0>(x.re, x.im), stream);
    store_unit(parts + R::lanes, zip<1>(x.re, x.im), stream);
  } else if constexpr (is_leaf<typename L::value_type, L::lanes>) {
    detail::store_leaf<S, typename L::value_type>(p, x.v, stream);
  } else {
    store_unit(p, x.lo, stream);
    store_unit(p + L::lanes / 2, x.hi, stream);
  }
}

template <class R>
SCANREC_INLINE R reverse_lanes(R x) {
  if constexpr (is_complex_lanes<R>)
    return {reverse(x.re), reverse(x.im)};
  else
    return reverse(x);
}

// ---- a whole lane, strides 1, -1 and 0 ----------------------------------------------------

/// Lane i is p[i * stride] for every lane; the stride is 1, -1 or 0.
template <class L, class S>
SCANREC_INLINE L load_whole(const S* p, std::int64_t stride) {
  if (stride == 1) [[likely]]
    return load_unit<L>(p);
  if (stride != 0) return reverse_lanes(load_unit<L>(p - (lane_count<L> - 1)));
  if constexpr (std::is_same_v<S, bool>)
    return constant<L>(*p ? 1 : 0);
  else
    return splat<L>(from_element(*p));
}
template <class S, class L>
SCANREC_INLINE void store_whole(S* p, std::int64_t stride, L x, bool stream) {
  if (stride == 1) [[likely]]
    store_unit(p, x, stream);
  else
    store_unit(p - (lane_count<L> - 1), reverse_lanes(x), stream);
}

// ---- any stride, any count --------------------------------------------------------------------

namespace detail {
// Out of line, so that kernels stay small: what is not one whole vector of adjacent elements. The
// rare strides and the tails go through a small buffer.
template <class L, class S>
[[gnu::noinline]] L load_gathered(const S* p, std::int64_t stride, int count) {
  if (count == lane_count<L> && stride >= -1 && stride <= 1) return load_whole<L>(p, stride);
  alignas(64) S buffer[lane_count<L>] = {};
  for (int i = 0; i < count; ++i) buffer[i] = p[i * stride];
  return load_unit<L>(static_cast<const S*>(buffer));
}
template <class S, class L>
[[gnu::noinline]] void store_scattered(S* p, std::int64_t stride, int count, L x, bool stream) {
  if (count == lane_count<L> && (stride == 1 || stride == -1))
    return store_whole(p, stride, x, stream);
  alignas(64) S buffer[lane_count<L>];
  store_unit(static_cast<S*>(buffer), x, false);
  for (int i = 0; i < count; ++i) p[i * stride] = buffer[i];
}
}  // namespace detail

/// Lane i is p[i * stride] for i < count, zero from there on.
template <class L, class S>
SCANREC_INLINE L load(const S* p, std::int64_t stride, int count) {
  constexpr int n = lane_count<L>;
  if constexpr (n == 1) {
    if constexpr (std::is_same_v<S, bool>)
      return static_cast<L>(*p ? 1 : 0);
    else
      return from_element(*p);
  } else {
    return detail::load_gathered<L>(p, stride, count);
  }
}

/// p[i * stride] = lane i for i < count; `stream` bypasses the caches where elements are adjacent.
template <class S, class L>
SCANREC_INLINE void store(S* p, std::int64_t stride, int count, L x, bool stream) {
  constexpr int n = lane_count<L>;
  if constexpr (n == 1) {
    *p = to_element<S>(x);
  } else {
    detail::store_scattered(p, stride, count, x, stream);
  }
}

namespace detail {
template <class W, class L>
[[gnu::noinline]] void add_lanes_into(W* p, std::int64_t stride, int count, L x) {
  using wide_lane = lane_t<W, lane_count<L>>;
  const auto added = to_wide<wide_lane>(x);
  if (stride != 0) {
    store(p, stride, count, load<wide_lane>(p, stride, count) + added, false);
  } else {
    // Lanes past the count hold nothing that may be added.
    alignas(64) W lane[lane_count<L>];
    store_unit(static_cast<W*>(lane), added, false);
    const auto total = sum(load<wide_lane>(static_cast<const W*>(lane), 1, count));
    using scalar = lane_t<W, 1>;
    store(p, 1, 1, load<scalar>(p, 1, 1) + scalar(total), false);
  }
}
}  // namespace detail

/// p[i * stride] += lane i, widened, for i < count; a zero stride adds the sum of the lanes.
template <class W, class L>
SCANREC_INLINE void add_into(W* p, std::int64_t stride, int count, L x) {
  if constexpr (lane_count<L> == 1) {
    using wide_lane = lane_t<W, 1>;
    store(p, 1, 1, load<wide_lane>(p, 1, 1) + to_wide<wide_lane>(x), false);
  } else {
    detail::add_lanes_into(p, stride, count, x);
  }
}

/// Makes non-temporal stores visible before anything that follows.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace scanrec::inline SCANREC_ABI::simd
