// SPDX-License-Identifier: BSD-3-Clause
// Tests of the gradients of minGRU.
#include <scanrec/cells/min_gru.hpp>

#include "gated_loss.hpp"

using scanrec::min_gru;
using scanrec::activation::positive;

TEST_CASE("gradients of minGRU equal central differences", "[min_gru]") {
  tested::check_gradients("min_gru", min_gru<>{});
  tested::check_gradients("min_gru, positive", min_gru<positive>{});
}

TEST_CASE("gradients of minGRU have the golden bits", "[.golden]") {
  tested::check_golden("min_gru", min_gru<>{});
  tested::check_golden("min_gru, positive", min_gru<positive>{});
}
