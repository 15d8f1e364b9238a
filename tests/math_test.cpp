// SPDX-License-Identifier: BSD-3-Clause
// Tests of exp, expm1, sigmoid, tanh, cos_sin and a refined reciprocal: errors over the whole
// range, and special values.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <scanrec/detail/simd/math.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/detail/simd/sin_cos.hpp>
#include <scanrec/detail/simd/special_functions.hpp>

#include "catch.hpp"
#include "reference.hpp"

namespace {

using namespace scanrec;

/// Returns the error of `got` in ULP of `want`. If |want| is below `least`, any result from 0 to
/// `least` counts as exact.
template <class R>
double ulps(R got, long double want, R least) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const long double size = std::abs(want);
  if (size < static_cast<long double>(least) && got >= 0 && got <= 1.001L * least) return 0;
  int exponent = 0;
  std::frexp(std::max<long double>(size, std::numeric_limits<R>::min()), &exponent);
  return static_cast<double>(std::abs(got - want) /
                             std::ldexp(1.0L, exponent - std::numeric_limits<R>::digits));
}

struct worst {
  double sigmoid = 0, complement = 0, sigmoid_slope = 0, tanh = 0, tanh_slope = 0, exp = 0,
         expm1 = 0;
  double near_exp = 0, near_sigmoid = 0;  // for |x| < 20
  double two_parts = 0, two_parts_value = 0;
  double any_exp = 0, near_any_exp = 0;  // exp_of_any
};
template <class R>
void take(worst& w, R x) {
  constexpr R least = std::numeric_limits<R>::min();
  const auto more = [](double& most, double now) { most = std::max(most, now); };
  const long double d = x, e = std::exp(-std::abs(d));
  const long double large = 1 / (1 + e), small = e / (1 + e);
  const auto s = simd::sigmoid(x);
  more(w.sigmoid, ulps(s.value, d < 0 ? small : large, least));
  more(w.complement, ulps(s.complement, d < 0 ? large : small, least));
  more(w.sigmoid_slope, ulps(s.slope, large * small, least));
  if (std::abs(d) < 20) {
    more(w.near_sigmoid, ulps(s.value, d < 0 ? small : large, least));
    more(w.near_sigmoid, ulps(s.complement, d < 0 ? large : small, least));
    more(w.near_exp, ulps(simd::exp_of_negative(-std::abs(x)), e, least));
  }
  const long double any = std::exp(d);
  const R got = simd::exp_of_any(x);
  if (any < std::numeric_limits<R>::max()) {
    more(w.any_exp, ulps(got, any, least));
    if (std::abs(d) < 20) more(w.near_any_exp, ulps(got, any, least));
  } else if (got < std::numeric_limits<R>::max()) {
    w.any_exp = 1e9;
  }
  if (x <= 0 && got != simd::exp_of_negative(x)) w.any_exp = 1e9;
  // exp_in_two_parts: how far log(value + rest) is from x, relative to x, in units of roundoff.
  // Values whose rest may be subnormal are left out.
  const auto parts = simd::exp_in_two_parts(x);
  if (any > static_cast<long double>(least) / std::numeric_limits<R>::epsilon() &&
      any < std::numeric_limits<R>::max()) {
    const bool near_one = std::abs(d) < 0.5L;
    const long double near = near_one ? 1 : any, more_than = near_one ? std::expm1(d) : 0;
    const long double off =
        std::log1p((static_cast<long double>(parts.value) - near + parts.rest - more_than) / any);
    if (std::abs(x) > 2 * least)
      more(w.two_parts,
           static_cast<double>(std::abs(off / d) * 2 / std::numeric_limits<R>::epsilon()));
    more(w.two_parts_value, ulps(parts.value, any, least));
  } else if (std::isinf(got) != std::isinf(parts.value) || !(std::abs(parts.rest) <= got)) {
    w.two_parts = 1e9;
  }
  const auto t = simd::tanh(x);
  const long double e2 = std::exp(-2 * std::abs(d));
  more(w.tanh, ulps(std::abs(t.value), std::abs(std::tanh(d)), R(0)));
  more(w.tanh_slope, ulps(t.slope, 4 * e2 / ((1 + e2) * (1 + e2)), 4 * least));
  if (std::signbit(t.value) != std::signbit(x)) w.tanh = 1e9;
  if (x > 0) return;
  more(w.exp, ulps(simd::exp_of_negative(x), std::exp(d), least));
  more(w.expm1, ulps(-simd::expm1_of_negative(x), -std::expm1(d), R(0)));
}
void check(const worst& w) {
  CHECK(w.exp <= 5);
  CHECK(w.near_exp <= 2);
  CHECK(w.any_exp <= 5);
  CHECK(w.near_any_exp <= 2);
  CHECK(w.near_sigmoid <= 3.5);
  CHECK(w.expm1 <= 1.5);
  CHECK(w.two_parts <= 3);
  CHECK(w.two_parts_value <= 5);
  CHECK(w.sigmoid <= 5);
  CHECK(w.complement <= 5);
  CHECK(w.sigmoid_slope <= 5.5);
  CHECK(w.tanh <= 3.5);
  CHECK(w.tanh_slope <= 6);
}

