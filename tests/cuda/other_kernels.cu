// SPDX-License-Identifier: BSD-3-Clause
// Compilation check of the kinds of GPU calls that default_kernels.cu lacks: vectors, operators,
// other cells, memory policies and precisions.
#include <complex>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/cells/rg_lru.hpp>
#include <scanrec/cuda/scan.cuh>
#include <scanrec/gated_scan.hpp>
#include <scanrec/sensitivity.hpp>

namespace {

using namespace scanrec;

/// Large matrices compile slowly. For them All is false, and only the adjoint is compiled, which
/// contains all their code.
template <class V, bool All = true>
void matrix_scans(const cuda::automatic& on, const sequence_view<V>& x) {
  using M = factor_t<V>;
  const sequence_view<M> a(static_cast<M*>(nullptr), x.shape);
  linear_scan_vjp(on, a, x, x, {.gate_grad = a, .input_grad = x});
  if constexpr (All) {
    linear_scan(on, a, x, x);
    linear_scan_jvp(on, a, x, a, x, x);
  }
}

/// A scan that stores states, an adjoint with checkpoints and, if All, a scan that writes
/// checkpoints.
template <bool All, class T, class Cell>
void gated_scans(const cuda::automatic& on, const Cell& cell, const sequence_view<T>& buffer) {
  const auto arrays = packed<Cell>(buffer);
  gated_scan(on, cell, arrays, buffer, memory::store{buffer});
  const sequence_view<compute_t<T>> checkpoints(static_cast<compute_t<T>*>(nullptr),
                                                memory::checkpoint_extents(buffer.shape));
  if constexpr (All) gated_scan(on, cell, arrays, buffer, memory::recompute{checkpoints});
  gated_scan_vjp(on, cell, arrays, memory::recompute{checkpoints}, buffer,
                 gated_gradients<Cell, T>{.arrays = arrays});
}

/// The elements of a user-defined operator, which returns the pair with the larger key.
struct keyed {
  float key;
  int value;
};
struct later_of_equals {
  SCANREC_HD keyed operator()(const keyed& earlier, const keyed& later) const {
    return later.key >= earlier.key ? later : earlier;
  }
};

}  // namespace

void other_kernels(cuda::stream_ref stream, const extents& shape, float* memory) {
  const cuda::automatic on{.stream = stream};
  matrix_scans(on, sequence_view(reinterpret_cast<vec<float, 2>*>(memory), shape));
  matrix_scans<vec<double, 4>, false>(
      on, sequence_view(reinterpret_cast<vec<double, 4>*>(memory), shape));

  const sequence_view<float> floats(memory, shape);
  linear_scan(cuda::triangular_matmul<cuda::precision::tf32x3>{.stream = stream}, floats, floats,
              floats);
  linear_scan(cuda::triangular_matmul<cuda::precision::tf32>{.stream = stream}, floats, floats,
              floats);
  linear_scan(cuda::triangular_matmul<cuda::precision::bf16>{.stream = stream}, floats, floats,
              floats);
  inclusive_scan(on, op::sum{}, floats, floats);
  exclusive_scan(on, op::max{}, floats, floats);
  const sequence_view<keyed> pairs(reinterpret_cast<keyed*>(memory), shape);
  inclusive_scan(on, later_of_equals{}, pairs, pairs);

  gated_scans<true>(on, fo_pooling<>{}, floats);
  gated_scans<false>(on, min_gru{}, sequence_view(reinterpret_cast<bfloat16*>(memory), shape));
  gated_scans<false>(on, rg_lru{}, sequence_view(reinterpret_cast<double*>(memory), shape));
}
