// SPDX-License-Identifier: BSD-3-Clause
// Matrices as products take them.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A matrix whose rows are contiguous and `stride` numbers apart, or its transpose.
template <class R>
struct matrix_ref {
  R* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
