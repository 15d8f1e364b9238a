// SPDX-License-Identifier: BSD-3-Clause
// Calls of selective scans on GPUs: argument checks, workspace, launches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/selective_adjoint.cuh>
#include <scanrec/detail/cuda/selective_forward.cuh>
#include <scanrec/detail/cuda/selective_plan.cuh>
#include <scanrec/detail/cuda/selective_problem.cuh>
#include <scanrec/detail/cuda/selective_sums.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/problem/arena.hpp>
#include <scanrec/detail/problem/selective_scan.hpp>
#include <scanrec/error.hpp>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

using scanrec::detail::real_part_of;

/// Returns the problem. Throws if a channel has more states than the kernels support; CPUs have no
/// such limit.
template <class Problem>
Problem taken(const char* call, const Problem& p) {
  using V = typename Problem::value;
  if (p.states > selective_most_states<V>)
    scanrec::detail::refuse(
        call, "a",
        scanrec::detail::text(
            "at most ", selective_most_states<V>,
            scanrec::detail::is_complex<V> ? " complex states on a GPU" : " states on a GPU"),
        scanrec::detail::text(p.states));
  return p;
}

/// Calls f(shape, kind) with the block shape and kernel kind of a problem.
template <selective_pass Pass, class V, class F>
auto with_selective_kernel(const selective_device_problem<V>& p, F f) {
  using enum selective_kind;
  return with_selective_shape<V, Pass>(p.batch, p.channels, p.groups, p.states, [&](auto shape) {
    // For double and complex numbers, one kernel serves all calls.
    if constexpr (sizeof(V) <= 4)
      if (is_plain(p)) return f(shape, std::integral_constant<selective_kind, plain>());
    return f(shape, std::integral_constant<selective_kind, any>());
  });
}
template <class V>
selective_tiles tiles_of(const selective_device_problem<V>& p, int channels) {
  return {p.batch, p.channels, p.groups, channels};
}

// ---- forward ----------------------------------------------------------------------------------

template <class V>
selective_device_problem<V> selective_forward_of(const selective_arrays<V>& arrays,
                                                 const stored_sequence<real_part_of<V>>& out,
                                                 const selective_options<V>& options) {
  return taken("selective_scan",
               scanrec::detail::make_selective_scan<device_rows>(arrays, out, options));
}

template <class V>
void run_selective_forward(const selective_device_problem<V>& p, stream_t stream) {
  with_selective_kernel<selective_pass::forward>(
      p,
      [&]<class Shape, selective_kind Kind>(Shape, std::integral_constant<selective_kind, Kind>) {
        using kernel = selective_forward_kernel<Shape, Kind>;
        const selective_tiles tiles = tiles_of(p, Shape::channels);
        launch(kernel{p, tiles}, tiles.blocks(), stream, kernel::shared_bytes(p));
      });
}

// ---- the adjoint ------------------------------------------------------------------------------

template <class V>
selective_device_vjp<V> selective_vjp_of(const selective_arrays<V>& arrays,
                                         const stored_sequence<const real_part_of<V>>& out_grad,
                                         const selective_gradients<V>& gradients,
                                         const selective_vjp_options<V>& options) {
  return taken("selective_scan_vjp", scanrec::detail::make_selective_scan_vjp<device_rows>(
                                         arrays, out_grad, gradients, options));
}

/// The workspace of an adjoint.
template <class V>
struct selective_vjp_layout {
  static constexpr int parts = scanrec::detail::parts_of<simd::lane_t<V, 1>>;
  selective_vjp_room<V> room;
  V* checkpoints = nullptr;  // (batch, checkpoint interval, channel, state); null: not needed
  std::int64_t bytes = 0;

