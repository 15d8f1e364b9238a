// SPDX-License-Identifier: BSD-3-Clause
// Tests of the library's operators, their identities and check_associative.
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("scans with sum, product, max and min start at the identity and propagate NaN",
          "[operators]") {
  const extents shape{.time = 100};
  std::vector<int> numbers(100), want(100), got(100);
  std::iota(numbers.begin(), numbers.end(), -50);
  const sequence_view<int> in(numbers.data(), shape), out(got.data(), shape);
  std::partial_sum(numbers.begin(), numbers.end(), want.begin());
  inclusive_scan(op::sum{}, in, out);
  CHECK(got == want);
  exclusive_scan(op::sum{}, in, out);
  CHECK(got[0] == 0);
  CHECK(got[99] == want[98]);
  inclusive_scan(blelloch{}, op::max{}, in, out, {.order = direction::reverse});
  CHECK(got == std::vector<int>(100, 49));
  exclusive_scan(hillis_steele{}, op::min{}, in, out);
  CHECK(got[0] == std::numeric_limits<int>::max());
  CHECK(got[99] == -50);
  const extents six{.time = 6};
  inclusive_scan(op::product{}, sequence_view(numbers.data() + 48, six),
                 sequence_view(got.data(), six));
  CHECK(std::vector<int>(got.begin(), got.begin() + 6) == std::vector<int>{-2, 2, 0, 0, 0, 0});

  // A NaN reaches all later elements.
  std::vector<float> floats{1, NAN, 2}, largest(3);
  const extents three{.time = 3};
  inclusive_scan(op::max{}, sequence_view(floats.data(), three),
                 sequence_view(largest.data(), three));
  CHECK(largest[0] == 1);
  CHECK(std::isnan(largest[1]));
  CHECK(std::isnan(largest[2]));
}

TEST_CASE("check_associative finds violations of associativity and of the identity",
          "[operators]") {
  const std::vector<int> samples{-2, 0, 1, 5};
  CHECK_FALSE(check_associative(op::sum{}, samples));
  CHECK_FALSE(check_associative(op::max{}, samples));
  const auto minus = [](int x, int y) { return x - y; };
  const auto counterexample = check_associative(minus, samples);
  REQUIRE(counterexample);
  const auto [x, y, z] = *counterexample;
  CHECK(minus(minus(x, y), z) != minus(x, minus(y, z)));

  struct wrong_identity {
    int operator()(int x, int y) const { return x + y; }
    static int identity() { return 1; }
  };
  CHECK(check_associative(wrong_identity{}, samples));

  const std::vector<affine<float>> maps{{0.5f, 1.0f}, {-3.0f, 0.1f}, {0.0f, 7.0f}};
  CHECK_FALSE(check_associative(op::compose{}, maps, [](const auto& p, const auto& q) {
    return std::abs(p.a - q.a) < 1e-5f && std::abs(p.u - q.u) < 1e-5f;
  }));
  using words = mat<std::uint32_t, 2>;
  const auto times = [](const words& earlier, const words& later) {
    return simd::mul(earlier, later);
  };
  const std::vector<words> matrices{{{{1, 2}, {3, 4}}}, {{{0, 1}, {7, 9}}}, {{{5, 5}, {6, 1}}}};
  CHECK_FALSE(check_associative(times, matrices));
}
