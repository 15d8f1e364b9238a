// SPDX-License-Identifier: BSD-3-Clause
// Conversions between packs of float and packs of double.
#pragma once

#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/simd/moves.hpp>
#include <scanrec/detail/simd/pack.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

namespace detail {
template <class V, int... I>
SCANREC_INLINE auto half_raw(V x, std::integer_sequence<int, I...>, auto first) {
  return shuffle_raw<(I + decltype(first)::value)...>(x, x);
}
template <class V, int... I>
SCANREC_INLINE auto concat_raw(V x, V y, std::integer_sequence<int, I...>) {
  return shuffle_raw<I...>(x, y);
}

// to_doubles converts half a register of floats to a register of doubles; to_floats converts back.
// With AVX-512, GCC 12 splits __builtin_convertvector into two operations, so both functions use
// intrinsics. On aarch64, GCC 12 copies half registers, so widen and narrow use intrinsics there.
template <int N, class V>
SCANREC_INLINE typename raw<double, N>::type to_doubles(V x) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_maskz_cvtps_pd(__mmask8(~0), x);
#endif
  return __builtin_convertvector(x, typename raw<double, N>::type);
}
template <int N, class V>
SCANREC_INLINE typename raw<float, N>::type to_floats(V x) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_maskz_cvtpd_ps(__mmask8(~0), x);
#endif
  return __builtin_convertvector(x, typename raw<float, N>::type);
}
}  // namespace detail

template <int N>
SCANREC_INLINE pack<double, N> widen(pack<float, N> x) {
  if constexpr (is_leaf<float, N>) {
#if SCANREC_NEON
    using doubles = typename raw<double>::type;
    return {pack<double, 2>((doubles)vcvt_f64_f32(vget_low_f32(x.v))),
            pack<double, 2>((doubles)vcvt_high_f64_f32(x.v))};
#else
    constexpr int half = N / 2;
    using indices = std::make_integer_sequence<int, half>;
    const auto low = detail::half_raw(x.v, indices{}, std::integral_constant<int, 0>{});
    const auto high = detail::half_raw(x.v, indices{}, std::integral_constant<int, half>{});
    return {pack<double, half>(detail::to_doubles<half>(low)),
            pack<double, half>(detail::to_doubles<half>(high))};
#endif
  } else {
    return {widen(x.lo), widen(x.hi)};
  }
}

template <int N>
SCANREC_INLINE pack<float, N> narrow(pack<double, N> x) {
  if constexpr (is_leaf<float, N>) {
#if SCANREC_NEON
    using floats = typename raw<float>::type;
    return pack<float, N>((floats)vcvt_high_f32_f64(vcvt_f32_f64(x.lo.v), x.hi.v));
#else
    constexpr int half = N / 2;
    return pack<float, N>(detail::concat_raw(detail::to_floats<half>(x.lo.v),
                                             detail::to_floats<half>(x.hi.v),
                                             detail::leaf_indices<float>{}));
#endif
  } else {
    return {narrow(x.lo), narrow(x.hi)};
  }
}

}  // namespace scanrec::inline SCANREC_ABI::simd
