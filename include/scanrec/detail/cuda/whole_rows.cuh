// SPDX-License-Identifier: BSD-3-Clause
// Staging of complete tiles of one sequence, if all arrays are contiguous along time. Inputs and
// outputs are copied to and from shared memory in pieces of 16 bytes or, if some array is not
// aligned to pieces, element by element. A block loads its next tile while it computes the current
// one.
//
// Each thread has one row per array: the elements of its steps in memory order. If time has a
// negative stride, a row holds the steps in reverse.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

template <class R, int SegmentSteps>
class whole_rows {
  struct alignas(16) piece {
    std::uint32_t words[4];
  };
  static constexpr int sequences = scanrec::detail::sequences_of<R>;

 public:
  bool falls = false;            // whether time runs backwards in memory
  bool in_pieces = true;         // whether all arrays are aligned to pieces
  std::int64_t bytes = 0;        // of shared memory; 0: no tile uses rows
  std::int64_t output_byte = 0;  // offset of the rows of outputs

  whole_rows() = default;
  /// Host only, for arrays that satisfy assume::plain (position.hpp). `room` is the available
  /// shared memory in bytes.
  whole_rows(const R& r, const tile_partition& partition, std::int64_t room) {
    int rising = 0, falling = 0, others = 0;
    bool in_elements = true;  // whether all types allow copies of single elements
    std::int64_t needed = edge_bytes;
    const auto count = [&](const auto& field) {
      using S = stored<decltype(field)>;
      const strides& by = field.strides;
      if constexpr (has_rows<S>) {
        needed += bytes_of<S>;
        in_elements = in_elements && device::copied_ahead<S>;
        (!field.data ? others : by.time == 1 ? rising : by.time == -1 ? falling : others) += 1;
        // If time runs backwards, step 0 has the highest address, so it must end a piece.
        const auto corner =
            reinterpret_cast<std::uintptr_t>(by.time < 0 ? field.data + 1 : field.data);
        in_pieces = in_pieces && corner % sizeof(piece) == 0 &&
                    (by.batch | by.channel | by.group) % in_piece<S> == 0;
      } else if (field.data) {
        ++others;
      }
    };
    scanrec::detail::for_reads(r, count);
    output_byte = needed;
    scanrec::detail::for_writes(r, count);
    falls = falling > 0;
    if (partition.width == 1 && partition.segment_steps == SegmentSteps && others == 0 &&
        (rising == 0 || falling == 0) && (in_pieces || in_elements) && needed <= room)
      bytes = needed;
  }

  /// Whether a tile uses rows. If any tile does, all do, except an incomplete last one.
  SCANREC_DEVICE bool have(const tile_partition& partition, std::int64_t tile) const {
    return bytes != 0 && (tile + 1) << partition.tile_shift <= partition.steps;
  }

  /// Starts to copy the inputs of a tile to rows in shared memory, from `first_byte` on. All
  /// threads of the block call it. `row` is the recurrence with its pointers moved to the tile's
  /// group and batch row.
  SCANREC_DEVICE void begin_load(const R& row, const tile_partition& partition,
                                 const tile_position& at, std::int64_t first_byte) const {
    const auto load = [&](const auto& field, rows_of_array rows, auto entry) SCANREC_LAMBDA {
      using S = stored<decltype(field)>;
      const S* const from = corner_of(field, partition, at);
      const auto copy = [&]<class Unit>(Unit) SCANREC_LAMBDA {
        // Elements that device::copy_ahead cannot copy are always copied in pieces.
        if constexpr (device::copied_ahead<Unit>) {
          const device::shared_array<Unit> slots(rows.byte);
          for_units<Unit, S>([&](int slot, int i) SCANREC_LAMBDA {
            device::copy_ahead(slots, slot, reinterpret_cast<const Unit*>(from) + i);
          });
        }
      };
      in_pieces ? copy(piece()) : copy(S());
      if constexpr (entry.neighbour != 0)
        load_neighbour<entry.neighbour>(field, boundary_of<S>(first_byte, rows), partition, at);
    };
    for_rows<true>(row, first_byte, load);
  }

