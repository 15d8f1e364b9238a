// SPDX-License-Identifier: BSD-3-Clause
// Arrays shared by a test and its kernels, a stream, and a cuBLAS handle, for a GPU or the
// emulator.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include <scanrec/detail/cuda/blas.cuh>
#include <scanrec/detail/cuda/device.cuh>

#if !defined(__CUDACC__)
#include "emulator.hpp"
#endif

namespace tested {

#if defined(__CUDACC__)

template <class T>
struct managed_allocator {
  using value_type = T;
  managed_allocator() = default;
  template <class U>
  managed_allocator(const managed_allocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t n) {
    void* p = nullptr;
    if (cudaMallocManaged(&p, n * sizeof(T) + 1) != cudaSuccess) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) { cudaFree(p); }
  friend bool operator==(const managed_allocator&, const managed_allocator&) { return true; }
};
template <class T>
using shared_vector = std::vector<T, managed_allocator<T>>;

class device_stream {
 public:
  device_stream() {
    scanrec::cuda::detail::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags");
    scanrec::cuda::detail::check_blas(cublasCreate(&blas_), "cublasCreate");
  }
  device_stream(const device_stream&) = delete;
  device_stream& operator=(const device_stream&) = delete;
  ~device_stream() { cublasDestroy(blas_), cudaStreamDestroy(stream_); }
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  [[nodiscard]] scanrec::cuda::blas_handle blas() const { return blas_; }
  /// Waits for all queued work.
  void finish() const {
    scanrec::cuda::detail::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
};

#else

template <class T>
using shared_vector = std::vector<T>;

class device_stream {
 public:
  [[nodiscard]] cuda_on_host::stream* get() const { return &stream_; }
  [[nodiscard]] scanrec::cuda::blas_handle blas() const { return {}; }
  void finish() const {}

 private:
  mutable cuda_on_host::stream stream_;
};

#endif

}  // namespace tested
