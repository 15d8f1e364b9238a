// SPDX-License-Identifier: BSD-3-Clause
// Compilation check of the kernels of selective scans with a CUDA compiler.
#include <complex>

#include <scanrec/cuda/selective_scan.cuh>

namespace {
using namespace scanrec;
}

template <class V>
void selective_kernels(cuda::stream_ref stream, const selective_arrays<V>& arrays,
                       const stored_sequence<detail::real_part_of<V>>& out,
                       const stored_sequence<const detail::real_part_of<V>>& out_grad,
                       const selective_gradients<V>& gradients) {
  const cuda::automatic on{.stream = stream};
  selective_scan(on, arrays, out);
  selective_scan_vjp(on, arrays, out_grad, gradients);
}
template void selective_kernels(cuda::stream_ref, const selective_arrays<float>&,
                                const stored_sequence<float>&, const stored_sequence<const float>&,
                                const selective_gradients<float>&);
#if !defined(SCANREC_FLOATS_ALONE)
template void selective_kernels(cuda::stream_ref, const selective_arrays<double>&,
                                const stored_sequence<double>&,
                                const stored_sequence<const double>&,
                                const selective_gradients<double>&);
template void selective_kernels(cuda::stream_ref, const selective_arrays<std::complex<float>>&,
                                const stored_sequence<float>&, const stored_sequence<const float>&,
                                const selective_gradients<std::complex<float>>&);
template void selective_kernels(cuda::stream_ref, const selective_arrays<std::complex<double>>&,
                                const stored_sequence<double>&,
                                const stored_sequence<const double>&,
                                const selective_gradients<std::complex<double>>&);
#endif
