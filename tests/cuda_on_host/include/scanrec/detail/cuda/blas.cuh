// SPDX-License-Identifier: BSD-3-Clause
// The emulator's version of include/scanrec/detail/cuda/blas.cuh: matrix products by loops.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/matrix_ref.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

struct blas_handle {};

namespace detail {

class products {
 public:
  products(blas_handle, stream_t) {}

  template <class R>
  void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner,
                const matrix_ref<const std::type_identity_t<R>>& left,
                const matrix_ref<const std::type_identity_t<R>>& right, bool adds,
                const matrix_ref<R>& into) const {
    // Throws for strides that cuBLAS rejects or misinterprets.
    const auto check = [](const auto& m, std::int64_t of_rows, std::int64_t of_columns) {
      if (m.transposed) std::swap(of_rows, of_columns);
      if (of_rows > 1 && m.stride < of_columns)
        throw std::invalid_argument("rows of a matrix overlap");
    };
    check(left, rows, inner), check(right, inner, columns), check(into, rows, columns);
    const auto at = [](const auto& m, std::int64_t i, std::int64_t k) {
      return m.data[m.transposed ? k * m.stride + i : i * m.stride + k];
    };
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        R sum = adds ? into.data[i * into.stride + j] : R(0);
        for (std::int64_t k = 0; k < inner; ++k) sum += at(left, i, k) * at(right, k, j);
        into.data[i * into.stride + j] = sum;
      }
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
