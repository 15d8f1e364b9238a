// SPDX-License-Identifier: BSD-3-Clause
// Tests of problems: overlap of their arrays, and the plans that `tiled` makes for them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/problem.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

using namespace scanrec;

TEST_CASE("arrays overlap if and only if they share a byte", "[problem]") {
  // Compares with brute force on small arrays with all kinds of strides.
  std::vector<std::byte> memory(4096);
  int overlapping = 0, apart = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    unsigned r = trial * 2654435761u + 12345u;
    const auto next = [&](int k) {
      return static_cast<int>((r = r * 1664525u + 1013904223u) >> 16) % k;
    };
    const auto make = [&] {
      array_use x;
      x.data = memory.data() + 2048 + 4 * (next(40) - 20);
      x.element_bytes = next(2) ? 4 : 8;
      x.shape = {1 + next(3), 1 + next(4), 1 + next(4), 1};
      x.strides = {next(60) - 30, next(20) - 10, next(9) - 4, 0};
      return x;
    };
    const array_use x = make(), y = make();
    const auto touched = [&](const array_use& a) {
      std::vector<bool> bytes(4096);
      for (int b = 0; b < a.shape.batch; ++b)
        for (int t = 0; t < a.shape.time; ++t)
          for (int c = 0; c < a.shape.channel; ++c)
            for (int i = 0; i < a.element_bytes; ++i)
              bytes[a.data - memory.data() +
                    (b * a.strides.batch + t * a.strides.time + c * a.strides.channel) *
                        a.element_bytes +
                    i] = true;
      return bytes;
    };
    const auto bx = touched(x), by = touched(y);
    bool truth = false;
    for (int i = 0; i < 4096; ++i) truth = truth || (bx[i] && by[i]);
    REQUIRE(detail::overlap(x, y) == truth);
    ++(truth ? overlapping : apart);
  }
  CHECK(overlapping > 1000);
  CHECK(apart > 1000);
}

TEST_CASE("a plan of more than 2^31 steps does not wrap", "[problem]") {
  const extents shape{.batch = 3, .time = std::int64_t{1} << 31, .channel = 5};
  float one = 0.5f;
  const sequence_view<const float> everywhere(&one, shape, scanrec::strides{0, 0, 0});
  std::vector<float> last(15);
  const state_view<float> final_state(last.data(), shape);
  const auto plan = describe(
      tiled{}, linear_scan_problem(everywhere, everywhere, none, {.final_state = final_state}));
  CHECK(plan.tiles * plan.tile_steps >= shape.time);
  CHECK(!to_string(plan).empty());
}

TEST_CASE("a plan describes the lane axis, the split of time and the kind of stores", "[problem]") {
  const extents shape{8, 8192, 256};
  float* nowhere = reinterpret_cast<float*>(4096);
  const sequence_view<float> rows(nowhere, shape), far(nowhere + (1 << 25), shape),
      further(nowhere + (2 << 25), shape);
  const auto plan = describe(tiled{}, linear_scan_problem(rows, far, further));
  CHECK(plan.lanes.along == recurrence::lane_axis::channel);
  CHECK_FALSE(plan.time_split);
  CHECK(plan.streaming);
  const extents one{1, 1 << 24, 1};
  const sequence_view<float> a(nowhere, one), b(nowhere + (1 << 25), one),
      c(nowhere + (2 << 25), one);
  const auto split = describe(tiled{.threads = 2}, linear_scan_problem(a, b, c));
  CHECK(split.lanes.along == recurrence::lane_axis::time);
  CHECK(split.time_split);
  CHECK(split.threads == 2);
  CHECK(to_string(split).find("tiles") != std::string::npos);
}