  selective_vjp_layout(const selective_device_vjp<V>& p, void* memory) {
    using scanrec::detail::clipped_product;
    scanrec::detail::arena pieces(
        memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + header_bytes, 16);
    const auto take = [&]<class T>(T*& position, std::int64_t count) {
      // At least one element, because a null pointer means that a sum is not computed.
      position = pieces.take<T>(std::max<std::int64_t>(count, 1));
    };
    with_selective_kernel<selective_pass::adjoint>(
        p,
        [&]<class Shape, selective_kind Kind>(Shape, std::integral_constant<selective_kind, Kind>) {
          const std::int64_t blocks = tiles_of(p, Shape::channels).blocks();
          if (p.time > Shape::steps)
            take(room.states,
                 clipped_product(blocks, selective_vjp_kernel<Shape, Kind>::kept_states));
          room.of_part = clipped_product(clipped_product(blocks, p.time), p.states);
          const std::int64_t bc_elements = clipped_product(room.of_part, parts);
          if (p.b_grad.steps.present()) take(room.b, bc_elements);
          if (p.c_grad.steps.present()) take(room.c, bc_elements);
          if (p.intervals_grad.present()) take(room.intervals, clipped_product(blocks, p.time));
        });
    const std::int64_t channels = p.batch * p.channels, states = channels * p.states;
    if (p.a_grad.present()) take(room.a, states * parts);
    if (p.b_grad.channels.present()) take(room.b_constant, states * parts);
    if (p.c_grad.channels.present()) take(room.c_constant, states * parts);
    if (p.d_grad.present()) take(room.d, channels);
    if (p.bias_grad.present()) take(room.bias, channels);
    if (p.time > memory::checkpoint_interval && !p.checkpoints.present())
      take(checkpoints, clipped_product(kept(p), states));
    bytes = pieces.bytes() > 0 ? header_bytes + pieces.bytes() : 0;
  }
  static std::int64_t kept(const selective_device_vjp<V>& p) {
    extents of;
    of.time = p.time;
    return scanrec::memory::checkpoint_extents(of).time;
  }
};

template <class V>
void run_selective_vjp(selective_device_vjp<V> p, stream_t stream, const workspace& memory) {
  const selective_vjp_layout<V> layout(p, memory.data);
  check_workspace("selective_scan_vjp", memory, layout.bytes);
  if (layout.checkpoints != nullptr) {
    selective_device_problem<V> before = p;
    before.checkpoints = {layout.checkpoints,
                          {.batch = layout.kept(p) * p.channels * p.states,
                           .time = p.channels * p.states,
                           .channel = p.states,
                           .group = 1}};
    run_selective_forward(before, stream);
    p.checkpoints = before.checkpoints;
  }
  const selective_vjp_room<V>& room = layout.room;
  std::int64_t in_group = 0;
  with_selective_kernel<selective_pass::adjoint>(
      p,
      [&]<class Shape, selective_kind Kind>(Shape, std::integral_constant<selective_kind, Kind>) {
        using kernel = selective_vjp_kernel<Shape, Kind>;
        const selective_tiles tiles = tiles_of(p, Shape::channels);
        in_group = tiles.in_group;
        launch(kernel{p, tiles, room}, tiles.blocks(), stream, kernel::shared_bytes(p));
      });
  const auto per_number = [&](const auto& kernel, std::int64_t count) {
    constexpr int threads = std::remove_reference_t<decltype(kernel)>::threads;
    launch(kernel, (count + threads - 1) / threads, stream);
  };
  using real = real_part_of<V>;
  constexpr int parts = selective_vjp_layout<V>::parts;
  const auto add_tiles = [&](const real* partial, std::int64_t groups, std::int64_t tiles,
                             std::int64_t states, const device_rows<real>& to) {
    if (!to.present()) return;
    const std::int64_t numbers = p.batch * groups * p.time * states;
    per_number(
        add_selective_tiles<real>{partial, groups, tiles, p.time, states, numbers, to, p.update},
        numbers);
  };
  const auto add_bc = [&](const real* partial, const bc_array<V, device_rows>& to) {
    add_tiles(partial, p.groups, in_group, p.states, to.steps);
    if (to.imaginary.present())
      add_tiles(partial + room.of_part, p.groups, in_group, p.states, to.imaginary);
  };
  add_bc(room.b, p.b_grad), add_bc(room.c, p.c_grad);
  const auto& per_step = p.intervals_grad;
  add_tiles(room.intervals, 1, p.groups * in_group, 1,
            {reinterpret_cast<std::byte*>(per_step.data), per_step.strides});
  const add_selective_sequences<real> sequences{
      {{room.a, reals_of(p.a_grad), p.states, parts},
       {room.b_constant, reals_of(p.b_grad.channels), p.states, parts},
       {room.c_constant, reals_of(p.c_grad.channels), p.states, parts},
       {room.d, p.d_grad, 1},
       {room.bias, p.bias_grad, 1}},
      p.batch,
      p.channels,
      p.update};
  per_number(sequences, sequences.count());
  // If the content is workspace_content::kept, later calls rely on zeros after the header.
  zero_used(memory, 0, layout.bytes, stream);
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
