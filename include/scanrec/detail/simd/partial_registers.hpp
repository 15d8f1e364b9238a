// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores of the first elements of a register. AVX-512 uses masks for registers of at
// least 16 bytes. AVX2 uses masks for loads of 32 bytes. All other accesses are in pieces.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <scanrec/detail/simd/registers.hpp>

namespace scanrec::inline SCANREC_ABI::simd::detail {

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define SCANREC_BYTE_MASKS 1
#else
#define SCANREC_BYTE_MASKS 0
#endif

// Whether a mask selects the elements that are loaded, for elements of `Size` bytes in a register
// of `Bytes` bytes.
template <std::size_t Size, std::size_t Bytes>
inline constexpr bool loads_by_mask =
#if SCANREC_BYTE_MASKS
    Bytes >= 16;
#elif defined(__AVX2__)
    Bytes == 32 && Size % 4 == 0;
#else
    false;
#endif

#if SCANREC_BYTE_MASKS
// A mask takes one instruction of BMI2, which every CPU with AVX-512 has. Compilers do not find
// this instruction.
SCANREC_INLINE std::uint64_t first_bits(std::size_t count) {
#ifdef __BMI2__
  return _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(count));
#else
  return count < 64 ? (std::uint64_t{1} << count) - 1 : ~std::uint64_t{0};
#endif
}
template <class V>
SCANREC_INLINE V load_masked(const void* p, std::size_t bytes) {
  const std::uint64_t mask = first_bits(bytes);
  if constexpr (sizeof(V) == 64) return (V)_mm512_maskz_loadu_epi8(mask, p);
  if constexpr (sizeof(V) == 32) return (V)_mm256_maskz_loadu_epi8((__mmask32)mask, p);
  if constexpr (sizeof(V) == 16) return (V)_mm_maskz_loadu_epi8((__mmask16)mask, p);
}
template <class V>
SCANREC_INLINE void store_masked(void* p, V x, std::size_t bytes) {
  const std::uint64_t mask = first_bits(bytes);
  if constexpr (sizeof(V) == 64) _mm512_mask_storeu_epi8(p, mask, (__m512i)x);
  if constexpr (sizeof(V) == 32) _mm256_mask_storeu_epi8(p, (__mmask32)mask, (__m256i)x);
  if constexpr (sizeof(V) == 16) _mm_mask_storeu_epi8(p, (__mmask16)mask, (__m128i)x);
}
#elif defined(__AVX2__)
template <class V>
SCANREC_INLINE V load_masked(const void* p, std::size_t bytes) {
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(bytes / 4)),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return (V)_mm256_maskload_epi32(static_cast<const int*>(p), mask);
}
#endif

// A word of the first `bytes` bytes at p (at most 8), followed by zeros. `bytes` is a multiple of
// Size. The word is assembled in a register, because a load of it from a buffer would wait for the
// stores of its pieces.
template <std::size_t Size>
SCANREC_INLINE std::uint64_t load_word(const std::byte* p, std::size_t bytes) {
  if (bytes >= 8) return load_bytes<std::uint64_t>(p);
  if constexpr (std::endian::native != std::endian::little) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    return word;
  }
  std::uint64_t word = (bytes & 4) ? load_bytes<std::uint32_t>(p) : 0;
  if (Size <= 2 && (bytes & 2))
    word |= std::uint64_t{load_bytes<std::uint16_t>(p + (bytes & 4))} << (8 * (bytes & 4));
  if (Size == 1 && (bytes & 1))
    word |= std::uint64_t{load_bytes<std::uint8_t>(p + (bytes & 6))} << (8 * (bytes & 6));
  return word;
}

// Copies the first `count` of N elements, in pieces of N / 2, N / 4, ... elements.
template <int N, class S>
SCANREC_INLINE void copy_first(S* to, const S* from, int count) {
  if constexpr (N == 1) {
    if (count > 0) *to = *from;
  } else {
    constexpr int half = N / 2;
    const int past = count < half ? 0 : half;
    if (past > 0) std::memcpy(static_cast<void*>(to), from, half * sizeof(S));
    copy_first<half>(to + past, from + past, count - past);
  }
}

// Like load_register for the first `count` elements, with zeros after them. Other elements are not
// read.
template <class T, class S>
SCANREC_INLINE typename raw<T>::type load_first(const S* p, std::int64_t count) {
  constexpr int n = leaf_lanes<T>;
  constexpr std::size_t all = n * sizeof(S), words = (all + 7) / 8;
  const std::size_t bytes =
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, n)) * sizeof(S);
  alignas(64) S buffer[n];  // source of the conversion; compilers keep it in registers
  if constexpr (loads_by_mask<sizeof(S), all>) {
    const auto loaded = load_masked<typename raw<std::uint8_t, all>::type>(p, bytes);
    std::memcpy(static_cast<void*>(buffer), &loaded, all);
  } else {
    typename raw<std::uint64_t, words>::type loaded{};
    unrolled<static_cast<int>(words)>([&](auto i) SCANREC_LAMBDA {
      constexpr std::size_t before = 8 * decltype(i)::value;
      if (bytes > before)
        loaded[i.value] =
            load_word<sizeof(S)>(reinterpret_cast<const std::byte*>(p) + before, bytes - before);
    });
    std::memcpy(static_cast<void*>(buffer), &loaded, all);
  }
  return load_register<T>(static_cast<const S*>(buffer));
}
// Stores the first `count` elements of a register that is already in storage type.
template <class S, class V>
SCANREC_INLINE void store_first(S* p, V x, std::int64_t count) {
  constexpr int n = static_cast<int>(sizeof(V) / sizeof(S));
  const int used = static_cast<int>(std::clamp<std::int64_t>(count, 0, n));
#if SCANREC_BYTE_MASKS
  if constexpr (sizeof(V) >= 16) return store_masked(p, x, used * sizeof(S));
#endif
  if (used == n) {
    std::memcpy(static_cast<void*>(p), &x, sizeof x);
  } else if (used > 0) {
    S buffer[n];
    std::memcpy(static_cast<void*>(buffer), &x, sizeof x);
    copy_first<n>(p, static_cast<const S*>(buffer), used);
  }
}
#undef SCANREC_BYTE_MASKS

}  // namespace scanrec::inline SCANREC_ABI::simd::detail
