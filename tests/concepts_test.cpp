// SPDX-License-Identifier: BSD-3-Clause
// Tests of the argument concepts: the types that satisfy them.
#include <string>

#include <scanrec/backends.hpp>
#include <scanrec/concepts.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("concepts distinguish views, writable views, elements and backends", "[concepts]") {
  using view = sequence_view<float>;
  using const_view = sequence_view<const float>;
  STATIC_REQUIRE(sequence<view> && sequence<const_view>);
  STATIC_REQUIRE(sequence_argument<none_t> && !sequence<none_t>);
  STATIC_REQUIRE(!sequence_argument<float*> && !sequence_argument<state_view<float>>);
  STATIC_REQUIRE(writable_sequence_argument<view> && writable_sequence_argument<none_t>);
  STATIC_REQUIRE(!writable_sequence_argument<const_view>);
  STATIC_REQUIRE(sequence_of_elements<sequence_view<const bfloat16>>);
  STATIC_REQUIRE(!sequence_of_elements<sequence_view<std::string>>);
  STATIC_REQUIRE(backend<tiled> && backend<sequential>);
  STATIC_REQUIRE(!backend<int> && !backend<view>);
}
