// SPDX-License-Identifier: BSD-3-Clause
// The kernels of everyday calls. resources.py checks how many registers they spill.
#include <complex>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cuda/scan.cuh>
#include <scanrec/gated_scan.hpp>

namespace {

using namespace scanrec;

template <class T>
void linear_scans(cuda::stream_ref stream, const sequence_view<T>& a, const sequence_view<T>& x) {
  const cuda::automatic on{.stream = stream};
  linear_scan(on, a, a, x);
  linear_scan_vjp(on, a, x, a, {.gate_grad = x, .input_grad = x});
}

template <class T, class Cell>
void gated_scans(cuda::stream_ref stream, const Cell& cell, const sequence_view<T>& packed,
                 const sequence_view<T>& x) {
  const cuda::lanes on{.stream = stream};
  const auto arrays = scanrec::packed<Cell>(packed);
  const gated_gradients<Cell, T> gradients{.arrays = arrays};
  gated_scan(on, cell, arrays, x, memory::store{x});
  gated_scan_vjp(on, cell, arrays, memory::store{x}, x, gradients);
}

}  // namespace

template <class T>
void default_kernels(cuda::stream_ref stream, const sequence_view<T>& a,
                     const sequence_view<T>& x) {
  linear_scans<T>(stream, a, x);
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    gated_scans(stream, fo_pooling<>{}, a, x);
  }
}
template void default_kernels(cuda::stream_ref, const sequence_view<float>&,
                              const sequence_view<float>&);
template void default_kernels(cuda::stream_ref, const sequence_view<bfloat16>&,
                              const sequence_view<bfloat16>&);
template void default_kernels(cuda::stream_ref, const sequence_view<std::complex<float>>&,
                              const sequence_view<std::complex<float>>&);
