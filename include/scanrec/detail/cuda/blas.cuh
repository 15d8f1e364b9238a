// SPDX-License-Identifier: BSD-3-Clause
// Matrix products by cuBLAS, for layers that contain scans. Programs that include this file link
// cuBLAS (CUDA::cublas). tests/cuda_on_host replaces cuBLAS by a version for CPUs.
#pragma once

#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>

#include <scanrec/cuda/error.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/matrix_ref.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// A cuBLAS handle, owned by the caller. A handle serves one call at a time. The call uses the
/// handle's math mode, and sets the handle's stream if it differs from the call's. When the stream
/// is set, cuBLAS drops a workspace that the caller has set for the handle. So set the stream
/// first.
using blas_handle = cublasHandle_t;

namespace detail {

inline void check_blas(cublasStatus_t status, const char* call,
                       std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw error(call, static_cast<int>(status), cublasGetStatusString(status), where.file_name(),
              where.line());
}

/// The matrix products of one call.
class products {
 public:
  products(blas_handle handle, stream_t stream) : handle_(handle) {
    check_blas(cublasGetPointerMode(handle, &mode_), "cublasGetPointerMode");
    cudaStream_t before = nullptr;
    check_blas(cublasGetStream(handle, &before), "cublasGetStream");
    if (before != stream) check_blas(cublasSetStream(handle, stream), "cublasSetStream");
    check_blas(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
  }
  products(const products&) = delete;
  products& operator=(const products&) = delete;
  ~products() { (void)cublasSetPointerMode(handle_, mode_); }

  /// Queues the product: `into = left * right`, or `into += left * right` if `adds`. The factors
  /// have shapes (rows, inner) and (inner, columns).
  template <class R>
  void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner,
                const matrix_ref<const std::type_identity_t<R>>& left,
                const matrix_ref<const std::type_identity_t<R>>& right, bool adds,
                const matrix_ref<R>& into) const {
    if (rows == 0 || columns == 0) return;
    // To cuBLAS, which expects contiguous columns, a matrix with contiguous rows is transposed.
    const auto turned = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const auto stride = [](const auto& m, std::int64_t of_rows, std::int64_t of_columns) {
      return std::max<std::int64_t>({m.stride, m.transposed ? of_rows : of_columns, 1});
    };
    const R one = 1, kept = adds ? 1 : 0;
    const auto gemm = [&](auto call) {
      return call(handle_, turned(right.transposed), turned(left.transposed), columns, rows, inner,
                  &one, right.data, stride(right, inner, columns), left.data,
                  stride(left, rows, inner), &kept, into.data, stride(into, rows, columns));
    };
    if constexpr (std::is_same_v<R, float>)
      check_blas(gemm(cublasSgemm_64), "cublasSgemm_64");
    else
      check_blas(gemm(cublasDgemm_64), "cublasDgemm_64");
  }

 private:
  blas_handle handle_;
  cublasPointerMode_t mode_ = CUBLAS_POINTER_MODE_HOST;
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