TEST_CASE("a refined reciprocal equals a division, bit for bit", "[math]") {
  // Checks all floats from 1 to 2 if a multiply-add is one instruction, otherwise some. The
  // estimates are up to 4 ULP off, worse than those of any GPU.
#if defined(__FMA__)
  constexpr std::uint32_t apart = 1;
#else
  constexpr std::uint32_t apart = 97;
#endif
  std::int64_t wrong = 0;
  const auto check = [&](std::uint32_t bits) {
    const float d = std::bit_cast<float>(bits), exact = 1 / d;
    for (int off = -4; off <= 4; off += 2) {
      const auto near = static_cast<std::uint32_t>(std::bit_cast<std::int32_t>(exact) + off);
      wrong += simd::refined_reciprocal(d, std::bit_cast<float>(near)) != exact;
    }
  };
  for (std::uint32_t bits = 0x3f800000u; bits <= 0x40000000u; bits += apart) check(bits);
  for (std::uint32_t bits = 0x3ffffff0u; bits <= 0x40000000u; ++bits) check(bits);
  CHECK(wrong == 0);
  CHECK(std::isnan(simd::refined_reciprocal(std::numeric_limits<float>::quiet_NaN(), 1)));
}

/// 2^x and 1 / x with an error of `Ulps` ULP. On GPUs the error is at most 2 ULP. Subnormal results
/// are flushed to 0.
template <int Ulps>
struct special_functions {
  static float off(double exact) {
    auto y = static_cast<float>(exact);
    if (std::abs(y) < std::numeric_limits<float>::min()) return 0;
    if (!std::isfinite(y)) return y;
    return std::bit_cast<float>(std::bit_cast<std::int32_t>(y) + Ulps);
  }
  static float power_of_two(float x) { return off(std::exp2(static_cast<double>(x))); }
  static float reciprocal(float x) { return off(1 / static_cast<double>(x)); }
};

