// SPDX-License-Identifier: BSD-3-Clause
// The backend for few long sequences: splits time over blocks in a single pass.
#pragma once

#include <algorithm>
#include <cstddef>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_loop.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/run_tiles.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// Splits time into tiles of 128 threads with up to 32 steps each. Every array is read or written
/// once, except that adjoints that recompute states read the inputs of the forward scan again. For
/// each tile they begin at the checkpoint (or initial state) that precedes it in the forward scan.
/// So they read these inputs several times if tiles are shorter than the checkpoint interval.
///
/// The channels of a tile are a channel block. Tiles of one channel block pass states to each other
/// by messages, unless one thread block processes all of them in turn. It does so if there are at
/// least 512 channel blocks in all batch rows together, no resets, no user-defined operator, and no
/// array with a time axis is absent, recomputed, summed or added to. Such a thread block may load
/// the next tile while it computes.
///
/// Bits     the same in every run. They are also the same on any GPU, because tiles depend only on
///          shape, layout and types. The exceptions are gated scans of 16-bit elements with the
///          cells of cells/qrnn.hpp and cells/min_gru.hpp. Bits may differ from those of a serial
///          loop, within the bound of docs/numerics.md.
/// Memory   a header of 16 bytes. If states are real floating-point numbers, messages take 48 bytes
///          per tile and channel, and 48 per span (8 to 32 tiles) and channel. A sum over time, and
///          the gradient of a shared initial state, take an accumulator in the wide type (wide_t)
///          per tile and channel. Any other sum takes one per step and channel block, or one per
///          element of the gradient if tiles add to it in turn (tile_sums.cuh).
/// Stream   queues one kernel, and at most one for each gradient that is a sum. A memset precedes
///          them, unless tiles are processed in turn or the content of the workspace is `kept`.
///          Never waits.
/// Throws   cuda::error, before anything is queued, if there are 2^31 tiles or more, or if the
///          maps of steps need more shared memory than the GPU has. Maps of up to about 180 bytes
///          fit every GPU.
/// Needs    a GPU on which running blocks make progress while others wait.
/// Source   Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back (2016).
struct look_back {
  static constexpr bool recomputes_states = true;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
  int segment_steps = 0;        ///< maximum steps per thread; 0: chosen by type, at most 32
};

inline detail::look_back_plan plan_for(const look_back& on, const problem& p) {
  return {p, on.segment_steps};
}

template <class R>
void run_planned(const look_back& on, const detail::look_back_plan& plan, R r, const problem& p) {
  detail::check_blocks(plan.partition.tiles * plan.partition.groups);
  auto* const memory = static_cast<std::byte*>(on.workspace.data);
  plan.sums.bind(r, memory);
  auto* const turns =
      plan.sums_by_step ? reinterpret_cast<device::word*>(memory + plan.first_turn()) : nullptr;
  const auto queue = [&]<recurrence::assume Assume, detail::tile_order Order>() {
    using kernel = detail::run_tiles<R, Assume, Order>;
    constexpr bool by_ticket = Order == detail::tile_order::by_ticket;
    const std::int64_t states = kernel::states::bytes(plan.partition), terms = plan.terms_bytes();
    const detail::tile_stage<R, kernel::segment_steps> stage(
        r, detail::most_shared_bytes - kernel::staged - states - terms);
    // Whole rows (whole_rows.cuh) take more shared memory. They are used only if as many blocks fit
    // a multiprocessor as without them.
    detail::whole_rows<R, kernel::segment_steps> rows;
    if constexpr (!by_ticket && !scanrec::detail::recomputes<R>) {
      const auto blocks_of = [&](std::int64_t bytes) {
        constexpr std::int64_t reserved = 1024;  // bytes that CUDA reserves in every block
        return std::min<std::int64_t>(
            kernel::blocks_together,
            detail::shared_bytes_of_multiprocessor() / (kernel::staged + bytes + terms + reserved));
      };
      rows = {r, plan.partition, detail::most_shared_bytes - kernel::staged - terms};
      if (blocks_of(rows.bytes) < blocks_of(stage.which.bytes)) rows = {};
    }
    const std::int64_t staged = std::max(stage.which.bytes, rows.bytes);
    const kernel body{r,
                      detail::operator_copy<R>(r),
                      plan.partition,
                      reinterpret_cast<detail::workspace_header*>(memory),
                      reinterpret_cast<device::word*>(memory + plan.first_message),
                      {turns},
                      stage,
                      rows,
                      {plan.sums_by_column, kernel::staged + staged + states},
                      terms};
    detail::check_shared_bytes(body.shared_bytes());
    if (by_ticket && on.workspace.content == workspace_content::unknown)
      detail::clear(memory, plan.first_sum(), on.stream);
    detail::launch(body, (by_ticket ? plan.partition.tiles : 1) * plan.partition.groups, on.stream,
                   body.shared_bytes());
  };
  detail::with_assumption(r, [&]<recurrence::assume Assume>() {
    using detail::tile_order;
    if constexpr (Assume == recurrence::assume::plain)
      if (plan.in_turn) return queue.template operator()<Assume, tile_order::in_turn>();
    queue.template operator()<Assume, tile_order::by_ticket>();
  });
  if constexpr (scanrec::detail::may_sum<R>)
    if (plan.sums_by_step && plan.partition.groups == 0)
      scanrec::detail::for_writes(r, [&](const auto& out) {
        detail::queue_empty_sums(out, plan.partition.lanes, p.shape.time, on.stream);
      });
  detail::add_all_lanes(r, plan.sums, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
