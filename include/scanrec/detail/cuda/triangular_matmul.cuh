// SPDX-License-Identifier: BSD-3-Clause
// The backend of triangular matrix products. From state 0, the states of a chunk of 128 steps are L
// times its inputs, where L[i][j] is the product gate[j + 1] ... gate[i] for j <= i. The states
// between chunks follow from the maps of the chunks, which this backend scans, too.
//
// A column holds the inputs of one chunk of one sequence. The cost depends on how many columns use
// the same L. If gates are constant in time and there are no resets, all chunks of a sequence do.
// If gates and resets are shared along channels, all channels do. If neither holds, there is no
// matrix product, and chunks are processed in blocks of 16 steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/chunk_kernels.cuh>
#include <scanrec/detail/cuda/chunk_partition.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/precision.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/problem/linear_scan.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Scans chunks of 128 steps as products with triangular matrices, which are computed with
/// multiply-adds or on matrix units. Use it for shared gates and for comparison. Vector states and
/// user operators are not supported.
///
/// Precision  precision::full: the compute type, for every type. precision::tf32x3, tf32, bf16: for
///            floats, on matrix units. The error of a state grows by at most 2^-19, 2^-9 or 2^-7
///            times the sum of the magnitudes of its terms. Rounding does not accumulate, because
///            the states between chunks are computed with `full`.
/// Bits     the same in every run; with matrix units, the same only on GPUs of one generation.
/// Memory   if T > 128, two or three numbers in the wide type (wide_t) per chunk of a sequence. A
///          gradient that is summed over time, or a summed gradient that has no time axis (such as
///          that of a shared initial state), takes one number per sequence and 16 steps. If gates
///          are constant in time and there are no resets, T is first rounded up to a multiple of
///          4096 (complex<double>: 2048). Otherwise, it takes one number per sequence and step in
///          calls that also sum a gradient over sequences only. The gradient summed over sequences
///          takes one number per element.
/// Range    results are within the error bound (docs/numerics.md) unless a product of gates over-
///          or underflows. Values that are not finite never reach earlier steps of the scan, other
///          channels, or steps past a reset.
/// Stream   queues one kernel, two more for each power of 128 that T exceeds, and at most one for
///          each gradient that is a sum. A `kept` workspace adds a memset. Never waits.
/// Needs    a GPU of compute capability 8.0 or higher for the matrix units. Columns with inputs
///          above 3.37e38 in magnitude are computed step by step, without these units.
/// Source   Dao and Gu, Transformers are SSMs (2024), section 6, for the chunked form; Ootomo and
///          Yokota, Recovering single precision accuracy from Tensor Cores (2022), for tf32x3.
template <class Precision = precision::full>
struct triangular_matmul {
  static constexpr bool recomputes_states = false;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
};

namespace detail {

/// The layout of the workspace: accumulators of sums, maps of chunks, and memory for the scan over
/// chunks.
struct chunk_plan {
  chunk_partition partition;
  bool with_resets = false, sums_over_time = false;
  std::int64_t products = 0, offsets = 0, first_states = 0, chunk_resets = 0;  // byte offsets
  std::int64_t scan = 0, scan_bytes = 0;
  lane_plan sums;
  std::int64_t workspace_bytes = sums.bytes;

  explicit chunk_plan(const problem& p) : chunk_plan(p, lane_plan(p)) {}

 private:
  chunk_plan(const problem& p, const lane_plan& whole)
      : partition(p, whole),
        with_resets(has_resets(p)),
        sums_over_time(whole.per_lane),
        sums(p, tiles_of(partition, sums_over_time)) {
    if (partition.chunks == 1) return;
    const std::int64_t lanes = partition.lane_count(), maps = lanes * partition.chunks;
    products = sums.reserve(maps * p.carry_bytes);
    offsets = sums.reserve(maps * p.carry_bytes);
    first_states = sums.reserve(lanes * p.carry_bytes);
    if (with_resets) chunk_resets = sums.reserve(maps);
    scan_bytes = bytes_of_scan(partition.chunks, lanes, p.carry_bytes, with_resets);
    scan = sums.reserve(scan_bytes);
    workspace_bytes = sums.bytes;
  }