TEST_CASE("GPU activations of 16-bit elements are within their error bounds", "[math]") {
  const auto check = []<class Unit>(Unit) {
    double value = 0, complement = 0, slope = 0, tanh_value = 0, tanh_slope = 0;
    const auto more = [](double& most, double got, double want, double least) {
      // If `want` is below `least`, any result from 0 to `least` is accepted.
      const double size = std::abs(want);
      if (size < least && got >= 0 && got <= 1.01 * least) return;
      most = std::max(most, size > 0 ? std::abs(got - want) / size : std::abs(got));
    };
    const auto take = [&](float x) {
      const double d = static_cast<double>(x), least = std::exp(-86.0);
      const double large = 1 / (1 + std::exp(-d)), small = 1 / (1 + std::exp(d));
      const auto s = simd::rough_sigmoid<Unit>(x);
      more(value, s.value, large, least);
      more(complement, s.complement, small, least);
      more(slope, s.slope, large * small, least);
      const auto t = simd::rough_tanh<Unit>(x);
      if (x != 0) more(tanh_value, t.value, std::tanh(d), 0);
      more(tanh_slope, t.slope, 1 / (std::cosh(d) * std::cosh(d)), std::exp(-85.0));
    };
    for (int i = -400000; i <= 400000; ++i) take(static_cast<float>(i) * 2.5e-4f);
    for (float x = 1; x > 1e-30f; x *= 0.999f) take(x), take(-x);
    CHECK(value <= 0x1p-17);
    CHECK(complement <= 0x1p-17);
    CHECK(slope <= 0x1p-16);
    CHECK(tanh_value <= 0x1p-16);
    CHECK(tanh_slope <= 0x1p-16);
    constexpr float infinity = std::numeric_limits<float>::infinity(),
                    nan = std::numeric_limits<float>::quiet_NaN();
    for (const float big : {200.0f, std::numeric_limits<float>::max(), infinity}) {
      const auto s = simd::rough_sigmoid<Unit>(big), minus = simd::rough_sigmoid<Unit>(-big);
      CHECK(s.value == Unit::reciprocal(1));
      CHECK(s.complement == 0);
      CHECK(s.slope == 0);
      CHECK(minus.value == 0);
      CHECK(minus.complement == 1);
      CHECK(minus.slope == 0);
      for (const float x : {big, -big}) {
        CHECK(std::abs(simd::rough_tanh<Unit>(x).value - std::copysign(1.0f, x)) <= 0x1p-21f);
        CHECK(simd::rough_tanh<Unit>(x).slope == 0);
      }
    }
    CHECK(std::signbit(simd::rough_tanh<Unit>(-0.0f).value));
    CHECK(std::isnan(simd::rough_sigmoid<Unit>(nan).value));
    CHECK(std::isnan(simd::rough_sigmoid<Unit>(nan).complement));
    CHECK(std::isnan(simd::rough_sigmoid<Unit>(nan).slope));
    CHECK(std::isnan(simd::rough_tanh<Unit>(nan).value));
    CHECK(std::isnan(simd::rough_tanh<Unit>(nan).slope));
  };
  check(special_functions<0>{});
  check(special_functions<2>{});
  check(special_functions<-2>{});
}

