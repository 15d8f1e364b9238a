// SPDX-License-Identifier: BSD-3-Clause
// Compilation check of the CUB backend, which the emulator cannot run. On a GPU, tests call it
// through device_calls.hpp.
#include <scanrec/cuda/cub.cuh>
#include <scanrec/cuda/scan.cuh>

void cub_kernels(scanrec::cuda::stream_ref stream, const scanrec::sequence_view<float>& x) {
  const scanrec::cuda::cub on{.stream = stream};
  linear_scan(on, x, x, x);
  inclusive_scan(on, scanrec::op::max{}, x, x);
}
