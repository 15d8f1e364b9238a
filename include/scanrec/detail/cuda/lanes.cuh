// SPDX-License-Identifier: BSD-3-Clause
// The backend for many sequences: a thread processes the steps of a sequence in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_loop.cuh>
#include <scanrec/detail/cuda/lane_pairs.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/lane_ring.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// One thread processes the steps of a sequence in order. Threads of a warp have neighbouring
/// channels. Every array is read or written once, but adjoints with memory::recompute read some
/// inputs twice. From 32,768 sequences of 16-bit elements on, a thread may process two neighbouring
/// sequences (takes_pairs in lane_pairs.cuh has the conditions). For about 12,000 to 20,000
/// sequences of 4-byte elements, without gradients that are sums, later steps may be loaded to
/// shared memory instead of registers (lane_ring.cuh). If gradients are sums over sequences, a
/// thread may process several sequences one after the other (lane_plan.cuh).
///
/// Bits     those of `sequential` on a CPU with fused multiply-adds, on any GPU. There are two
///          exceptions. In gated scans of 16-bit elements, the cells of qrnn.hpp and min_gru.hpp
///          use the special-function unit of the GPU. Sums over sequences are added in another
///          order, which depends only on the problem and the options.
/// Memory   none, except for sums and recomputed states. A sum over time, and the gradient of a
///          shared initial state, need an accumulator in the wide type (wide_t) per sequence. Any
///          other sum needs one per step and warp if warps add up their channels, else one per
///          element of the gradient. With memory::recompute, each thread needs memory for up to 130
///          states.
/// Stream   queues one kernel, and at most one for each gradient that is a sum. A memset follows if
///          states are recomputed and the content of the workspace is `kept`. Never waits.
struct lanes {
  static constexpr bool recomputes_states = true;  ///< whether memory::recompute is supported

  stream_ref stream;            ///< the stream of the call
  cuda::workspace workspace{};  ///< workspace_bytes(backend, problem) bytes of device memory
  int steps_ahead = 0;          ///< steps to load to shared memory; 0: chosen; negative: none
};

namespace detail {

/// The kernel for many lanes: each thread loads later steps to registers.
template <class R, recurrence::assume Assume>
struct run_lanes {
  static constexpr int threads = lane_threads;
  // Adjoints of gated cells need registers for many addresses, and large elements for their values.
  // So only two blocks of such kernels fit a multiprocessor.
  static constexpr int blocks_together =
      sizeof(typename R::value) * scanrec::detail::sequences_of<R> < 40 ? 3 : 2;
  static constexpr bool synchronises = false;
  // Accesses compiled for global memory take more registers. Cells with much arithmetic have none
  // to spare. Scans with more than 32 steps loaded ahead, such as those of bfloat16, would spill
  // registers.
  static constexpr memory_space space = R::computes_much || steps_on_their_way<R, Assume>() > 32
                                            ? memory_space::any
                                            : memory_space::global;
  using loop = lane_loop<R, Assume, space>;

  R recurrence;
  operator_copy<R> copied_operator;
  lane_dealing lanes;
  std::int64_t steps = 0;
  std::byte* recomputed = nullptr;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t thread = device::block_index() * threads + device::thread_index();
    if (thread >= lanes.threads) return;
    region own = lanes.of(thread);
    own.end.time = steps;
    const R r = copied_operator.in(recurrence);
    clear_step_sums(r, own);
    for (std::int64_t g = own.begin.group; g < own.end.group; ++g)
      for (std::int64_t b = own.begin.batch; b < own.end.batch; ++b) {
        const R row = scanrec::detail::bound(r, g, b);
        for (std::int64_t c = own.begin.channel; c < own.end.channel; ++c)
          take_lane(row, c, thread);
      }
    write_step_sums(r, own);
  }

 private:
  SCANREC_DEVICE void take_lane(const R& row, std::int64_t c, std::int64_t thread) const {
    const loop own{steps, c};
    typename loop::lane x = own.begin(row);
    typename loop::running_sums running{};
    scanrec::detail::recompute_scratch room;
    room.row = lanes.threads;
    scanrec::detail::with_states(
        row, {0, steps, c, 1}, room,
        recomputed + thread * scanrec::detail::recomputed_bytes_of<R>(),
        [&](const auto& forward, const scanrec::detail::block& part, std::byte*) {
          own.recompute(forward, part);
        },
        [&](const auto& here, const scanrec::detail::block& part) {
          x = own.take(here, part.begin, part.end, x, running);
        });
    own.end(row, x, running);
  }
};

