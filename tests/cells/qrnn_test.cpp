// SPDX-License-Identifier: BSD-3-Clause
// Tests of QRNN pooling: gradients of all its cells, and exponential smoothing as a special case.
#include <algorithm>
#include <cmath>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>

#include "gated_loss.hpp"

namespace {

using namespace scanrec;
using namespace scanrec::activation;

TEST_CASE("gradients of QRNN pooling equal central differences", "[qrnn]") {
  using tested::check_gradients;
  check_gradients("f_pooling", f_pooling<>{});
  check_gradients("fo_pooling", fo_pooling<>{.forget_bias = 0.5});
  check_gradients("ifo_pooling", ifo_pooling<>{});
  check_gradients("gated_accumulation", gated_accumulation<>{});
  check_gradients("fo_pooling, relu and hard_sigmoid", fo_pooling<relu, hard_sigmoid>{});
  check_gradients("ifo_pooling, identity", ifo_pooling<identity, identity>{});
}

TEST_CASE("gradients of QRNN pooling have the golden bits", "[.golden]") {
  using tested::check_golden;
  check_golden("f_pooling", f_pooling<>{.forget_bias = 0.25});
  check_golden("fo_pooling, gelu and hard_sigmoid", fo_pooling<gelu, hard_sigmoid>{});
  check_golden("ifo_pooling, relu and sigmoid", ifo_pooling<relu, sigmoid>{});
  check_golden("gated_accumulation", gated_accumulation<>{});
}

TEST_CASE("the gradient of a forget gate uses the state before the step", "[qrnn]") {
  // A common error uses the state after the step, which is close if gates are near 1. This test
  // distinguishes the two.
  const extents shape{.batch = 1, .time = 64, .channel = 1};
  std::vector<double> z = reference::random_numbers(64, 1), f = reference::random_numbers(64, 2, 2),
                      ones(64, 1), c(64), dz(64), df(64);
  using cell = gated_accumulation<>;
  const auto view = [&](std::vector<double>& v) { return sequence_view(v.data(), shape); };
  gated_scan(sequential{}, cell{}, cell::arrays<sequence_view<double>>{view(z), view(f)}, view(c));
  gated_scan_vjp(sequential{}, cell{}, cell::arrays<sequence_view<double>>{view(z), view(f)},
                 memory::store{view(c)}, view(ones), {.arrays = {view(dz), view(df)}});
  double off = 0, off_wrong = 0, size = 0;
  for (std::size_t t = 0; t < 64; ++t) {
    const auto loss = [&](double at) {
      double x = 0, sum = 0;
      for (std::size_t s = 0; s < 64; ++s) {
        const double gate = std::clamp((s == t ? at : f[s]) / 6 + 0.5, 0.0, 1.0);
        x = gate * x + z[s];
        sum += x;
      }
      return sum;
    };
    const double want = (loss(f[t] + 1e-4) - loss(f[t] - 1e-4)) / 2e-4;
    const double wrong = dz[t] * c[t] / 6;
    off = std::max(off, std::abs(df[t] - want)), size = std::max(size, std::abs(want));
    off_wrong = std::max(off_wrong, std::abs(wrong - want));
  }
  CHECK(off <= 1e-9 * size);
  CHECK(off_wrong >= 0.1 * size);
}

TEST_CASE("exponential smoothing is f-pooling with a constant gate", "[qrnn]") {
  const extents shape{.batch = 2, .time = 50, .channel = 19};
  const std::int64_t n = 2 * 50 * 19;
  std::vector<float> x(n), smooth(n), want(n), scaled(n);
  const std::vector<double> numbers = reference::random_numbers(n, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(numbers[i]);
  // The pre-activation of the gate is one zero for all elements. The bias sets the gate to 0.9.
  const f_pooling<activation::identity, activation::hard_sigmoid> ema{.forget_bias = 2.4};
  const float zero = 0;
  using arrays = decltype(ema)::arrays<sequence_view<const float>>;
  gated_scan(ema, arrays{{x.data(), shape}, {&zero, shape, strides{0, 0, 0, 0}}},
             sequence_view(smooth.data(), shape));
  const auto f = activation::hard_sigmoid::of(2.4f);
  CHECK(std::abs(f.value - 0.9f) <= 1e-7f);
  for (std::size_t i = 0; i < x.size(); ++i) scaled[i] = f.complement * x[i];
  linear_scan(sequence_view<const float>(&f.value, shape, strides{0, 0, 0, 0}),
              sequence_view<const float>(scaled.data(), shape), sequence_view(want.data(), shape));
  CHECK((reference::same_bits(smooth, want)));
}

}  // namespace
