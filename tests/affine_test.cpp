// SPDX-License-Identifier: BSD-3-Clause
// Tests of affine and segmented maps: composition, application and identity.
#include <cstdint>
#include <random>

#include <scanrec/affine.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("affine and segmented maps compose associatively and exactly on integers", "[affine]") {
  using map = affine<std::uint32_t>;
  using reset_map = segmented<map>;
  static_assert(composable<map> && acting_on<map, std::uint32_t>);
  static_assert(composable<reset_map> && acting_on<reset_map, std::uint32_t>);
  std::mt19937 engine(4);
  for (int trial = 0; trial < 10000; ++trial) {
    const auto draw = [&] {
      return reset_map{{std::uint32_t(engine()), std::uint32_t(engine())}, engine() % 3 == 0};
    };
    const reset_map f = draw(), g = draw(), h = draw();
    const std::uint32_t x = engine();
    CHECK(combine(f, g).act(x) == g.act(f.act(x)));
    CHECK(combine(combine(f, g), h).act(x) == combine(f, combine(g, h)).act(x));
    CHECK(combine(reset_map::identity(), f).act(x) == f.act(x));
    CHECK(combine(f, reset_map::identity()).act(x) == f.act(x));
  }
}
