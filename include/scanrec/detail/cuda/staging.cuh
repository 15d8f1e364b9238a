// SPDX-License-Identifier: BSD-3-Clause
// Staging in shared memory of arrays that are contiguous along time. Neighbouring threads copy
// neighbouring elements of inputs to shared memory, and each thread reads its own steps from there.
// Outputs are staged in the opposite direction.
//
// A thread has a row of elements per array: its steps, and a neighbouring step if the recurrence
// reads neighbours. Rows are padded against bank conflicts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_sums.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The staged arrays of a recurrence. The masks have one bit per input, or per output, in the order
/// in which the recurrence lists its arrays.
struct staged_arrays {
  std::uint32_t reads = 0, writes = 0;       // bits of the staged inputs, and of the staged outputs
  std::uint32_t neighbours = 0;              // bits of staged inputs with a neighbouring step
  bool all_reads = true, all_writes = true;  // whether all present inputs / all outputs are staged
  std::int64_t bytes = 0;                    // of shared memory
};

template <class R, int SegmentSteps>
class tile_stage {
 public:
  staged_arrays which;

  /// Host only. Selects the arrays to stage: in order, each suitable one that still fits in `room`
  /// bytes. Outputs reuse the bytes of the inputs.
  tile_stage(const R& r, std::int64_t room) {
    std::int64_t read_bytes = 0, written_bytes = 0;
    std::uint32_t bit = 1;
    scanrec::detail::for_reads(r, [&](const auto& field, auto entry) {
      if (along_time(field) && read_bytes + bytes_of<stored<decltype(field)>> <= room) {
        which.reads |= bit;
        read_bytes += bytes_of<stored<decltype(field)>>;
        if (scanrec::detail::halo_of<R> != 0 && (entry.is_reset_mask || entry.neighbour != 0))
          which.neighbours |= bit;
      } else if (field.data) {
        which.all_reads = false;
      }
      bit <<= 1;
    });
    bit = 1;
    scanrec::detail::for_writes(r, [&](const auto& field) {
      if (along_time(field) && is_stored(field) &&
          written_bytes + bytes_of<stored<decltype(field)>> <= room) {
        which.writes |= bit;
        written_bytes += bytes_of<stored<decltype(field)>>;
      } else {
        which.all_writes = false;
      }
      bit <<= 1;
    });
    which.bytes = std::max(read_bytes, written_bytes);
  }

  /// Copies the staged inputs of a tile to shared memory, from `first_byte` on. All threads of the
  /// block call it. `row` is the recurrence with its pointers moved to the tile's group and batch
  /// row.
  SCANREC_DEVICE void load(const R& row, const tile_partition& partition, const tile_position& at,
                           std::int64_t first_byte) const {
    if (which.reads == 0) return;
    for_staged<true>(row, which.reads, first_byte,
                     [&](const auto& field, const auto& slots, std::uint32_t bit) {
                       copy_in(field, slots, partition, at);
                       if (scanrec::detail::halo_of<R> != 0 && (which.neighbours & bit))
                         load_neighbours(field, slots, partition, at);
                     });
    device::wait_for_copies();
    device::synchronise_block();
    if (scanrec::detail::halo_of<R> == 0 || which.neighbours == 0) return;
    for_staged<true>(row, which.reads, first_byte,
                     [&](const auto& field, const auto& slots, std::uint32_t bit) {
                       if (which.neighbours & bit) pass_neighbours(field, slots, partition, at);
                     });
  }
  /// Points the staged inputs at the thread's rows. `All` promises that all inputs are staged,
  /// except absent reset masks. Then the offset of each array in shared memory is a compile-time
  /// constant.
  template <bool All = false>
  SCANREC_DEVICE void redirect_reads(R& here, const tile_partition& partition,
                                     const tile_position& at, std::int64_t first_byte) const {
    for_staged<true, All>(
        here, which.reads, first_byte, [&](auto& field, const auto& slots, std::uint32_t bit) {
          using S = stored<decltype(field)>;
          const bool also = (which.neighbours & bit) && at.count > 0;
          const bool before = scanrec::detail::halo_of<R> < 0 && also && at.first > 0;
          const bool after = scanrec::detail::halo_of<R> > 0 && also &&
                             at.first + partition.segment_steps < partition.steps;
          const int own = device::thread_index() * row_of<S> + lead;
          auto* const p = slots.address(own - before, at.count + before + after, false);
          point(field, p + before, at);
        });
  }
  /// Points the staged outputs at the thread's rows.
  template <bool All = false>
  SCANREC_DEVICE void redirect_writes(R& here, const tile_position& at,
                                      std::int64_t first_byte) const {
    for_staged<false, All>(here, which.writes, first_byte,
                           [&](auto& field, const auto& slots, std::uint32_t) {
                             using S = stored<decltype(field)>;
                             const int own = device::thread_index() * row_of<S> + lead;
                             point(field, slots.address(own, at.count, true), at);
                           });
  }
  /// Copies the staged outputs to global memory, except the columns for which left_out(column) is
  /// true. All threads of the block call it, after a barrier.
  template <class LeftOut>
  SCANREC_DEVICE void store(const R& row, const tile_partition& partition, const tile_position& at,
                            std::int64_t first_byte, LeftOut left_out) const {
    // A single column is copied as a whole or not at all.
    if (partition.width == 1 && left_out(0)) return;
    const auto store_all = [&](const auto& field, const auto& slots, std::uint32_t) {
      for_elements(field, partition, at,
                   [&](int, int slot, auto column, auto* element) SCANREC_LAMBDA {
                     if (is_only<decltype(column)> || !left_out(column))
                       *element = slots.load(slot);
                   });
    };
    for_staged<false>(row, which.writes, first_byte, store_all);
  }