  // The workspace bytes of the scan over chunks, which is a call of this backend.
  static std::int64_t bytes_of_scan(std::int64_t steps, std::int64_t lanes,
                                    std::int64_t carry_bytes, bool with_resets) {
    const std::int64_t chunks = (steps + chunk_steps - 1) / chunk_steps;
    if (chunks == 1 || lanes == 0) return 0;
    const auto whole = [](std::int64_t bytes) { return (bytes + 15) / 16 * 16; };
    return header_bytes + 2 * whole(lanes * chunks * carry_bytes) + whole(lanes * carry_bytes) +
           (with_resets ? whole(lanes * chunks) : 0) +
           bytes_of_scan(chunks, lanes, carry_bytes, with_resets);
  }
  static std::int64_t tiles_of(const chunk_partition& c, bool sums_over_time) {
    if (!sums_over_time) return 1;
    if (c.in_time()) return c.panels() * c.columns * chunk_blocks;
    return c.chunks * (c.sums_by_step ? chunk_steps : chunk_blocks);
  }
};

}  // namespace detail

template <class Precision>
detail::chunk_plan plan_for(const triangular_matmul<Precision>&, const problem& p) {
  return detail::chunk_plan(p);
}

template <class Precision, class R>
void run_planned(const triangular_matmul<Precision>& on, const detail::chunk_plan& plan, R r,
                 const problem& p) {
  using value = typename R::value;
  static_assert(!R::any_operator && !scanrec::detail::is_vec<value>,
                "scanrec: triangular_matmul supports scalar states and affine maps, no vectors or "
                "other operators");
  static_assert(!scanrec::detail::recomputes<R>, "scanrec: this backend does not recompute states");
  static_assert(!Precision::on_matrix_units || device::has_matrix_units,
                "scanrec: matrix units multiply floats from compute capability 8.0 on; compile for "
                "such GPUs only, or use precision::full");
  auto* const memory = static_cast<std::byte*>(on.workspace.data);
  plan.sums.bind(r, memory);
  using wide = wide_t<value>;
  const auto at = [&](std::int64_t byte) { return reinterpret_cast<wide*>(memory + byte); };
  const auto& partition = plan.partition;
  detail::chunk_maps<wide> chunks;
  const std::int64_t blocks = partition.lanes.threads * partition.panels();
  if (partition.chunks > 1) {
    chunks = {at(plan.products), at(plan.offsets),
              plan.with_resets ? reinterpret_cast<bool*>(memory + plan.chunk_resets) : nullptr,
              at(plan.first_states)};
    using reduce = detail::reduce_chunks<R>;
    detail::launch(reduce{{partition, chunks}, r}, blocks, on.stream, reduce::shared_bytes);
    // The states after the chunks follow a recurrence over the chunks. They replace the offsets of
    // the chunks.
    const extents shape{.batch = 1, .time = partition.chunks, .channel = partition.lane_count()};
    const sequence_view<wide> offsets(chunks.offsets, shape);
    const triangular_matmul<> scan{.stream = on.stream,
                                   .workspace = {memory + plan.scan, plan.scan_bytes}};
    scan_options<wide> options{.initial_state = state_view<const wide>(chunks.first_states, shape)};
    if (chunks.resets) options.resets = sequence_view<const bool>(chunks.resets, shape);
    scanrec::detail::make_linear_scan(
        p.call, sequence_view<const wide>(chunks.products, shape), offsets, offsets, options,
        [&](const auto& of_chunks, const problem& few) { run_recurrence(scan, of_chunks, few); });
  }
  using apply = detail::apply_chunks<R, Precision>;
  detail::launch(apply{{partition, chunks}, r, plan.sums_over_time}, blocks, on.stream,
                 apply::shared_bytes);
  detail::add_all_lanes(r, plan.sums, on.stream);
  detail::zero_used(on.workspace, 0, plan.workspace_bytes, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
