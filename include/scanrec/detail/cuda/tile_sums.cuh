// SPDX-License-Identifier: BSD-3-Clause
// Gradients that are sums, for sequences that are split over tiles.
//
// Sums over time, and sums of gradients with one value per sequence: every thread adds up its
// terms. A block adds the sums of a channel's threads pairwise into one partial sum per channel and
// tile. The kernels of lane_sums.cuh add these partial sums.
//
// Sums that keep their time axis run over lanes (sequences), not over time. If all of them run over
// channels, tiles have at least four channels, and the terms fit in shared memory, a block adds up
// the channels of its tile at every step. The kernels of lane_sums.cuh add the sums of the tiles.
// Otherwise tiles have one lane each, and tiles with the same steps add to the same sums in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/sums.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The type of the largest sums of a recurrence: that of gradients of factors, which are matrices
/// if states are vectors.
template <class Carry, bool MaySum>
struct widest_sum {
  using type = char;  // no sums
};
template <class Carry>
struct widest_sum<Carry, true> {
  using type = factor_t<Carry>;
};

/// The accumulators of a thread, in the wide type: for sums of gradients with one value per
/// sequence and, if `OfSequences`, for sums over time. `Widest` is the type of the largest
/// accumulator.
template <class R, class Widest, bool OfSequences>
class thread_sums {
 public:
  /// Bytes of shared memory in which a block adds up the accumulators of its threads.
  static constexpr std::int64_t shared_bytes =
      scanrec::detail::may_sum<R> ? tile_partition::threads * std::int64_t{sizeof(Widest)} : 0;

  /// Clears the thread's accumulators, and points their outputs at them.
  SCANREC_DEVICE void redirect(R& r) {
    for_sums(r, slots_, [](auto& out, slot& own) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      out.sums = {reinterpret_cast<wide*>(own.bytes), 0, {0, 0, 0, 0}};
      *out.sums.data = wide{};
    });
  }
  /// Adds up the accumulators of a channel's segments and stores the sum in the workspace, where
  /// the outputs of `r` point. All threads of the block call it.
  SCANREC_DEVICE void gather(const R& r, const tile_partition& partition, const tile_position& at,
                             std::int64_t first_shared_byte) {
    for_sums(r, slots_, [&](const auto& out, slot& own) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      using wide_lane = simd::lane_t<wide, 1>;
      static_assert(sizeof(wide_lane) <= sizeof(Widest),
                    "scanrec: Widest must be as large as every sum");
      const device::shared_array<wide_lane> positions(first_shared_byte);
      const int thread = device::thread_index();
      device::synchronise_block();
      positions.store(thread, simd::from_element(*reinterpret_cast<const wide*>(own.bytes)));
      for (int half = partition.segments() / 2; half > 0; half /= 2) {
        device::synchronise_block();
        if (at.segment < half)
          positions.store(thread,
                          positions.load(thread) + positions.load(thread + half * partition.width));
      }
      if (at.segment == 0 && at.there)
        out.sums.data[scanrec::detail::offset_of({at.b, at.tile, at.c, at.g}, out.sums.strides)] =
            simd::to_element<wide>(positions.load(thread));
    });
  }

 private:
  struct alignas(16) slot {
    std::byte bytes[sizeof(Widest)];
  };
  slot slots_[scanrec::detail::may_sum<R> ? most_outputs : 1];

  template <class Self, class F>
  SCANREC_DEVICE static void for_sums(Self& r, slot* own, F f) {
    using recurrence::write;
    if constexpr (scanrec::detail::may_sum<R>) {
      if constexpr (OfSequences)
        scanrec::detail::for_writes(r, [&](auto& out) {
          if (out.action == write::sum_time) f(out, *own);
          ++own;
        });
      scanrec::detail::for_ends(r, [&](auto& out) {
        if (out.action == write::sum_site) f(out, *own);
        ++own;
      });
    }
  }
};

/// Sums over the channels of a tile at every step, with a term per step and channel in shared
/// memory. Does nothing unless `Possible` and `any`.
template <class R, bool Possible>
struct column_sums {
  bool any = false;
  std::int64_t first_byte = 0;

