// SPDX-License-Identifier: BSD-3-Clause
// A reference to a matrix, for matrix products.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A reference to a stored matrix or, if `transposed`, to its transpose. Each row of the stored
/// matrix is contiguous, and the first numbers of consecutive rows are `stride` apart.
template <class R>
struct matrix_ref {
  R* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
