// SPDX-License-Identifier: BSD-3-Clause
// Lanes to and from memory: whole vectors with 16-bit and complex storage and non-temporal stores,
// and, out of line, any stride and count.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>

#include <scanrec/element.hpp>
#include <scanrec/simd/lanes.hpp>
#include <scanrec/simd/matrix_lanes.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- one element ------------------------------------------------------------------------------

/// The lane that a stored element becomes.
template <class S>
SCANREC_HD SCANREC_INLINE auto from_element(S x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return complex_lanes{x.real(), x.imag()};
  else if constexpr (std::is_same_v<S, bfloat16> || std::is_same_v<S, float16>)
    return static_cast<float>(x);
  else if constexpr (small_matrix<S>)
    return detail::each<lane_t<compute_t<S>, 1>>(
        [](auto a) SCANREC_LAMBDA { return from_element(a); }, x);
  else
    return x;
}

/// The element that a scalar lane is stored as.
template <class S, class L>
SCANREC_HD SCANREC_INLINE S to_element(L x) {
  if constexpr (scanrec::detail::is_complex<S>)
    return S(x.re, x.im);
  else if constexpr (small_matrix<S>)
    return detail::each<S>(
        [](auto a) SCANREC_LAMBDA { return to_element<typename S::component>(a); }, x);
  else
    return static_cast<S>(x);
}

/// *p as a scalar lane; of a bool, 1 or 0.
template <class L, class S>
SCANREC_HD SCANREC_INLINE L load_one(const S* p) {
  if constexpr (std::is_same_v<S, bool>)
    return static_cast<L>(*p ? 1 : 0);
  else
    return from_element(*p);
}
template <class S, class L>
SCANREC_HD SCANREC_INLINE void store_one(S* p, L x) {
  *p = to_element<S>(x);
}

// ---- one register -----------------------------------------------------------------------------

namespace detail {

template <class V>
SCANREC_INLINE V load_bytes(const void* p) {
  V x;
  std::memcpy(&x, p, sizeof(V));
  return x;
}

// A non-temporal store of a register to an address that is a multiple of its size.
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

// Unsigned integers of 8 and 16 bits to 32 bits and back (where they fit), a register of N at a
// time. GCC 12 spells __builtin_convertvector out lane by lane here, hence the intrinsics. The
// masked forms: it also warns about the undefined operand inside the plain ones.
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
    // The masked forms: GCC 12 warns about the undefined operand inside the plain ones.
    if constexpr (n == 16) return _mm512_maskz_cvtph_ps(__mmask16(~0), load_bytes<__m256i>(p));
#endif
    if constexpr (n == 8) return _mm256_cvtph_ps(load_bytes<__m128i>(p));
#endif
    return half_lanes<n>::to_float(load_u16<n>(p));
  } else {
    static_assert(std::is_same_v<S, bool>, "scanrec: no such conversion on load");
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "scanrec: a mask lane");
    using i32 = typename raw<std::int32_t, n>::type;
    if constexpr (sizeof(T) == 4)
      return __builtin_convertvector((i32)load_u8<n>(p), vector);
    else
      return __builtin_convertvector(load_bytes<typename raw<std::uint8_t, n>::type>(p), vector);
  }
}

// The register as it is stored in S.
template <class S, class T>
SCANREC_INLINE auto to_storage(typename raw<T>::type x) {
  constexpr int n = leaf_lanes<T>;
  if constexpr (std::is_same_v<S, T>) {
    return x;
  } else if constexpr (std::is_same_v<S, bfloat16>) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
    // The instruction takes subnormal numbers for zero; they are rare.
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
    static_assert(std::is_same_v<S, float16>, "scanrec: no such conversion on store");
#if defined(__F16C__)
    [[maybe_unused]] constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
    if constexpr (n == 16) return _mm512_maskz_cvtps_ph(__mmask16(~0), x, nearest);
#endif
    if constexpr (n == 8) return _mm256_cvtps_ph(x, nearest);
#endif
    if constexpr (n != 8 && n != 16) return half_lanes<n>::from_float(x);
  }
}

// Keeps GCC from loading a register once for every shuffle that it goes into.
template <class V>
SCANREC_INLINE void keep_loaded([[maybe_unused]] V& x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
}

}  // namespace detail

// ---- a whole lane, elements side by side ------------------------------------------------------

/// Lane i is p[i]; `reversed`, p[count - 1 - i].
template <class L, class S>
SCANREC_INLINE L load_unit(const S* p, bool reversed = false) {
  constexpr int n = lane_count<L>;
  if constexpr (n != leaf_count<L>) {
    // Reversed one register at a time: a choice between registers costs no copy.
    using half = decltype(half_of<0>(std::declval<L>()));
    return join(load_unit<half>(reversed ? p + n / 2 : p, reversed),
                load_unit<half>(reversed ? p : p + n / 2, reversed));
  } else if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    const auto* parts = reinterpret_cast<const typename R::value_type*>(p);
    R low = load_unit<R>(parts), high = load_unit<R>(parts + n);
    detail::keep_loaded(low.v), detail::keep_loaded(high.v);
    const R re = every_other<0>(low, high), im = every_other<1>(low, high);
    return {reverse_if(reversed, re), reverse_if(reversed, im)};
  } else {
    return reverse_if(reversed, L(detail::load_register<typename L::value_type>(p)));
  }
}