  /// The steps of a thread in registers, and one neighbouring step.
  struct registers {
    alignas(16) unsigned char of[sequences][(SegmentSteps + 1) * sizeof(piece)];
  };
  /// Loads the thread's steps from shared memory to registers, and points the inputs at them. Then
  /// `field.load(at)` with at.row == k reads step k of this thread. (The `row` of a position counts
  /// steps. It has nothing to do with the rows in shared memory.)
  SCANREC_DEVICE void take(R& here, std::int64_t first_byte, registers& values) const {
    const auto load = [&](auto& field, rows_of_array rows, auto entry) SCANREC_LAMBDA {
      using S = stored<decltype(field)>;
      constexpr int beside = entry.neighbour;
      S* const own = reinterpret_cast<S*>(values.of[rows.number]) + (beside < 0 ? 1 : 0);
      const device::shared_array<piece> slots(rows.byte);
      in_order([&](int thread, auto position) SCANREC_LAMBDA {
        SCANREC_UNROLL
        for (int p = 0; p < pieces<S>; ++p) {
          const auto some = std::bit_cast<elements<S>>(slots.load(slot_of<S>(thread, p)));
          SCANREC_UNROLL
          for (int j = 0; j < in_piece<S>; ++j) own[position(p * in_piece<S> + j)] = some.of[j];
        }
      });
      if constexpr (beside != 0)
        own[beside > 0 ? SegmentSteps : -1] =
            neighbour<beside>(rows, boundary_of<S>(first_byte, rows));
      field.data = own, field.strides = {0, 1, 0, 0};
    };
    for_rows<true>(here, first_byte, load);
  }
  /// Points the outputs at registers. Then `field.store(at, x)` with at.row == k writes step k of
  /// this thread.
  SCANREC_DEVICE void aim(R& here, registers& values) const {
    for_rows<false>(here, 0, [&](auto& field, rows_of_array rows, auto) SCANREC_LAMBDA {
      field.data = reinterpret_cast<stored<decltype(field)>*>(values.of[rows.number]);
      field.strides = {0, 1, 0, 0};
    });
  }
  /// Stores the thread's results in shared memory.
  SCANREC_DEVICE void put(const R& here, std::int64_t first_byte, const registers& values) const {
    const auto store = [&](const auto& field, rows_of_array rows, auto) SCANREC_LAMBDA {
      using S = stored<decltype(field)>;
      const S* const own = reinterpret_cast<const S*>(values.of[rows.number]);
      const device::shared_array<piece> slots(rows.byte);
      in_order([&](int thread, auto position) SCANREC_LAMBDA {
        SCANREC_UNROLL
        for (int p = 0; p < pieces<S>; ++p) {
          elements<S> some;
          SCANREC_UNROLL
          for (int j = 0; j < in_piece<S>; ++j) some.of[j] = own[position(p * in_piece<S> + j)];
          slots.store(slot_of<S>(thread, p), std::bit_cast<piece>(some));
        }
      });
    };
    for_rows<false>(here, first_byte, store);
  }
  /// Copies the results to memory. All threads of the block call it, after a barrier.
  SCANREC_DEVICE void store(const R& row, const tile_partition& partition, const tile_position& at,
                            std::int64_t first_byte) const {
    for_rows<false>(row, first_byte,
                    [&](const auto& field, rows_of_array rows, auto) SCANREC_LAMBDA {
                      using S = stored<decltype(field)>;
                      S* const to = corner_of(field, partition, at);
                      const auto copy = [&]<class Unit>(Unit) SCANREC_LAMBDA {
                        const device::shared_array<Unit> slots(rows.byte);
                        for_units<Unit, S>([&](int slot, int i) SCANREC_LAMBDA {
                          reinterpret_cast<Unit*>(to)[i] = slots.load(slot);
                        });
                      };
                      in_pieces ? copy(piece()) : copy(S());
                    });
  }

 private:
  template <class Field>
  using stored = std::remove_cvref_t<decltype(*std::declval<Field>().data)>;
  static constexpr int threads = tile_partition::threads;
  // An array has rows only if a piece consists of complete elements, and a thread's steps of
  // complete pieces. Reset masks have no rows.
  template <class S>
  static constexpr bool has_rows = sizeof(S) > 1 && sizeof(piece) % sizeof(S) == 0 &&
                                   SegmentSteps * sizeof(S) % sizeof(piece) == 0;
  template <class S>
  static constexpr int in_piece = sizeof(piece) / sizeof(S);
  template <class S>
  struct elements {
    S of[in_piece<S>];
  };
  template <class S>
  static constexpr int pieces = SegmentSteps / in_piece<S>;  // of a row

  // Shared memory starts with room for one neighbouring step per array. The rows of all inputs
  // follow, then those of all outputs.
  struct rows_of_array {
    int number;         // index of the array among the inputs, or the outputs
    std::int64_t byte;  // offset of the first row
  };
  static constexpr std::int64_t edge_bytes = sequences * std::int64_t{sizeof(piece)};
  template <class S>
  static constexpr std::int64_t bytes_of =
      std::int64_t{threads} * SegmentSteps* std::int64_t{sizeof(S)};
  template <class S>
  SCANREC_DEVICE static device::shared_array<S> boundary_of(std::int64_t first_byte,
                                                            const rows_of_array& rows) {
    return device::shared_array<S>(first_byte + rows.number * std::int64_t{sizeof(piece)});
  }
  // Calls f(field, rows, entry) for all inputs, or all outputs; `entry` describes the array.
  template <bool Inputs, class Self, class F>
  SCANREC_DEVICE void for_rows(Self& r, std::int64_t first_byte, F f) const {
    rows_of_array rows{0, first_byte + (Inputs ? edge_bytes : output_byte)};
    const auto visit = [&](auto& field, auto entry) SCANREC_LAMBDA {
      using S = stored<decltype(field)>;
      if constexpr (has_rows<S>) {
        f(field, rows, entry);
        rows.byte += bytes_of<S>, ++rows.number;
      }
    };
    if constexpr (Inputs)
      scanrec::detail::for_reads(r, visit);
    else
      scanrec::detail::for_writes(r, visit);
  }

