// SPDX-License-Identifier: BSD-3-Clause
// State arithmetic of selective scans. States are real or complex lanes; step sizes, inputs and
// outputs are real lanes. The gradient of a complex state is dL/dRe + i dL/dIm.
#pragma once

#include <scanrec/detail/simd/sin_cos.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Number of real components of a state.
template <class State>
inline constexpr int parts_of = simd::is_complex_lanes<State> ? 2 : 1;
/// The real or the imaginary part.
template <int Part, class State>
SCANREC_HD SCANREC_INLINE auto part_of(State x) {
  if constexpr (!simd::is_complex_lanes<State>)
    return x;
  else if constexpr (Part == 0)
    return x.re;
  else
    return x.im;
}

/// The gate of a step: exp(delta rate), where the rate is an element of A. `Decays` asserts that
/// the modulus of the gate is at most 1.
template <bool Decays, class Lane, class State>
SCANREC_HD SCANREC_INLINE State selective_gate(Lane delta, State rate) {
  if constexpr (simd::is_complex_lanes<State>) {
    return simd::exp_of<Decays>(State{simd::mul(delta, rate.re), simd::mul(delta, rate.im)});
  } else if constexpr (Decays) {
    return simd::exp_of_negative(simd::mul(delta, rate));
  } else {
    return simd::exp_of_any(simd::mul(delta, rate));
  }
}

/// s x.
template <class Lane, class State>
SCANREC_HD SCANREC_INLINE State scaled(Lane s, State x) {
  if constexpr (simd::is_complex_lanes<State>)
    return {simd::mul(s, x.re), simd::mul(s, x.im)};
  else
    return simd::mul(s, x);
}
/// s x + y.
template <class Lane, class State>
SCANREC_HD SCANREC_INLINE State add_scaled(Lane s, State x, State y) {
  if constexpr (simd::is_complex_lanes<State>)
    return {simd::fma(s, x.re, y.re), simd::fma(s, x.im, y.im)};
  else
    return simd::fma(s, x, y);
}
/// s conj(x).
template <class Lane, class State>
SCANREC_HD SCANREC_INLINE State scaled_conj(Lane s, State x) {
  if constexpr (simd::is_complex_lanes<State>)
    return {simd::mul(s, x.re), simd::mul(simd::negative(s), x.im)};
  else
    return simd::mul(s, x);
}
/// s conj(x) + y.
template <class Lane, class State>
SCANREC_HD SCANREC_INLINE State add_scaled_conj(Lane s, State x, State y) {
  if constexpr (simd::is_complex_lanes<State>)
    return {simd::fma(s, x.re, y.re), simd::fma(simd::negative(s), x.im, y.im)};
  else
    return simd::fma(s, x, y);
}
/// x conj(y).
template <class State>
SCANREC_HD SCANREC_INLINE State times_conj(State x, State y) {
  if constexpr (simd::is_complex_lanes<State>)
    return {simd::fma(x.re, y.re, simd::mul(x.im, y.im)),
            simd::fma(x.im, y.re, simd::mul(simd::negative(x.re), y.im))};
  else
    return simd::mul(x, y);
}
/// Re(x y) + z.
template <class State, class Lane>
SCANREC_HD SCANREC_INLINE Lane add_real_product(State x, State y, Lane z) {
  if constexpr (simd::is_complex_lanes<State>)
    return simd::fma(x.re, y.re, simd::fma(simd::negative(x.im), y.im, z));
  else
    return simd::fma(x, y, z);
}
/// Re(conj(x) y) + z.
template <class State, class Lane>
SCANREC_HD SCANREC_INLINE Lane add_real_dot(State x, State y, Lane z) {
  if constexpr (simd::is_complex_lanes<State>)
    return simd::fma(x.re, y.re, simd::fma(x.im, y.im, z));
  else
    return simd::fma(x, y, z);
}

}  // namespace scanrec::detail::inline SCANREC_ABI