  /// Clears the thread's terms.
  SCANREC_DEVICE void clear(const R& r, const tile_partition& partition,
                            const tile_position& at) const {
    if (!Possible || !any) return;
    for_columns(r, partition, [&](const auto&, const auto& terms) {
      clear_terms(row_addresses(terms, partition, at, at.count), at.count, partition.term_row());
    });
  }
  /// Points the summed outputs at the thread's terms, for `count` steps. clear() comes first.
  SCANREC_DEVICE void redirect(R& here, const tile_partition& partition, const tile_position& at,
                               std::int64_t count) const {
    if (!Possible || !any) return;
    const int row = partition.term_row();
    for_columns(here, partition, [&](auto& out, const auto& terms) {
      out.sums = {row_addresses(terms, partition, at, count) - at.first * row, 0, {0, row, 0, 0}};
    });
  }
  /// Writes the sums to the accumulators of the tile. All threads of the block call it.
  SCANREC_DEVICE void gather(const R& r, const tile_partition& partition,
                             const tile_position& at) const {
    if (!Possible || !any) return;
    device::synchronise_block();
    const std::int64_t first = at.tile * partition.tile_steps(), c0 = at.c - at.column;
    const std::int64_t left = partition.lanes.channel - c0;
    const int lanes = static_cast<int>(left < partition.width ? left : partition.width);
    for_columns(r, partition, [&](const auto& out, const auto& terms) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      for (int row = device::thread_index();
           row < partition.tile_steps() && first + row < partition.steps; row += partition.threads)
        out.sums.data[scanrec::detail::offset_of({at.b, first + row, c0 / partition.width, at.g},
                                                 out.sums.strides)] =
            simd::to_element<wide>(add_terms(terms, row * partition.term_row(), lanes));
    });
  }

 private:
  template <class Terms>
  SCANREC_DEVICE static auto* row_addresses(const Terms& terms, const tile_partition& partition,
                                            const tile_position& at, std::int64_t count) {
    const int row = partition.term_row();
    return terms.column_address_to_write((at.segment << partition.segment_shift) * row + at.column,
                                         0, static_cast<int>(count), row);
  }
  template <class Self, class F>
  SCANREC_DEVICE void for_columns(Self& r, const tile_partition& partition, F f) const {
    for_terms(r, first_byte, partition.tile_steps() * partition.term_row(), f);
  }
};

/// Sets a gradient that is a sum over zero lanes to zero, or adds zeros to it. One thread per step.
template <class S>
struct write_empty_sums {
  static constexpr int threads = 128;
  static constexpr int blocks_together = 8;
  static constexpr bool synchronises = false;
  recurrence::output_field<S> out;
  extents lanes;
  std::int64_t steps = 0;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t t = device::block_index() * threads + device::thread_index();
    if (t >= steps) return;
    scanrec::detail::region own{{0, t, 0, 0}, lanes};
    own.end.time = t + 1;
    scanrec::detail::for_kept(out.strides, own, [&](const extents& at) {
      auto& sum = out.sums.data[scanrec::detail::offset_of(at, out.sums.strides)];
      sum = wide_t<S>{};
      scanrec::detail::write_sum(out, at, simd::from_element(sum));
    });
  }
};
template <class S>
void queue_empty_sums(const recurrence::output_field<S>& out, const extents& lanes,
                      std::int64_t steps, stream_t stream) {
  using kernel = write_empty_sums<S>;
  if (out.action == recurrence::write::sum_site)
    launch(kernel{out, lanes, steps}, (steps + kernel::threads - 1) / kernel::threads, stream);
}

/// The order in which tiles with the same steps add to sums that keep their time axis.
template <class R>
struct sum_turns {
  // For each tile index along time, the number of lanes that have finished; null: no such sums.
  device::word* words = nullptr;

  /// Waits for the previous lane. Clears the sums if this lane is the first to add to them.
  SCANREC_DEVICE void begin(const R& r, const tile_partition& partition,
                            const tile_position& at) const {
    if (!scanrec::detail::may_sum<R> || !words) return;
    if (device::thread_index() == 0 && at.group > 0) {
      for (;;) {
        const device::word w = device::load_word(words + at.tile);
        if (w.tag == call_number() && w.value == static_cast<std::uint64_t>(at.group)) break;
        device::pause();
      }
      device::fence();
    }
    device::synchronise_block();
    for_sums(r, partition, at, true, [](const auto&, const extents&, auto& sum) {
      sum = std::remove_reference_t<decltype(sum)>{};
    });
  }
  /// Writes the sums if this lane is the last to add to them. Lets the next lane begin.
  SCANREC_DEVICE void end(const R& r, const tile_partition& partition,
                          const tile_position& at) const {
    if (!scanrec::detail::may_sum<R> || !words) return;
    device::synchronise_block();
    for_sums(r, partition, at, false, [](const auto& out, const extents& position, auto& sum) {
      scanrec::detail::write_sum(out, position, simd::from_element(sum));
      sum = std::remove_reference_t<decltype(sum)>{};
    });
    device::synchronise_block();
    if (device::thread_index() != 0) return;
    device::fence();
    device::store_word(words + at.tile, {static_cast<std::uint64_t>(at.group) + 1, call_number()});
  }

 private:
  // Calls f(output, position, sum) for the steps of the thread if its lane is the first (or last)
  // of the lanes that share a sum.
  template <class F>
  SCANREC_DEVICE static void for_sums(const R& r, const tile_partition& partition,
                                      const tile_position& at, bool first, F f) {
    if constexpr (scanrec::detail::may_sum<R>)
      scanrec::detail::for_writes(r, [&](const auto& out) {
        if (out.action != recurrence::write::sum_site) return;
        const auto is_boundary = [first](std::int64_t stride, std::int64_t position,
                                         std::int64_t count) {
          return stride != 0 || position == (first ? 0 : count - 1);
        };
        const extents& lanes = partition.lanes;
        if (!is_boundary(out.strides.group, at.g, lanes.group) ||
            !is_boundary(out.strides.batch, at.b, lanes.batch) ||
            !is_boundary(out.strides.channel, at.c, lanes.channel))
          return;
        for (std::int64_t t = at.first; t < at.first + at.count; ++t) {
          const extents position{at.b, t, at.c, at.g};
          f(out, position, out.sums.data[scanrec::detail::offset_of(position, out.sums.strides)]);
        }
      });
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
