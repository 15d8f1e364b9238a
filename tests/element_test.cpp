// SPDX-License-Identifier: BSD-3-Clause
// Tests of conversions between float and 16-bit types: all 16-bit values to float, and samples and
// edge cases of float to 16 bits.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/element.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("16-bit types round to nearest, ties to even, and packs convert like single numbers",
          "[element]") {
  using P = simd::lane_t<float, 16>;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (std::uint32_t first = 0; first < 65536; first += 16) {
    bfloat16 b[16];
    float16 h[16];
    for (std::uint32_t i = 0; i < 16; ++i)
      b[i].bits = h[i].bits = static_cast<std::uint16_t>(first + i);
    float fb[16], fh[16];
    simd::store_unit(fb, simd::load_unit<P>(b)), simd::store_unit(fh, simd::load_unit<P>(h));
    for (std::uint32_t i = 0; i < 16; ++i) {
      REQUIRE(bits(fb[i]) == bits(static_cast<float>(b[i])));
      REQUIRE(bits(fh[i]) == bits(static_cast<float>(h[i])));
      if (std::isnan(fb[i]) || std::isnan(fh[i])) continue;
      REQUIRE(bfloat16(fb[i]).bits == b[i].bits);  // round trip
      REQUIRE(float16(fh[i]).bits == h[i].bits);
    }
  }
  std::mt19937 engine(3);
  for (int trial = 0; trial < 40000; ++trial) {
    float x[16];
    for (auto& v : x) {
      // Exponents around the float16 range, subnormals, halfway cases, infinities and NaN.
      std::uint32_t word =
          (engine() & 0x80000000u) | ((90 + engine() % 60) << 23) | (engine() & 0x7fffffu);
      if (engine() % 4 == 0) word &= 0xfffff000u;
      if (engine() % 64 == 0) word |= 0x7f800000u;
      if (engine() % 64 == 0) word &= 0x807fffffu;
      v = std::bit_cast<float>(word);
    }
    bfloat16 b[16];
    float16 h[16];
    simd::store_unit(b, simd::load_unit<P>(x));
    simd::store_unit(h, simd::load_unit<P>(x));
    for (int i = 0; i < 16; ++i) {
      REQUIRE(b[i].bits == bfloat16(x[i]).bits);
      REQUIRE(h[i].bits == float16(x[i]).bits);
    }
  }
  // Ties, and values around overflow and underflow.
  CHECK(float16(65519.0f).bits == 0x7bff);
  CHECK(float16(65520.0f).bits == 0x7c00);
  CHECK(float16(0x1p-25f).bits == 0);
  CHECK(float16(0x1.8p-25f).bits == 1);
  CHECK(float16(1 + 0x1p-11f).bits == 0x3c00);
  CHECK(float16(1 + 0x3p-11f).bits == 0x3c02);
  CHECK(bfloat16(1 + 0x1p-8f).bits == 0x3f80);
  CHECK(bfloat16(1 + 0x3p-8f).bits == 0x3f82);
}
