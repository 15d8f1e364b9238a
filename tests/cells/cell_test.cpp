// SPDX-License-Identifier: BSD-3-Clause
// Tests of packed(), which splits one buffer into the pre-activations of a cell.
#include <vector>

#include <scanrec/cells/cell.hpp>
#include <scanrec/cells/qrnn.hpp>

#include "catch.hpp"
#include "refused.hpp"

using namespace scanrec;

TEST_CASE("packed splits channels equally and rejects a number that it cannot split", "[cell]") {
  std::vector<float> buffer(2 * 5 * 12);
  const auto arrays = packed<fo_pooling<>>(sequence_view(buffer.data(), {2, 5, 12}));
  const extents part{2, 5, 4};
  const strides rows{.batch = 60, .time = 12, .channel = 1};
  for (const auto& a : {arrays.candidate, arrays.forget_gate, arrays.output_gate}) {
    CHECK(a.shape == part);
    CHECK(a.strides.batch == rows.batch);
    CHECK(a.strides.time == rows.time);
  }
  CHECK(arrays.forget_gate.data == buffer.data() + 4);
  CHECK(arrays.output_gate.data == buffer.data() + 8);
  CHECK(tested::refused([&] { packed<fo_pooling<>>(sequence_view(buffer.data(), part)); }) ==
        "all");
}
