// SPDX-License-Identifier: BSD-3-Clause
// Tests of the discretisation of continuous state spaces: values against high-precision values,
// gradients against central differences.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include <scanrec/discretise.hpp>

#include "catch.hpp"
#include "state_space_values.hpp"

namespace {

using namespace scanrec;
using complex = std::complex<double>;

TEST_CASE("discretised gates and scales equal values from mpmath", "[discretise]") {
  for (const auto& p : state_space_values::points) {
    const auto d = discretise<double>(p.method, p.lambda, p.step);
    INFO("method " << static_cast<int>(p.method) << ", lambda " << p.lambda << ", step " << p.step);
    CHECK(std::abs(d.gate - p.gate) <=
          1e-14 * (1 + std::abs(p.lambda * p.step)) * std::abs(p.gate));
    CHECK(std::abs(d.scale - p.scale) <= 1e-14 * std::abs(p.scale));
    const auto f =
        discretise<float>(p.method, std::complex<float>(p.lambda), static_cast<float>(p.step));
    // The float result is the double result for the float parameters, rounded.
    const auto d_of_f = discretise<double>(p.method, complex(std::complex<float>(p.lambda)),
                                           static_cast<float>(p.step));
    CHECK(f.gate == std::complex<float>(d_of_f.gate));
    CHECK(f.scale == std::complex<float>(d_of_f.scale));
  }
}

TEST_CASE("the step of a float system is exp(log_step), correctly rounded", "[discretise]") {
  // Correct rounding makes the result independent of the exponential function of a compiler or GPU.
  std::int64_t wrong = 0;
  double most = 0;  // in ULP of double
  for (float log_step = -12; log_step < 3; log_step += 1e-3f) {
    const long double exact = std::exp(static_cast<long double>(log_step));
    wrong += detail::step_size(log_step) != static_cast<float>(exact);
    int exponent = 0;
    std::frexp(exact, &exponent);
    const long double apart = detail::step_size(static_cast<double>(log_step)) - exact;
    most = std::max(most, static_cast<double>(std::abs(std::ldexp(apart, 53 - exponent))));
  }
  CHECK(wrong == 0);
  CHECK(most <= 2);
}

TEST_CASE("discretise_vjp equals central differences, also near lambda = 0", "[discretise]") {
  const complex gate_grad(0.7, -0.4), scale_grad(-1.1, 0.3);
  const auto loss = [&](discretisation method, complex lambda, double step) {
    const auto d = discretise<double>(method, lambda, step);
    return (std::conj(gate_grad) * d.gate + std::conj(scale_grad) * d.scale).real();
  };
  for (const auto method :
       {discretisation::zero_order_hold, discretisation::bilinear, discretisation::ring})
    for (const complex lambda : {complex(-0.5, 1.5), complex(-1e-7, 1e-8), complex(-0.25, 0.6),
                                 complex(-2, 0.1), complex(-0.6, -0.9)})
      for (const double step : {1.0, 0.3}) {
        const auto got = discretise_vjp<double>(method, lambda, step, gate_grad, scale_grad);
        constexpr double e = 1e-5;
        const double by_re =
            (loss(method, lambda + e, step) - loss(method, lambda - e, step)) / (2 * e);
        const complex i(0, e);
        const double by_im =
            (loss(method, lambda + i, step) - loss(method, lambda - i, step)) / (2 * e);
        const double by_step =
            (loss(method, lambda, step + e) - loss(method, lambda, step - e)) / (2 * e);
        INFO("method " << static_cast<int>(method) << ", lambda " << lambda << ", step " << step);
        CHECK(std::abs(got.lambda - complex(by_re, by_im)) <= 1e-8);
        CHECK(std::abs(got.step - (method == discretisation::ring ? 0 : by_step)) <= 1e-8);
      }
}

}  // namespace