 private:
  template <class Field>
  using stored = std::remove_cvref_t<decltype(*std::declval<Field>().data)>;
  static constexpr int threads = tile_partition::threads;
  static constexpr int lead = scanrec::detail::halo_of<R> < 0 ? 1 : 0;
  template <class S>
  static constexpr int row_of = SegmentSteps + (sizeof(S) < 4 ? 2 : 1);
  template <class S>
  static constexpr std::int64_t bytes_of = (threads * row_of<S> * sizeof(S) + 15) / 16 * 16;

  // Staging does not pay for elements of one byte (reset masks). Elements over 16 bytes, such as
  // matrices, use their cache lines well without it.
  template <class S>
  static constexpr bool may_be_staged = sizeof(S) > 1 && sizeof(S) <= 16;
  template <class Field>
  static bool along_time(const Field& field) {
    return may_be_staged<stored<Field>> && field.data &&
           (field.strides.time == 1 || field.strides.time == -1);
  }
  template <class Field>
  static bool is_stored(const Field& field) {
    if constexpr (requires { field.action; })
      return field.action == recurrence::write::store;
    else
      return true;
  }
  // Calls f(field, slots, bit) for the staged inputs (or outputs if not `Reads`): for those in
  // `bits`, or if `All` for every one that may be staged. `slots` is the array's part of shared
  // memory.
  template <bool Reads, bool All = false, class Self, class F>
  SCANREC_DEVICE static void for_staged(Self& r, std::uint32_t bits, std::int64_t byte, F f) {
    std::uint32_t bit = 1;
    const auto visit = [&](auto& field) SCANREC_LAMBDA {
      using S = stored<decltype(field)>;
      if constexpr (may_be_staged<S>)
        if (All || (bits & bit)) {
          f(field, device::shared_array<S>(byte), bit);
          byte += bytes_of<S>;
        }
      bit <<= 1;
    };
    if constexpr (Reads)
      scanrec::detail::for_reads(r, visit);
    else
      scanrec::detail::for_writes(r, visit);
  }
  template <class Field, class S>
  SCANREC_DEVICE static void copy_in(const Field& field, const device::shared_array<S>& slots,
                                     const tile_partition& partition, const tile_position& at) {
    if constexpr (device::copied_ahead<S>) {
      for_elements(field, partition, at, [&](int, int slot, auto, auto* element) SCANREC_LAMBDA {
        device::copy_ahead(slots, slot, element);
      });
    } else {
      // All loads are issued before the first store, so that no load waits for another.
      S values[SegmentSteps];
      for_elements(field, partition, at,
                   [&](int k, int, auto, auto* element) SCANREC_LAMBDA { values[k] = *element; });
      for_elements(field, partition, at, [&](int k, int slot, auto, auto*) SCANREC_LAMBDA {
        slots.store(slot, values[k]);
      });
    }
  }
  // The column index in a tile with a single column.
  using only_column = std::integral_constant<int, 0>;
  template <class Column>
  static constexpr bool is_only = std::is_same_v<Column, only_column>;
  // Calls f(number, slot, column, address) for a thread's share of a tile's elements. `number`
  // is less than SegmentSteps. `slot` is the index of the element in shared memory, and `address`
  // is its address in global memory.
  template <class Field, class F>
  SCANREC_DEVICE static void for_elements(const Field& field, const tile_partition& partition,
                                          const tile_position& at, F f) {
    using S = stored<Field>;
    const std::int64_t first = std::int64_t{at.tile} << partition.tile_shift, c0 = at.c - at.column;
    const std::int64_t left = partition.steps - first, columns = partition.lanes.channel - c0;
    auto* const corner = field.data + first * field.strides.time + c0 * field.strides.channel;
    // In a complete tile of one sequence, slots and addresses advance by constants.
    if (partition.width == 1 && partition.segment_steps == SegmentSteps &&
        left >= threads * SegmentSteps) {
      constexpr int rows_on = threads / SegmentSteps * row_of<S>;
      const int thread = device::thread_index();
      const int slot = thread / SegmentSteps * row_of<S> + lead + thread % SegmentSteps;
      const auto along = [&](auto* element, std::int64_t stride) SCANREC_LAMBDA {
        SCANREC_UNROLL
        for (int k = 0; k < SegmentSteps; ++k)
          f(k, slot + k * rows_on, only_column{}, element + k * stride);
      };
      if (field.strides.time == 1)
        along(corner + thread, threads);
      else
        along(corner - thread, -threads);
      return;
    }
    // Otherwise the block processes the columns in order. If a column has at least as many steps as
    // the block has threads, all threads are in the same column at a time, so their increments are
    // the same.
    const auto slot_of = [&](int t) SCANREC_LAMBDA {
      return (t >> partition.segment_shift) * partition.width * row_of<S> + lead +
             (t & (partition.segment_steps - 1));
    };
    const auto for_each = [](auto visit) SCANREC_LAMBDA {
      if constexpr (device::copied_ahead<S>) {
        SCANREC_UNROLL_BY_4
        for (int k = 0; k < SegmentSteps; ++k) visit(k);
      } else {
        SCANREC_UNROLL
        for (int k = 0; k < SegmentSteps; ++k) visit(k);
      }
    };
    const int thread = device::thread_index(), in_tile = (1 << partition.tile_shift) - 1;
    const int last_column = static_cast<int>(columns < partition.width ? columns : partition.width);
    const int rows = static_cast<int>(left <= in_tile ? left : in_tile + 1);
    if (in_tile + 1 >= threads) {
      const int on = (threads >> partition.segment_shift) * partition.width * row_of<S>;
      const int last = in_tile + 1 - threads, last_slot = slot_of(last) - lead;
      const std::int64_t step = field.strides.time;
      auto* element = corner + thread * step;
      int column = 0, t = 0, slot = slot_of(thread);
      for_each([&](int k) SCANREC_LAMBDA {
        if (column >= last_column) return;
        if (thread + t < rows) f(k, slot, column, element);
        const bool over = t == last;
        element += over ? field.strides.channel - last * step : threads * step;
        slot += over ? row_of<S> - last_slot : on;
        column += over ? 1 : 0;
        t = over ? 0 : t + threads;
      });
    } else {
      for_each([&](int k) SCANREC_LAMBDA {
        const int e = k * threads + thread, column = e >> partition.tile_shift, t = e & in_tile;
        if (column < last_column && t < rows)
          f(k, slot_of(t) + column * row_of<S>, column,
            corner + (t * field.strides.time + column * field.strides.channel));
      });
    }
  }
  // The neighbouring step of a segment. It is in the row of another thread, or outside of the tile
  // (`elsewhere`). If it is outside, it is loaded from global memory.
  struct neighbour {
    std::int64_t time;
    bool exists, elsewhere;
  };
  SCANREC_DEVICE static neighbour neighbour_of(const tile_partition& partition,
                                               const tile_position& at) {
    const std::int64_t t =
        scanrec::detail::halo_of<R> < 0 ? at.first - 1 : at.first + partition.segment_steps;
    return {t, at.there && t >= 0 && t < partition.steps,
            at.segment == (scanrec::detail::halo_of<R> < 0 ? 0 : partition.segments() - 1)};
  }
  template <class S>
  SCANREC_DEVICE static int neighbour_slot(const tile_partition& partition) {
    return device::thread_index() * row_of<S> +
           (scanrec::detail::halo_of<R> < 0 ? 0 : partition.segment_steps);
  }
  template <class Field, class S>
  SCANREC_DEVICE static void load_neighbours(const Field& field,
                                             const device::shared_array<S>& slots,
                                             const tile_partition& partition,
                                             const tile_position& at) {
    const neighbour n = neighbour_of(partition, at);
    if (!n.exists || !n.elsewhere) return;
    const S* const from = field.data + n.time * field.strides.time + at.c * field.strides.channel;
    if constexpr (device::copied_ahead<S>)
      device::copy_ahead(slots, neighbour_slot<S>(partition), from);
    else
      slots.store(neighbour_slot<S>(partition), *from);
  }
  template <class Field, class S>
  SCANREC_DEVICE static void pass_neighbours(const Field&, const device::shared_array<S>& slots,
                                             const tile_partition& partition,
                                             const tile_position& at) {
    const neighbour n = neighbour_of(partition, at);
    if (!n.exists || n.elsewhere) return;
    const int thread = device::thread_index();
    const int from = scanrec::detail::halo_of<R> < 0
                         ? (thread - partition.width) * row_of<S> + partition.segment_steps
                         : (thread + partition.width) * row_of<S>;
    slots.store(neighbour_slot<S>(partition), slots.load(from));
  }
  // Points the field into `slots` so that step at.first is the first element.
  template <class Field, class S>
  SCANREC_DEVICE static void point(Field& field, S* slots, const tile_position& at) {
    field.data = slots - at.first;
    field.strides = {0, 1, 0, 0};
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
