// SPDX-License-Identifier: BSD-3-Clause
// A kernel, and a function named by UNIT that launches it. launch_test.cpp calls two such
// functions, first and second.
#include <scanrec/detail/cuda/device.cuh>

namespace items {

struct body {
  static constexpr int threads = 32, blocks_together = 1;
  static constexpr bool synchronises = false;
  int* to;
  SCANREC_DEVICE void operator()() const { *to = 1; }
};

}  // namespace items

void UNIT(std::int64_t shared_bytes) {
  scanrec::cuda::detail::launch(items::body{nullptr}, 1, nullptr, shared_bytes);
}
