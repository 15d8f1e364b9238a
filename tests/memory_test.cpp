// SPDX-License-Identifier: BSD-3-Clause
// Tests of the memory that recomputation of states needs: checkpoints and workspace.
#include <cstdint>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

template <class T>
void check_memory() {
  const extents shape{.batch = 2, .time = 4096, .channel = 96}, wide{2, 4096, 3 * 96};
  const std::int64_t n = 2 * 4096 * 96;
  std::vector<T> pre(3 * n), grad(3 * n), dh(n);
  const extents few = memory::checkpoint_extents(shape);
  std::vector<compute_t<T>> checkpoints(
      static_cast<std::size_t>(few.batch * few.time * few.channel));
  CHECK(checkpoints.size() * sizeof(compute_t<T>) * 64 <= n * sizeof(T));
  const int threads = 3;
  const problem p = gated_scan_vjp_problem(
      fo_pooling<>{}, packed<fo_pooling<>>(sequence_view(pre.data(), wide)),
      memory::recompute{sequence_view(checkpoints.data(), few)}, sequence_view(dh.data(), shape),
      {.arrays = packed<fo_pooling<>>(sequence_view(grad.data(), wide))});
  // Per thread: the 128 steps of a checkpoint interval and the step on either side, 8192 bytes for
  // carries, and padding to a page.
  const std::int64_t tile = 130 * 96 * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t page = tile_policy::page_bytes;
  CHECK(workspace_bytes(tiled{.threads = threads}, p) <= threads * (tile + 8192 + page));
}
TEST_CASE("checkpoints take at most 1/64 of the states' bytes, and the workspace a tile per thread",
          "[memory]") {
  check_memory<float>();
  check_memory<bfloat16>();
}

}  // namespace
