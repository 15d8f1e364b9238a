// SPDX-License-Identifier: BSD-3-Clause
// Discretisation of a continuous diagonal system dx/dt = lambda x + B u as the recurrence x[t] =
// gate * x[t-1] + scale * B u[t], and the adjoint of this discretisation.
#pragma once

#include <cmath>
#include <complex>
#include <concepts>
#include <type_traits>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/lanes.hpp>

namespace scanrec {

/// The method that turns a continuous system into a recurrence.
enum class discretisation {
  zero_order_hold,  ///< gate = exp(z), scale = (exp(z) - 1) / lambda,  z = lambda * step
  bilinear,         ///< gate = (1 + z / 2) / (1 - z / 2), scale = step / (1 - z / 2)
  /// The parameter is nu + i theta instead of lambda, and there is no step: gate = exp(-exp(nu) + i
  /// exp(theta)), scale = sqrt(1 - |gate|^2). Source: Orvieto et al., Resurrecting RNNs (2023),
  /// section 3.
  ring,
};

/// The discretised system: the factor of the state and the factor of the input in each step. R is
/// the real type.
template <class R>
struct discretised {
  std::complex<R> gate, scale;
};

/// Gradients of lambda and of the step. Complex gradients are hermitian: dL/dRe + i dL/dIm.
template <class R>
struct discretise_gradients {
  std::complex<R> lambda;
  R step;
};

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

// Used instead of std::complex, which does not compile in device code.
using simd::complex_lanes;

template <class R>
SCANREC_HD complex_lanes<R> scaled(complex_lanes<R> x, R by) {
  return {simd::mul(x.re, by), simd::mul(x.im, by)};
}
template <class R>
SCANREC_HD complex_lanes<R> conjugate(complex_lanes<R> x) {
  return {x.re, -x.im};
}
template <class R>
SCANREC_HD R squared(complex_lanes<R> x) {
  return simd::fma(x.re, x.re, simd::mul(x.im, x.im));
}
/// x / y; forms no squares that could over- or underflow. Source: R. L. Smith, Algorithm 116
/// (1962).
template <class R>
SCANREC_HD complex_lanes<R> quotient(complex_lanes<R> x, complex_lanes<R> y) {
  const bool flat = (y.re < 0 ? -y.re : y.re) >= (y.im < 0 ? -y.im : y.im);
  const R ratio = flat ? y.im / y.re : y.re / y.im;
  const R length = flat ? simd::fma(y.im, ratio, y.re) : simd::fma(y.re, ratio, y.im);
  return flat ? complex_lanes<R>(simd::fma(x.im, ratio, x.re) / length,
                                 simd::fma(-x.re, ratio, x.im) / length)
              : complex_lanes<R>(simd::fma(x.re, ratio, x.im) / length,
                                 simd::fma(x.im, ratio, -x.re) / length);
}
template <class R>
SCANREC_HD complex_lanes<R> exp(complex_lanes<R> z) {
  const R size = std::exp(z.re);
  return {simd::mul(size, R(std::cos(z.im))), simd::mul(size, R(std::sin(z.im)))};
}
/// phi(z) = (exp(z) - 1) / z, with a relative error of a few roundings.
template <class R>
SCANREC_HD complex_lanes<R> phi(complex_lanes<R> z) {
  if (z.re == 0 && z.im == 0) return {1, 0};
  const R half = std::sin(z.im / 2);
  const R real = simd::mul(R(std::expm1(z.re)), R(std::cos(z.im)));
  return quotient(complex_lanes<R>(simd::fma(-2 * half, half, real),
                                   simd::mul(R(std::exp(z.re)), R(std::sin(z.im)))),
                  z);
}
/// phi'(z) = (exp(z) - phi(z)) / z. For |z| < 1, it is computed as sum_k z^k / (k! (k + 2)).
template <class R>
SCANREC_HD complex_lanes<R> phi_slope(complex_lanes<R> z) {
  if (squared(z) >= 1) return quotient(exp(z) - phi(z), z);
  constexpr int terms = sizeof(R) == 4 ? 12 : 22;
  complex_lanes<R> sum(0, 0), power(1, 0);
  for (int k = 0; k < terms; ++k) {
    const R part = 1 / R(k + 2);
    sum = {simd::fma(power.re, part, sum.re), simd::fma(power.im, part, sum.im)};
    power = scaled(simd::mul(power, z), 1 / R(k + 1));
  }
  return sum;
}
/// 1 / (1 - z / 2).
template <class R>
SCANREC_HD complex_lanes<R> bilinear_factor(complex_lanes<R> z) {
  return quotient(complex_lanes<R>(1, 0), complex_lanes<R>(1 - z.re / 2, -z.im / 2));
}

/// exp(log_step), computed in double and rounded to R. The error in double is at most 2 ULP for
/// results from exp(-20) to exp(20). std::exp differs in the last bit between CPUs and GPUs. Since
/// lambda * step may be an angle of many radians, that difference would be visible in the gates.
/// This function gives the same bits on both, except that a CPU without fused multiply-adds may
/// differ in the last bit of a double.
template <std::floating_point R>
SCANREC_HD R step_size(R log_step) {
  return static_cast<R>(simd::exp_of_any(static_cast<double>(log_step)));
}

/// The result of discretise_lanes().
template <class R>
struct discretised_lanes {
  complex_lanes<R> gate, scale;
};
template <class R>
SCANREC_HD discretised_lanes<R> discretise_lanes(discretisation method, complex_lanes<R> lambda,
                                                 R step) {
  const complex_lanes<R> z = scaled(lambda, step);
  switch (method) {
    case discretisation::zero_order_hold:
      return {exp(z), scaled(phi(z), step)};
    case discretisation::bilinear: {
      const complex_lanes<R> d = bilinear_factor(z);
      return {simd::mul(complex_lanes<R>(1 + z.re / 2, z.im / 2), d), scaled(d, step)};
    }
    case discretisation::ring:
      break;
  }
  const R decay = std::exp(lambda.re);
  return {exp(complex_lanes<R>(-decay, std::exp(lambda.im))),
          complex_lanes<R>(std::sqrt(-std::expm1(-2 * decay)), 0)};
}

/// The result of discretise_lanes_vjp().
template <class R>
struct discretise_lanes_gradients {
  complex_lanes<R> lambda;
  R step;
};
template <class R>
SCANREC_HD discretise_lanes_gradients<R> discretise_lanes_vjp(discretisation method,
                                                              complex_lanes<R> lambda, R step,
                                                              complex_lanes<R> gate_grad,
                                                              complex_lanes<R> scale_grad) {
  // conj(a) gate_grad + conj(b) scale_grad.
  const auto through = [&](complex_lanes<R> a, complex_lanes<R> b) {
    return simd::fma(conjugate(a), gate_grad, simd::mul(conjugate(b), scale_grad));
  };
  switch (method) {
    case discretisation::zero_order_hold: {
      const complex_lanes<R> z = scaled(lambda, step), e = exp(z);
      return {through(scaled(e, step), scaled(phi_slope(z), step * step)),
              through(simd::mul(lambda, e), e).re};
    }
    case discretisation::bilinear: {
      const complex_lanes<R> d = bilinear_factor(scaled(lambda, step)), square = simd::mul(d, d);
      return {through(scaled(square, step), scaled(square, step * step / 2)),
              through(simd::mul(lambda, square), square).re};
    }
    case discretisation::ring:
      break;
  }
  const R decay = std::exp(lambda.re), angle = std::exp(lambda.im);
  const R scale = std::sqrt(-std::expm1(-2 * decay));
  const complex_lanes<R> along = through(exp(complex_lanes<R>(-decay, angle)), {0, 0});
  const R through_scale = simd::mul(decay * std::exp(-2 * decay) / scale, scale_grad.re);
  return {complex_lanes<R>(simd::fma(-decay, along.re, through_scale), angle * along.im), R(0)};
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Gate and scale of the recurrence that discretises a system. Computes in double and rounds once
/// to R.
///
/// Units  lambda is per unit of time and step is in that unit; gate is dimensionless and scale is a
///        time.
/// Error  a few roundings of |gate| and |scale|, also if lambda * step is near 0.
/// Source Smith et al., Simplified State Space Layers for Sequence Modeling (2023), section 2.1.
template <std::floating_point R>
discretised<R> discretise(discretisation method, std::complex<R> lambda,
                          std::type_identity_t<R> step) {
  using lanes = detail::complex_lanes<double>;
  const auto d =
      detail::discretise_lanes<double>(method, lanes(lambda.real(), lambda.imag()), step);
  const auto rounded = [](lanes x) {
    return std::complex<R>(static_cast<R>(x.re), static_cast<R>(x.im));
  };
  return {rounded(d.gate), rounded(d.scale)};
}

/// The adjoint of discretise(): computes the gradients of lambda and step from those of gate and
/// scale.
///
/// Source  docs/s5.md.
template <std::floating_point R>
discretise_gradients<R> discretise_vjp(discretisation method, std::complex<R> lambda,
                                       std::type_identity_t<R> step,
                                       std::complex<std::type_identity_t<R>> gate_grad,
                                       std::complex<std::type_identity_t<R>> scale_grad) {
  using lanes = detail::complex_lanes<double>;
  const auto widened = [](std::complex<R> x) { return lanes(x.real(), x.imag()); };
  const auto d = detail::discretise_lanes_vjp<double>(method, widened(lambda), step,
                                                      widened(gate_grad), widened(scale_grad));
  return {{static_cast<R>(d.lambda.re), static_cast<R>(d.lambda.im)}, static_cast<R>(d.step)};
}

}  // namespace scanrec::inline SCANREC_ABI
