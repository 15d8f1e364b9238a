// SPDX-License-Identifier: BSD-3-Clause
// From a continuous diagonal system dx/dt = lambda x + B u to the recurrence x[t] = gate * x[t-1] +
// scale * B u[t], and the adjoint of that.
#pragma once

#include <cmath>
#include <complex>
#include <concepts>
#include <type_traits>

#include <scanrec/config.hpp>

namespace scanrec {

/// How a continuous system becomes a recurrence.
enum class discretisation {
  zero_order_hold,  ///< gate = exp(z), scale = (exp(z) - 1) / lambda,  z = lambda * step
  bilinear,         ///< gate = (1 + z / 2) / (1 - z / 2), scale = step / (1 - z / 2)
  /// The parameter is (nu, theta), not lambda, and there is no step: gate = exp(-exp(nu) + i
  /// exp(theta)), scale = sqrt(1 - |gate|^2). Source: Orvieto et al., Resurrecting RNNs (2023),
  /// section 3.
  ring,
};

/// What a system is multiplied by per step; complex, R is the real type.
template <class R>
struct discretised {
  std::complex<R> gate, scale;
};

/// Gradients of a parameter and of the step, for hermitian gradients dL/dRe + i dL/dIm.
template <class R>
struct discretise_gradients {
  std::complex<R> lambda;
  R step;
};

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

/// exp(z) - 1, to a few roundings of its size.
template <class R>
std::complex<R> expm1(std::complex<R> z) {
  const R half = std::sin(z.imag() / 2);
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half,
          std::exp(z.real()) * std::sin(z.imag())};
}
/// (exp(z) - 1) / z.
template <class R>
std::complex<R> phi(std::complex<R> z) {
  return z == std::complex<R>(0) ? std::complex<R>(1) : expm1(z) / z;
}
/// Its derivative, (exp(z) - phi(z)) / z; near 0 the series sum of z^k / (k! (k + 2)).
template <class R>
std::complex<R> phi_slope(std::complex<R> z) {
  if (std::norm(z) >= 1) return (std::exp(z) - phi(z)) / z;
  std::complex<R> sum = 0, power = 1;
  for (int k = 0; k < 22; ++k) {
    sum += power / R(k + 2);
    power *= z / R(k + 1);
  }
  return sum;
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// The recurrence of a system. Computed in double, so that a float is off by its rounding only.
///
/// Units   lambda is per unit of time, step in that unit; gate is dimensionless, scale a time.
/// Error   a few roundings of |gate| and |scale|, also where lambda * step is near 0.
/// Source  Smith et al., Simplified State Space Layers for Sequence Modeling (2023), section 2.1.
template <std::floating_point R>
discretised<R> discretise(discretisation method, std::complex<R> lambda,
                          std::type_identity_t<R> step) {
  using complex = std::complex<double>;
  const complex l(lambda);
  const double h = step;
  complex gate, scale;
  switch (method) {
    case discretisation::zero_order_hold:
      gate = std::exp(l * h), scale = h * detail::phi(l * h);
      break;
    case discretisation::bilinear:
      scale = 1.0 / (1.0 - l * (h / 2)), gate = (1.0 + l * (h / 2)) * scale, scale *= h;
      break;
    case discretisation::ring:
      gate = std::exp(complex(-std::exp(l.real()), std::exp(l.imag())));
      scale = std::sqrt(-std::expm1(-2 * std::exp(l.real())));
      break;
  }
  return {std::complex<R>(gate), std::complex<R>(scale)};
}

/// The adjoint of discretise(): from the gradients of gate and scale.
///
/// Source  docs/s5.md.
template <std::floating_point R>
discretise_gradients<R> discretise_vjp(discretisation method, std::complex<R> lambda,
                                       std::type_identity_t<R> step,
                                       std::complex<std::type_identity_t<R>> gate_grad,
                                       std::complex<std::type_identity_t<R>> scale_grad) {
  using complex = std::complex<double>;
  const complex l(lambda), g(gate_grad), s(scale_grad);
  const double h = step;
  complex by_lambda;
  double by_step = 0;
  switch (method) {
    case discretisation::zero_order_hold: {
      const complex e = std::exp(l * h);
      by_lambda = std::conj(h * e) * g + std::conj(h * h * detail::phi_slope(l * h)) * s;
      by_step = (std::conj(l * e) * g + std::conj(e) * s).real();
      break;
    }
    case discretisation::bilinear: {
      const complex d = 1.0 / (1.0 - l * (h / 2)), square = d * d;
      by_lambda = std::conj(h * square) * g + std::conj(h * h / 2 * square) * s;
      by_step = (std::conj(l * square) * g + std::conj(square) * s).real();
      break;
    }
    case discretisation::ring: {
      const double decay = std::exp(l.real()), angle = std::exp(l.imag());
      const complex gate = std::exp(complex(-decay, angle)), along = std::conj(gate) * g;
      const double scale = std::sqrt(-std::expm1(-2 * decay));
      by_lambda = {-decay * along.real() + decay * std::exp(-2 * decay) / scale * s.real(),
                   angle * along.imag()};
      break;
    }
  }
  return {std::complex<R>(by_lambda), static_cast<R>(by_step)};
}

}  // namespace scanrec::inline SCANREC_ABI
