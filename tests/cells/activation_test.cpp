// SPDX-License-Identifier: BSD-3-Clause
// Tests of activations: values, slopes, and the same bits in every lane type. The functions behind
// tanh, sigmoid and exponential have their own tests in math_test.cpp.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <scanrec/cells/activation.hpp>
#include <scanrec/detail/simd/memory.hpp>

#include "catch.hpp"
#include "reference.hpp"

namespace {

using namespace scanrec;

template <class R>
void check_values() {
  constexpr R nan = std::numeric_limits<R>::quiet_NaN();
  for (const R zero : {R(0), R(-0.0)}) CHECK(activation::exponential::of(zero).slope == 1);
  for (const R x : {R(-7), R(-3), R(-1), R(0), R(2), R(3), R(7)}) {
    const auto h = activation::hard_sigmoid::of(x);
    const R exact = std::clamp(x / 6 + R(0.5), R(0), R(1));
    CHECK(std::abs(h.value - exact) <= std::numeric_limits<R>::epsilon());
    CHECK(h.complement == 1 - h.value);
    CHECK(h.slope == (std::abs(x) < 3 ? R(1) / R(6) : R(0)));
    CHECK(activation::relu::of(x).value == std::max(x, R(0)));
    CHECK(activation::relu::of(x).slope == (x > 0 ? 1 : 0));
    CHECK(activation::positive::of(x).value == (x < 0 ? simd::sigmoid(x).value : x + R(0.5)));
  }
  for (const R x : {R(-30), R(-2), R(-0.5), R(0), R(1), R(20)}) {
    // The expected slope is a central difference in long double.
    const auto gelu = [](long double v) {
      return 0.5L * v * (1 + std::tanh(0.79788456080286535588L * (v + 0.044715L * v * v * v)));
    };
    const auto g = activation::gelu::of(x);
    const long double slope = (gelu(x + 1e-6L) - gelu(x - 1e-6L)) / 2e-6L;
    CHECK(std::abs(g.value - gelu(x)) <=
          32 * std::numeric_limits<R>::epsilon() * (1 + std::abs(x)));
    CHECK(std::abs(g.slope - slope) <= 32 * std::numeric_limits<R>::epsilon() + 1e-10L);
  }
  CHECK(std::isnan(activation::exponential::of(nan).value));
  CHECK(std::isnan(activation::hard_sigmoid::of(nan).value));
  CHECK(std::isnan(activation::relu::of(nan).value));
  CHECK(std::isnan(activation::positive::of(nan).value));
}
TEST_CASE("activations and their slopes equal their formulas, and NaN stays NaN", "[activation]") {
  check_values<float>();
  check_values<double>();
}

template <class A, class R, int N>
void check_lanes(const char* name) {
  using lane = simd::lane_t<R, N>;
  reference::generator bits{3};
  constexpr R special[] = {R(0),
                           R(-0.0),
                           std::numeric_limits<R>::infinity(),
                           -std::numeric_limits<R>::infinity(),
                           std::numeric_limits<R>::quiet_NaN(),
                           std::numeric_limits<R>::min() / 4,
                           R(88),
                           R(-88),
                           R(3),
                           R(-3)};
  for (int round = 0; round < 2000; ++round) {
    R in[N], value[N], complement[N], slope[N];
    for (R& x : in) {
      x = static_cast<R>(static_cast<std::int32_t>(bits())) * R(0x1p-31) *
          (round % 2 ? R(8) : R(120));
      if (bits() % 8 == 0) x = special[bits() % std::size(special)];
    }
    const auto y = A::of(simd::load_unit<lane>(in));
    simd::store_unit(value, y.value), simd::store_unit(complement, y.complement);
    simd::store_unit(slope, y.slope);
    for (int i = 0; i < N; ++i) {
      const auto one = A::of(in[i]);
      const bool same = reference::same_bits(value[i], one.value) &&
                        reference::same_bits(complement[i], one.complement) &&
                        reference::same_bits(slope[i], one.slope);
      // A NaN stays a NaN, but its sign and payload depend on the processor.
      const bool both_nan = std::isnan(in[i]) && std::isnan(value[i]) && std::isnan(one.value);
      if (!same && !both_nan) FAIL(name << " of " << in[i] << " in lane " << i);
    }
  }
}
TEST_CASE("activations have the same bits in every lane type", "[activation]") {
  const auto all = []<class A>(A, const char* name) {
    check_lanes<A, float, 16>(name), check_lanes<A, float, 64>(name);
    check_lanes<A, double, 8>(name), check_lanes<A, double, 32>(name);
  };
  all(activation::identity{}, "identity");
  all(activation::tanh{}, "tanh");
  all(activation::sigmoid{}, "sigmoid");
  all(activation::exponential{}, "exponential");
  all(activation::hard_sigmoid{}, "hard_sigmoid");
  all(activation::relu{}, "relu");
  all(activation::positive{}, "positive");
  all(activation::gelu{}, "gelu");
}

}  // namespace
