// SPDX-License-Identifier: BSD-3-Clause
// Tests of the initial parameters of S5 and LRU layers.
#include <algorithm>
#include <cmath>
#include <complex>
#include <random>

#include <scanrec/s5_init.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

TEST_CASE("the eigendecomposition of HiPPO-LegS reproduces its normal part", "[s5_init]") {
  for (const int n : {2, 16, 64}) {
    const hippo_legs h = make_hippo_legs(n);
    const Eigen::MatrixXcd a = h.vectors * h.lambda.asDiagonal() * h.vectors.adjoint();
    double off = 0, size = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        // LegS is lower triangular: -sqrt((2i + 1)(2j + 1)) below the diagonal and -(i + 1) on it.
        // Its normal part is LegS plus the outer product of sqrt(i + 1/2) with itself.
        const double legs = i > j    ? -std::sqrt((2.0 * i + 1) * (2.0 * j + 1))
                            : i == j ? -(i + 1.0)
                                     : 0;
        const double want = legs + std::sqrt((i + 0.5) * (j + 0.5));
        off = std::max(off, std::abs(a(i, j) - want)), size = std::max(size, std::abs(want));
      }
    CHECK(off <= 1e-12 * size);
    for (int i = 0; i < n; ++i) {
      CHECK(h.lambda[i].real() == -0.5);
      CHECK(std::abs(h.lambda[i].imag() + h.lambda[n - 1 - i].imag()) <= 1e-10 * size);
    }
  }
}

TEST_CASE("initial parameters lie in the ranges of their options", "[s5_init]") {
  std::mt19937 engine(5);
  const auto s = make_s5<float>({.channels = 4,
                                 .states = 32,
                                 .blocks = 4,
                                 .bidirectional = true,
                                 .least_step = 0.01,
                                 .most_step = 0.1},
                                engine);
  CHECK(s.lambda.size() == 16);
  CHECK(s.output.cols() == 32);
  for (int i = 0; i < 16; ++i) {
    CHECK(s.lambda[i].imag() > 0);
    CHECK(s.lambda[i] == s.lambda[i % 4]);
    CHECK(s.log_step[i] >= std::log(0.01f) - 1e-5f);
    CHECK(s.log_step[i] <= std::log(0.1f) + 1e-5f);
  }
  const auto lru = make_lru<double>(
      {.channels = 2, .states = 4000, .least_radius = 0.5, .most_radius = 0.9, .most_angle = 1},
      engine);
  double squares = 0;
  for (const auto& parameter : lru.lambda) {
    const auto d = discretise<double>(lru.method, parameter, 1);
    CHECK(std::abs(d.gate) >= 0.5 - 1e-12);
    CHECK(std::abs(d.gate) <= 0.9 + 1e-12);
    CHECK(std::arg(d.gate) > 0);
    CHECK(std::arg(d.gate) <= 1);
    CHECK(std::abs(std::norm(d.scale) + std::norm(d.gate) - 1) <= 1e-12);
    squares += std::norm(d.gate) / 4000;
  }
  // Parameters are uniform on the ring, so squared radii are uniform between 0.25 and 0.81. The
  // tolerance is six standard errors.
  CHECK(std::abs(squares - 0.53) <= 6 * 0.56 / std::sqrt(12.0 * 4000));
  CHECK_THROWS_AS(make_s5<float>({.channels = 4, .states = 6, .blocks = 2}, engine),
                  argument_error);
  CHECK_THROWS_AS(make_lru<float>({.channels = 4, .most_radius = 1}, engine), argument_error);
}

}  // namespace
