// SPDX-License-Identifier: BSD-3-Clause
// Tests of the option structs: assignment field by field, with const and mutable views.
#include <vector>

#include <scanrec/options.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("options can be assigned field by field and accept const and mutable views",
          "[options]") {
  const extents shape{.batch = 2, .time = 8, .channel = 4};
  const std::vector<float> a(64, 0.5f), u(64, 1.0f);
  std::vector<float> x(64), first(8, 7.0f), last(8), grad(64);
  scan_options<float> options;
  options.initial_state = state_view(first.data(), shape);
  options.final_state = state_view(last.data(), shape);
  linear_scan(sequential{}, sequence_view(a.data(), shape), sequence_view(u.data(), shape),
              sequence_view(x.data(), shape), options);
  scan_gradients<float> gradients;
  gradients.gate_grad = sequence_view(grad.data(), shape);
  linear_scan_vjp(sequential{}, sequence_view(a.data(), shape), sequence_view(x.data(), shape),
                  sequence_view(a.data(), shape), gradients);
  CHECK(last[3] == x[7 * 4 + 3]);
}
