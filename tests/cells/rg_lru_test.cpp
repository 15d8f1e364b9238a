// SPDX-License-Identifier: BSD-3-Clause
// Tests of RG-LRU: gradients, and slow decays over many steps, forward and adjoint.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>

#include "gated_loss.hpp"

namespace {

using namespace scanrec;
using floats = std::vector<float>;

// The last array of rg_lru must be at most 0. Here all arrays are negative.
TEST_CASE("gradients of RG-LRU equal central differences", "[rg_lru]") {
  tested::check_gradients("rg_lru", rg_lru{}, [](double& x) { x = -0.2 - std::abs(x); });
}

TEST_CASE("gradients of RG-LRU have the golden bits", "[.golden]") {
  tested::check_golden("rg_lru", rg_lru{}, [](double& x) { x = -0.25 - std::abs(x); });
}

// Inputs are random, so rounding errors of states have both signs. The error of a rounded decay
// always has the same sign, and would change states by 2e-4 of the largest.
TEST_CASE("slow decays keep the precision of their logarithms", "[rg_lru][sequential][tiled]") {
  constexpr std::int64_t T = 100000;
  // The sigmoid of 0 is exactly 1/2, so decays are exp(log_decay / 2).
  const float zero = 0, log_decay = -2e-4f;
  const long double a = std::exp(0.5L * log_decay),
                    scale = std::sqrt(-std::expm1(1.0L * log_decay));
  for (const std::int64_t channels : {1, 19}) {
    const extents shape{.batch = 1, .time = T, .channel = channels};
    const auto n = static_cast<std::size_t>(T * channels);
    floats x(n), h(n), dh(n), dx(n), unused(3 * n);
    reference::generator bits{1};
    for (float& v : x) v = static_cast<float>(bits() >> 8) * 0x1p-24f;
    for (float& v : dh) v = static_cast<float>(bits() >> 8) * 0x1p-24f;
    const auto view = [&](floats& v, std::size_t at = 0) {
      return sequence_view<float>(v.data() + at, shape);
    };
    const auto all = [&](const float& v) {
      return sequence_view<float>(const_cast<float*>(&v), shape, strides{});
    };
    const rg_lru::arrays<sequence_view<float>> pre{view(x), all(zero), all(zero), all(log_decay)};
    const auto check = [&](const auto& backend) {
      gated_scan(backend, rg_lru{}, pre, view(h));
      gated_scan_vjp(backend, rg_lru{}, pre, memory::store{view(h)}, view(dh),
                     {.arrays = {view(dx), view(unused), view(unused, n), view(unused, 2 * n)}});
      // Computes states with exact decays, both exactly and rounded to float at every step.
      const auto run = [&](floats& got, floats& from, long double of_input, long double of_state,
                           bool backwards) {
        for (std::int64_t c = 0; c < channels; ++c) {
          long double exact = 0, rounded = 0, loop = 0, off = 0, largest = 0;
          for (std::int64_t i = 0; i < T; ++i) {
            const std::int64_t t = backwards ? T - 1 - i : i;
            const auto at = static_cast<std::size_t>(t * channels + c);
            const long double u = of_input * from[at];
            exact = a * exact + u;
            rounded = static_cast<float>(static_cast<float>(a * rounded + 0.0L) + u);
            loop = std::max(loop, std::abs(rounded - exact));
            largest = std::max(largest, std::abs(exact));
            off = std::max(off, std::abs(got[at] - of_state * exact));
          }
          // 140 roundings within packs along time, and 20 in the input of a step.
          CHECK(off <= of_state * (2 * loop + 160 * 0x1p-24L * largest));
        }
      };
      run(h, x, 0.5L * scale, 1, false);
      run(dx, dh, 1, 0.5L * scale, true);
    };
    check(sequential{}), check(tiled{}), check(tiled{.threads = 2, .tile_steps = 128});
  }
}

}  // namespace
