// SPDX-License-Identifier: BSD-3-Clause
// Selective scans on GPUs: the calls of selective_scan.hpp with device pointers in their views. For
// .cu files.
//
//     const cuda::automatic on{.stream = stream, .workspace = memory};
//     selective_scan(on, {.u = u, .delta = delta, .a = a, .b = b, .c = c}, out);
//
// A call checks its arguments on the host and queues its kernels in the stream. It throws
// argument_error if an argument is invalid, and cuda::error if the runtime reports an error. It
// allocates nothing, does not synchronise, and can be captured in a CUDA graph.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/automatic.cuh>
#include <scanrec/detail/cuda/selective_calls.cuh>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// selective_scan() on a GPU; V, the type of the states, is float, double or std::complex of
/// either.
///
/// Shapes, aliasing  those of selective_scan() on CPUs, with at most 256 states per channel
///          (double: 128; complex: half as many).
/// Bits     Runs on GPUs of one generation give the same bits. The bits of a step depend on the
///          numbers of sequences, channels, groups and states, but not on the number of steps.
/// Memory   selective_scan_workspace_bytes(), which is 0.
/// Stream   queues one kernel. Does not synchronise.
/// Throws   argument_error, before anything is queued; cuda::error for errors of the runtime.
/// Error    docs/cuda.md, "Selective scans".
/// Cost     u, delta and z are read once and out is written once; b and c are read once per block
///          of 4 to 32 channels, mostly from L2.
template <class V>
void selective_scan(
    const automatic& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<scanrec::detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  detail::run_selective_forward(detail::selective_forward_of(arrays, out, options), on.stream);
}

/// selective_scan_vjp() on a GPU.
///
/// Shapes, aliasing  those of selective_scan_vjp() on CPUs, with the limits on states of
///          selective_scan() above.
/// Bits     the same in runs on GPUs of one generation, with and without checkpoints from the
///          caller. Sums over channels, time and sequences are added in a fixed order. Partial sums
///          over a block of channels or a checkpoint interval have the compute type, and are
///          added in double.
/// Memory   selective_scan_vjp_workspace_bytes(): partial sums of gradients; for each block, the
///          states at a few steps of one checkpoint interval; and checkpoints if the caller passes
///          none (docs/cuda_kernels.md).
/// Stream   queues up to eight kernels. Does not synchronise.
/// Throws   argument_error, before anything is queued; cuda::error for errors of the runtime.
template <class V>
void selective_scan_vjp(
    const automatic& on, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<const scanrec::detail::real_part_of<V>>>& out_grad,
    const std::type_identity_t<selective_gradients<V>>& gradients,
    const std::type_identity_t<selective_vjp_options<V>>& options = {}) {
  detail::run_selective_vjp(detail::selective_vjp_of(arrays, out_grad, gradients, options),
                            on.stream, on.workspace);
}

/// Bytes of device memory that a selective_scan call with these arguments needs.
template <class V>
[[nodiscard]] std::int64_t selective_scan_workspace_bytes(
    const automatic&, const selective_arrays<V>& arrays,
    const std::type_identity_t<stored_sequence<scanrec::detail::real_part_of<V>>>& out,
    const std::type_identity_t<selective_options<V>>& options = {}) {
  detail::selective_forward_of(arrays, out, options);
  return 0;
}
/// Bytes of device memory that a selective_scan_vjp call with these arguments needs.
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