/// The kernel for fewer lanes, and for sums over the lanes of a warp: a warp loads later steps to a
/// ring in shared memory.
template <class R, recurrence::assume Assume>
struct run_ring {
  static constexpr int threads = device::warp_size;
  static constexpr int blocks_together = 8;
  static constexpr bool synchronises = true;
  using loop = lane_loop<R, Assume>;

  R recurrence;
  operator_copy<R> copied_operator;
  extents lanes;
  std::int64_t steps = 0;
  lane_ring<R> ring;

  SCANREC_DEVICE void operator()() const {
    const lane_strip strip(device::block_index(), lanes);
    const auto row = [&]() SCANREC_LAMBDA {
      std::int64_t g = strip.g, b = strip.b;
      device::pin(g), device::pin(b);
      return scanrec::detail::bound(copied_operator.in(recurrence), g, b);
    };
    const int lane = device::thread_index();
    const bool there = lane < strip.lanes;
    const loop own{steps, strip.first_lane + lane};
    typename loop::lane x{};
    typename loop::running_sums running{};
    if (there) x = own.begin(row());
    constexpr bool sums = scanrec::detail::may_sum<R> && Assume != recurrence::assume::plain;
    // Shared memory has a short latency, so only 4 steps are loaded together.
    ring.template for_stages<sums>(row, strip,
                                   [&](const R& recomputed, std::int64_t begin, std::int64_t end) {
                                     x = own.template take<4>(recomputed, begin, end, x, running);
                                   });
    if (there) own.end(row(), x, running);
  }
};

/// The plan of a call of `lanes`.
struct lanes_plan {
  lane_plan sums;
  ring_plan ring;
  lane_dealing pairs;                 // pairs.threads is 0 unless threads process pairs
  std::int64_t first_recomputed = 0;  // byte offset of the recomputed states
  std::int64_t workspace_bytes = 0;

  lanes_plan(const problem& p, int steps_ahead)
      : sums(p, 1, 0, sums_over_channels(p) ? device::warp_size : 0), ring(p, sums, steps_ahead) {
    // Warps can add up their lanes only if they have a ring.
    if (ring.steps == 0 && sums_over_channels(p))
      sums = lane_plan(p), ring = ring_plan(p, sums, steps_ahead);
    if (ring.steps == 0 && takes_pairs(p, sums)) {
      pairs = sums.lanes;
      pairs.parallel.channel /= 2, pairs.threads /= 2;
    }
    if (p.recomputed_bytes > 0)
      first_recomputed = sums.reserve(scanrec::detail::interval_rows(p.shape.time) *
                                      sums.lanes.threads * p.recomputed_bytes);
    workspace_bytes = sums.bytes;
  }
};

}  // namespace detail

inline detail::lanes_plan plan_for(const lanes& on, const problem& p) {
  return {p, on.steps_ahead};
}

template <class R>
void run_planned(const lanes& on, const detail::lanes_plan& plan, R r, const problem& p) {
  plan.sums.bind(r, on.workspace.data);
  detail::with_assumption(r, [&]<recurrence::assume Assume>() {
    if constexpr (!scanrec::detail::recomputes<R>)
      if (plan.ring.steps > 0) {
        using kernel = detail::run_ring<R, Assume>;
        return detail::launch(kernel{r, detail::operator_copy<R>(r), plan.sums.lanes.all,
                                     p.shape.time, detail::lane_ring<R>(r, p, plan.ring)},
                              detail::lane_strip::count(plan.sums.lanes.all), on.stream,
                              plan.ring.bytes());
      }
    if constexpr (Assume == recurrence::assume::plain && detail::count_16_bit_arrays<R>().reads > 0)
      if (plan.pairs.threads > 0)
        return detail::launch(detail::run_pairs<R>{r, plan.pairs, p.shape.time},
                              detail::blocks_of(plan.pairs), on.stream);
    using kernel = detail::run_lanes<R, Assume>;
    detail::launch(kernel{r, detail::operator_copy<R>(r), plan.sums.lanes, p.shape.time,
                          static_cast<std::byte*>(on.workspace.data) + plan.first_recomputed},
                   detail::blocks_of(plan.sums.lanes), on.stream);
  });
  detail::add_all_lanes(r, plan.sums, on.stream);
  if (p.recomputed_bytes > 0)
    detail::zero_used(on.workspace, plan.first_recomputed, plan.workspace_bytes, on.stream);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
