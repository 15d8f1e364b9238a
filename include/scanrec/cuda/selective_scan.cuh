// SPDX-License-Identifier: BSD-3-Clause
// Selective scans on GPUs: the calls of selective_scan.hpp with device pointers in their views. For
// .cu files.
//
//     const cuda::automatic on{.stream = stream, .workspace = memory};
//     selective_scan(on, {.u = u, .delta = delta, .a = a, .b = b, .c = c}, out);
//
// A call checks its arguments on the host, throws argument_error or cuda::error, and queues its
// kernels in the stream. It allocates nothing and waits for nothing, and can be captured in a
// graph.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/automatic.cuh>
#include <scanrec/detail/cuda/selective_calls.cuh>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// selective_scan() on a GPU; V, of states, is float, double or std::complex of one of them.
///
/// Shapes, aliasing  those of selective_scan() on CPUs, but up to 256 states of a channel (double:
///          128; half as many complex ones).
/// Bits     the same in every run, on any GPU of a kind; they depend on the numbers of sequences,
///          channels and states, not on the time.
/// Memory   selective_scan_workspace_bytes(): none.
/// Stream   queues one kernel; waits for nothing.
/// Throws   argument_error before anything is queued; cuda::error where the runtime refuses.
/// Error    docs/cuda.md, "Selective scans".
/// Cost     u, delta and z read, out written once; b and c once per block of 4 to 32 channels,
///          mostly from L2.
template <class V>
void selective_scan(
    const automatic& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<scanrec::detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  detail::run_selective_forward(detail::selective_forward_of(arrays, out, options), on.stream);
}

/// selective_scan_vjp() on a GPU.
///
/// Shapes, aliasing  those of selective_scan_vjp() on CPUs. States as above.
/// Bits     as above; with checkpoints that were kept or are made again. Sums over channels, time
///          and sequences are taken in a fixed order, the longest in the wide type.
/// Memory   selective_scan_vjp_workspace_bytes(): sums of gradients on their way, states between
///          two checkpoints, and checkpoints where the call brings none (docs/cuda_kernels.md).
/// Stream   queues up to eight kernels; waits for nothing.
/// Throws   argument_error before anything is queued; cuda::error where the runtime refuses.
template <class V>
void selective_scan_vjp(
    const automatic& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const scanrec::detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  detail::run_selective_vjp(detail::selective_vjp_of(arrays, out_grad, gradients, options),
                            on.stream, on.workspace);
}

/// Bytes of device memory that the same call of selective_scan works in.
template <class V>
[[nodiscard]] std::int64_t selective_scan_workspace_bytes(
    const automatic&, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<scanrec::detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  detail::selective_forward_of(arrays, out, options);
  return 0;
}
/// Bytes of device memory that the same call of selective_scan_vjp works in.
template <class V>
[[nodiscard]] std::int64_t selective_scan_vjp_workspace_bytes(
    const automatic&, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const scanrec::detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  const auto p = detail::selective_vjp_of(arrays, out_grad, gradients, options);
  return detail::selective_vjp_layout<V>(p, nullptr).bytes;
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