TEST_CASE("float functions are within their error bounds for all exponents", "[math]") {
  worst w;
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 9973) {
    take(w, std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    take(w, -std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  // A dense grid where the functions curve most.
  for (int i = -200000; i <= 200000; ++i) take(w, static_cast<float>(i) * 1e-4f);
  // A grid where exp leaves the range of the type.
  for (int i = 0; i <= 20000; ++i) {
    take(w, 87.5f + static_cast<float>(i) * 1e-4f), take(w, -87.5f - static_cast<float>(i) * 1e-4f);
  }
  check(w);
}
TEST_CASE("double functions are within their error bounds for all exponents", "[math]") {
  worst w;
  reference::generator bits{1};
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t any = (static_cast<std::uint64_t>(bits()) << 32) | bits();
    const auto x = std::bit_cast<double>(any);
    if (std::isfinite(x)) take(w, x);
    take(w, static_cast<double>(static_cast<std::int32_t>(bits())) * 0x1p-31 * 40);
  }
  check(w);
}

template <class R>
void check_special() {
  constexpr R infinity = std::numeric_limits<R>::infinity(),
              nan = std::numeric_limits<R>::quiet_NaN();
  for (const R big : {R(1000), std::numeric_limits<R>::max(), infinity}) {
    CHECK(simd::sigmoid(big).value == 1);
    CHECK(simd::sigmoid(big).complement == 0);
    CHECK(simd::sigmoid(big).slope == 0);
    CHECK(simd::sigmoid(-big).value == 0);
    CHECK(simd::sigmoid(-big).complement == 1);
    CHECK(simd::tanh(big).value == 1);
    CHECK(simd::tanh(-big).value == -1);
    CHECK(simd::tanh(big).slope == 0);
    CHECK(simd::exp_of_negative(-big) == 0);
    CHECK(simd::exp_of_any(-big) == 0);
    CHECK(simd::exp_of_any(big) == infinity);
    CHECK(simd::expm1_of_negative(-big) == -1);
  }
  for (const R zero : {R(0), R(-0.0)}) {
    CHECK(simd::sigmoid(zero).value == R(0.5));
    CHECK(simd::sigmoid(zero).slope == R(0.25));
    CHECK(simd::tanh(zero).value == 0);
    CHECK(std::signbit(simd::tanh(zero).value) == std::signbit(zero));
    CHECK(simd::tanh(zero).slope == 1);
    CHECK(simd::exp_of_negative(zero) == 1);
    CHECK(simd::exp_of_any(zero) == 1);
  }
  const R tiny = std::numeric_limits<R>::denorm_min();
  CHECK(simd::tanh(tiny).value == tiny);
  CHECK(simd::tanh(-tiny).value == -tiny);
  CHECK(std::isnan(simd::sigmoid(nan).value));
  CHECK(std::isnan(simd::sigmoid(nan).complement));
  CHECK(std::isnan(simd::sigmoid(nan).slope));
  CHECK(std::isnan(simd::tanh(nan).value));
  CHECK(std::isnan(simd::tanh(nan).slope));
  // If exp is just below the largest number, its factor 2^128 (or 2^1024) alone would be infinite.
  const R top = std::nextafter(std::log(std::numeric_limits<R>::max()), R(0));
  CHECK(simd::exp_of_any(top) > std::numeric_limits<R>::max() * R(0.999));
  CHECK(simd::exp_of_any(top) < infinity);
}
TEST_CASE("exp, sigmoid and tanh saturate, and are exact at 0 and -0", "[math]") {
  check_special<float>();
  check_special<double>();
}

/// Returns the error of cos_sin in units of 2 u + 2 u |x|, where u is the unit roundoff.
template <class R>
double circle_error(R x) {
  const auto p = simd::cos_sin(x);
  const long double d = x, u = std::numeric_limits<R>::epsilon() / 2;
  const long double off = std::max(std::abs(p.re - std::cos(d)), std::abs(p.im - std::sin(d)));
  return static_cast<double>(off / (2 * u + 2 * u * std::abs(d)));
}
template <class R>
void check_circle(R most) {
  constexpr int n = simd::lanes_v<R>;
  using lane = simd::lane_t<R, n>;
  double worst = 0;
  bool same = true;
  reference::generator bits{21};
  for (int i = 0; i < 20000; ++i) {
    alignas(64) R x[n], re[n], im[n];
    for (R& one : x) {
      const double size = std::exp2(40 * (bits() * 0x1p-32) - 20);
      one = static_cast<R>(size * (bits() % 2 == 0 ? 1 : -1));
      if (std::abs(one) < most) worst = std::max(worst, circle_error(one));
    }
    const auto p = simd::cos_sin(simd::load_unit<lane>(static_cast<const R*>(x)));
    simd::store_unit(static_cast<R*>(re), p.re), simd::store_unit(static_cast<R*>(im), p.im);
    for (int k = 0; k < n; ++k) {
      const auto alone = simd::cos_sin(x[k]);
      same = same && alone.re == re[k] && alone.im == im[k];
    }
  }
  CHECK(worst <= 1);
  CHECK(same);
  // At multiples of pi / 2, either cos or sin is nearly 0.
  for (int k = -1000; k <= 1000; ++k) CHECK(circle_error(static_cast<R>(k * std::acos(0.0L))) <= 1);
  constexpr R infinity = std::numeric_limits<R>::infinity();
  for (const R x :
       {most, std::numeric_limits<R>::max(), -std::numeric_limits<R>::max(), infinity}) {
    const auto p = simd::cos_sin(x);
    CHECK(std::abs(std::hypot(p.re, p.im) - 1) <= 4 * std::numeric_limits<R>::epsilon());
  }
  CHECK(std::isnan(simd::cos_sin(std::numeric_limits<R>::quiet_NaN()).re));
  CHECK(std::isnan(simd::cos_sin(std::numeric_limits<R>::quiet_NaN()).im));
  CHECK(simd::cos_sin(R(0)).re == 1);
  CHECK(simd::cos_sin(R(0)).im == 0);
}
TEST_CASE("cos_sin is within its error bound and has the same bits in every lane", "[math]") {
  check_circle<float>(0x1p22f);
  check_circle<double>(0x1p51);
}

}  // namespace