  // The index of a piece in shared memory. Eight threads at once read the pieces with the same
  // number in eight rows. The exclusive or puts these pieces in different banks.
  static constexpr int rows_at_once = 8;
  template <class S>
  SCANREC_DEVICE static int slot_of(int row, int p) {
    constexpr int in_row = pieces<S>, orders = in_row < rows_at_once ? in_row : rows_at_once;
    return row * in_row + (p ^ (row / (rows_at_once / orders) & (orders - 1)));
  }
  // Calls f(slot, number) for a thread's share of the pieces, or elements, of a tile. `slot` is the
  // index in shared memory, and `number` counts in the order of global memory.
  template <class Unit, class S, class F>
  SCANREC_DEVICE void for_units(F f) const {
    constexpr int of_piece = static_cast<int>(sizeof(piece) / sizeof(Unit));
    constexpr int in_row = pieces<S> * of_piece, rows_on = threads / in_row;
    const int thread = own_thread(), u = thread % in_row;
    const int row = falls ? threads - 1 - thread / in_row : thread / in_row;
    if constexpr (rows_on % rows_at_once == 0) {
      const int slot = slot_of<S>(row, u / of_piece) * of_piece + u % of_piece;
      const int on = (falls ? -rows_on : rows_on) * in_row;
      SCANREC_UNROLL
      for (int k = 0; k < in_row; ++k) f(slot + k * on, thread + k * threads);
    } else {
      SCANREC_KEEP_LOOP
      for (int k = 0; k < in_row; ++k) {
        const int then = falls ? row - k * rows_on : row + k * rows_on;
        f(slot_of<S>(then, u / of_piece) * of_piece + u % of_piece, thread + k * threads);
      }
    }
  }
  // The number of the thread. It is pinned, so that values that depend on it are recomputed for
  // every tile instead of taking registers that the steps need.
  SCANREC_DEVICE static int own_thread() {
    int thread = device::thread_index();
    device::pin(thread);
    return thread;
  }
  // Calls f(thread, position), where position(i) is the step of element i of a row.
  template <class F>
  SCANREC_DEVICE void in_order(F f) const {
    int thread = own_thread();
    if (falls) {
      device::pin(thread);  // otherwise the compiler merges the branches and selects each value
      f(thread, [](int i) SCANREC_LAMBDA { return SegmentSteps - 1 - i; });
    } else {
      f(thread, [](int i) SCANREC_LAMBDA { return i; });
    }
  }

  // The lowest address of any element of a tile.
  template <class Field>
  SCANREC_DEVICE auto* corner_of(const Field& field, const tile_partition& partition,
                                 const tile_position& at) const {
    const std::int64_t first = std::int64_t{at.tile} << partition.tile_shift;
    auto* const channel = field.data + at.c * field.strides.channel;
    return falls ? channel - (first + threads * SegmentSteps - 1) : channel + first;
  }
  // Loads the step before or after the tile, if it exists.
  template <int Beside, class Field, class S>
  SCANREC_DEVICE static void load_neighbour(const Field& field, const device::shared_array<S>& edge,
                                            const tile_partition& partition,
                                            const tile_position& at) {
    const std::int64_t first = std::int64_t{at.tile} << partition.tile_shift;
    const std::int64_t t = Beside < 0 ? first - 1 : first + threads * SegmentSteps;
    if (device::thread_index() != 0 || t < 0 || t >= partition.steps) return;
    const S* const from = field.data + t * field.strides.time + at.c * field.strides.channel;
    if constexpr (device::copied_ahead<S>)
      device::copy_ahead(edge, 0, from);
    else
      edge.store(0, *from);
  }
  // The step next to the thread's steps. It is in the row of another thread or, if it lies outside
  // of the tile, in `edge`.
  template <int Beside, class S>
  SCANREC_DEVICE S neighbour(const rows_of_array& rows, const device::shared_array<S>& edge) const {
    const int thread = own_thread();
    if (thread == (Beside < 0 ? 0 : threads - 1)) return edge.load(0);
    const int i = (Beside < 0) == falls ? 0 : SegmentSteps - 1;
    const int slot = slot_of<S>(thread + Beside, i / in_piece<S>);
    return device::shared_array<S>(rows.byte).load(slot * in_piece<S> + i % in_piece<S>);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
