// SPDX-License-Identifier: BSD-3-Clause
// Tests of extents and strides: defaults, conversions, text and products.
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <scanrec/extents.hpp>
#include <scanrec/problem.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("omitted extents are 1 and omitted strides 0, and the types do not convert to each other",
          "[extents]") {
  static_assert(strides{.time = 3} == strides{0, 3, 0, 0});
  static_assert(extents{.time = 3} == extents{1, 3, 1, 1});
  static_assert(!std::is_convertible_v<extents, strides> &&
                !std::is_convertible_v<strides, extents>);
  static_assert(!std::is_constructible_v<strides, extents>);
  static_assert(std::same_as<decltype(channels_last({})), strides>);
  static_assert(std::same_as<decltype(time_contiguous({})), strides>);
  static_assert(channels_last({2, 5, 3, 4}) == strides{15, 3, 1, 30});
  static_assert(time_contiguous({2, 5, 3, 4}) == strides{15, 1, 5, 30});
  CHECK(to_string(strides{6, -2, 1}) == "(batch 6, time -2, channel 1)");
  CHECK(to_string(strides{6, -2, 1, 1}) == "(batch 6, time -2, channel 1, group 1)");
}

TEST_CASE("products of counts are clipped to the largest count", "[extents]") {
  using detail::clipped_product;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  static_assert(clipped_product(6, 7) == 42);
  static_assert(clipped_product(most, 1) == most && clipped_product(most, 2) == most);
  static_assert(clipped_product(-3, 5) == -15);
  static_assert(clipped_product(6, 7, 42) == 42 && clipped_product(6, 7, 41) == 41);
  static_assert(clipped_product(most, most, detail::most_bytes) == detail::most_bytes);
  static_assert(clipped_product(0, most) == 0);
}
