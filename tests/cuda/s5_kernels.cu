// SPDX-License-Identifier: BSD-3-Clause
// Compilation check of state spaces with a CUDA compiler and the real cuBLAS.
#if __has_include(<cublas_v2.h>)
#include <scanrec/cuda/s5.cuh>
#include <scanrec/cuda/scan.cuh>

template <class R>
void s5_kernels(scanrec::cuda::stream_ref stream, scanrec::cuda::blas_handle blas,
                const scanrec::cuda::s5_system<R>& system, const scanrec::sequence_view<R>& u,
                const scanrec::sequence_view<std::complex<R>>& states) {
  const scanrec::cuda::automatic on{.stream = stream};
  s5(on, blas, system, u, states, u);
  s5_vjp(on, blas, system, u, states, u, states, system, u);
}
template void s5_kernels(scanrec::cuda::stream_ref, scanrec::cuda::blas_handle,
                         const scanrec::cuda::s5_system<float>&,
                         const scanrec::sequence_view<float>&,
                         const scanrec::sequence_view<std::complex<float>>&);
#endif