namespace detail {
// Calls put(address, register) for every register of the lanes, in storage type.
template <class S, class L, class Put>
SCANREC_INLINE void store_registers(S* p, L x, bool reversed, Put put) {
  constexpr int n = lane_count<L>;
  if constexpr (n != leaf_count<L>) {
    store_registers(reversed ? p + n / 2 : p, half_of<0>(x), reversed, put);
    store_registers(reversed ? p : p + n / 2, half_of<1>(x), reversed, put);
  } else if constexpr (is_complex_lanes<L>) {
    using R = real_lane_t<L>;
    auto* parts = reinterpret_cast<typename R::value_type*>(p);
    const R re = reverse_if(reversed, x.re), im = reverse_if(reversed, x.im);
    put(parts, zip<0>(re, im).v);
    put(parts + n, zip<1>(re, im).v);
  } else {
    put(p, to_storage<S, typename L::value_type>(reverse_if(reversed, x).v));
  }
}
template <class S, class L>
inline constexpr std::size_t register_bytes = sizeof(S) * static_cast<std::size_t>(leaf_count<L>) /
                                              (is_complex_lanes<L> ? 2 : 1);

// Ordinary allocations are only 16-byte aligned: then in consecutive 16-byte pieces, which fill
// whole lines just as well; what is aligned to less is stored the ordinary way.
template <class S, class L>
[[gnu::noinline]] void stream_pieces(S* p, L x, bool reversed) {
  const bool in_pieces = reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  store_registers(p, x, reversed, [in_pieces](void* to, auto v) {
    if constexpr (sizeof v > 16) {
      if (in_pieces) {
        struct piece {
          std::uint64_t bits __attribute__((vector_size(16)));
        };
        piece all[sizeof v / 16];
        std::memcpy(all, &v, sizeof v);
        for (unsigned i = 0; i < sizeof v / 16; ++i)
          stream_register(static_cast<piece*>(to) + i, all[i]);
        return;
      }
    }
    std::memcpy(to, &v, sizeof v);
  });
}
}  // namespace detail

/// p[i] = lane i; `reversed`, p[count - 1 - i].
template <class S, class L>
SCANREC_INLINE void store_unit(S* p, L x, bool reversed = false) {
  detail::store_registers(p, x, reversed,
                          [](void* to, auto v) SCANREC_LAMBDA { std::memcpy(to, &v, sizeof v); });
}
/// The same, past the caches where the address is a multiple of 16 bytes.
template <class S, class L>
SCANREC_INLINE void stream_unit(S* p, L x, bool reversed = false) {
  if (reinterpret_cast<std::uintptr_t>(p) % detail::register_bytes<S, L> == 0) [[likely]]
    detail::store_registers(
        p, x, reversed, [](void* to, auto v) SCANREC_LAMBDA { detail::stream_register(to, v); });
  else
    detail::stream_pieces(p, x, reversed);
}

/// Whether any of N bytes is set.
template <int N>
SCANREC_INLINE bool any_set(const bool* p) {
  static_assert(N % 8 == 0, "scanrec: whole words");
  std::uint64_t words[N / 8], any = 0;
  std::memcpy(words, p, N);
  for (const std::uint64_t word : words) any |= word;
  return any != 0;
}

// ---- any stride, any count --------------------------------------------------------------------

/// Lane i is p[i * stride] for i < count, zero from there on. Out of line, by way of a buffer: for
/// what happens once per sequence, not once per step.
template <class L, class S>
[[gnu::noinline]] L load(const S* p, std::int64_t stride, int count) {
  if constexpr (lane_count<L> == 1) {
    return load_one<L>(p);
  } else {
    alignas(64) S buffer[lane_count<L>] = {};
    for (int i = 0; i < count; ++i) buffer[i] = p[i * stride];
    return load_unit<L>(static_cast<const S*>(buffer));
  }
}

/// p[i * stride] = lane i for i < count.
template <class S, class L>
[[gnu::noinline]] void store(S* p, std::int64_t stride, int count, L x) {
  if constexpr (lane_count<L> == 1) {
    store_one(p, x);
  } else {
    alignas(64) S buffer[lane_count<L>];
    store_unit(static_cast<S*>(buffer), x);
    for (int i = 0; i < count; ++i) p[i * stride] = buffer[i];
  }
}

/// p[i * stride] += lane i, widened, for i < count; a zero stride adds the sum of the lanes.
template <class W, class L>
[[gnu::noinline]] void add_into(W* p, std::int64_t stride, int count, L x) {
  using wide_lane = lane_t<W, lane_count<L>>;
  using scalar = lane_t<W, 1>;
  const auto added = to_wide<wide_lane>(x);
  if constexpr (lane_count<L> == 1) {
    store_one(p, load_one<scalar>(p) + added);
  } else if (stride != 0) {
    store(p, stride, count, load<wide_lane>(p, stride, count) + added);
  } else {
    // Lanes past the count hold nothing that may be added.
    alignas(64) W lane[lane_count<L>];
    store_unit(static_cast<W*>(lane), added);
    const auto total = sum(load<wide_lane>(static_cast<const W*>(lane), 1, count));
    store_one(p, load_one<scalar>(p) + scalar(total));
  }
}

/// Makes non-temporal stores visible before anything that follows.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace scanrec::inline SCANREC_ABI::simd
