// SPDX-License-Identifier: BSD-3-Clause
// Selective scans for GPUs on the emulator: within proven bounds of long doubles in every layout
// and with everything that a call may have or lack; the same bits whatever runs first, in pieces
// and at resets; what is refused; how calls are dealt to blocks.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/cuda/selective_scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"
#include "reference.hpp"
#include "selective_calls.hpp"
#include "selective_reference.hpp"

namespace {

using namespace scanrec;
using selective_calls::all_orders;
using selective_calls::call;
using selective_calls::order;
using selective_reference::problem;

/// A GPU with a stream, and a workspace exactly as large as a call says, of any content.
struct on_emulator {
  cuda_on_host::stream* stream;
};
struct lent {
  std::unique_ptr<std::byte[]> memory;
  cuda::automatic on;

  lent(const on_emulator& gpu, std::int64_t bytes)
      : memory(new std::byte[static_cast<std::size_t>(bytes) + 1]), on{.stream = gpu.stream} {
    std::memset(memory.get(), 0xff, static_cast<std::size_t>(bytes));
    on.workspace = {memory.get(), bytes};
  }
};
template <class V>
void selective_scan(const on_emulator& gpu, const selective_arrays<V>& arrays,
                    const std::type_identity_t<stored_sequence<V>>& out,
                    const std::type_identity_t<selective_options<V>>& options) {
  const cuda::automatic on{.stream = gpu.stream};
  CHECK(selective_scan_workspace_bytes(on, arrays, out, options) == 0);
  selective_scan(on, arrays, out, options);
}
template <class V>
void selective_scan_vjp(const on_emulator& gpu, const selective_arrays<V>& arrays,
                        const std::type_identity_t<stored_sequence<const V>>& out_grad,
                        const std::type_identity_t<selective_gradients<V>>& gradients,
                        const std::type_identity_t<selective_vjp_options<V>>& options) {
  const lent room(gpu, selective_scan_vjp_workspace_bytes(cuda::automatic{.stream = gpu.stream},
                                                          arrays, out_grad, gradients, options));
  selective_scan_vjp(room.on, arrays, out_grad, gradients, options);
}

template <class V, class S>
void check_random_problems(int count, std::uint64_t seed) {
  reference::generator bits{seed};
  cuda_on_host::stream stream;
  for (int i = 0; i < count; ++i) {
    problem p = selective_calls::random_problem(bits);
    p.shape.batch = 1 + p.shape.batch % 2;
    const order lies = all_orders[bits() % all_orders.size()];
    INFO("problem " << i << ": " << selective_calls::to_string(p) << ", order "
                    << static_cast<int>(lies));
    call<V, S> of(p, lies, bits());
    of.run(on_emulator{&stream}, i % 2 == 0);
    of.check();
  }
}

TEST_CASE("selective scans on GPUs within the bound, float", "[selective]") {
  check_random_problems<float, float>(24, 1);
}
TEST_CASE("selective scans on GPUs within the bound, double", "[selective]") {
  check_random_problems<double, double>(10, 2);
}
TEST_CASE("selective scans on GPUs within the bound, 16 bits", "[selective]") {
  check_random_problems<float, bfloat16>(10, 3);
  check_random_problems<float, float16>(6, 4);
}

}  // namespace
