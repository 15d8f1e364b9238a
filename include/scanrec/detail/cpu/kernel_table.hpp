// SPDX-License-Identifier: BSD-3-Clause
// A table of the functions that the tiled backend runs on a tile. They contain all code that
// depends on the recurrence, so all recurrences share one driver (tile_schedule.hpp). Each function
// is called only once per tile and row, so a call through a pointer costs little. The loops over
// steps are in kernels_by_channel.hpp, kernels_by_time.hpp and kernels_by_element.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <scanrec/detail/cpu/stage.hpp>
#include <scanrec/detail/cpu/tile_plan.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/sizes.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The accumulators of a summed output: accumulators<S> without the type S.
struct sum_view {
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  scanrec::strides strides{};
};
using sum_views = std::array<sum_view, most_outputs>;

/// A tile of one batch row.
struct tile_row {
  const void* recurrence;  // arrays in scan order, not yet bound to a row
  const step_plan& plan;
  const recompute_scratch& room;  // layout of `recomputed`
  const sum_view* sums;           // one per output; null: no output is a sum
  std::int64_t group, batch;
  block where;
  std::byte* recomputed;
};

/// The slots (see kernel_table) of a work item that are in use: the first `each` of every batch
/// row. `apart` is the distance between the first slots of two rows.
struct slots_in_use {
  std::int64_t rows, each, apart;

  template <class F>
  void for_each(F f) const {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < each; ++i) f(row * apart + i);
  }
};

/// The functions of a recurrence. A slot holds the state and running sums that pass from step to
/// step. A reduction holds the map of a tile. A carry holds the state between two tiles of a work
/// item. All three are passed as arrays of bytes, because only the functions know their types.
struct kernel_table {
  int lanes;  // channels or steps per pack
  void (*begin)(const tile_row&, std::byte* slots);
  void (*reduce)(const tile_row&, std::byte* reductions);
  /// Processes the tile from the states in the slots, and flushes running sums.
  void (*run)(const tile_row&, std::byte* slots);
  /// Runs and reduces a tile whose carry is known. Gives the same bits as `reduce` and `run`.
  void (*run_and_reduce)(const tile_row&, std::byte* slots, std::byte* reductions);
  void (*end)(const tile_row&, const std::byte* slots);

  void (*store_carries)(const slots_in_use&, const std::byte* slots, std::byte* carries);
  void (*take_carries)(const slots_in_use&, const std::byte* carries, std::byte* slots);
  /// Computes the carries after a tile from its map. Returns false and changes nothing if a carry
  /// would not be finite. In this case only a pass over the tile gives the result of the sequential
  /// loop.
  bool (*advance)(const void* recurrence, bool first, const slots_in_use&,
                  const std::byte* reductions, std::byte* carries);
  /// Computes the carries after a tile that has been processed, if advance() returned false.
  void (*advance_from_state)(const slots_in_use&, const std::byte* reductions,
                             const std::byte* slots, std::byte* carries);

  /// write_sums writes the sums of a box to output number `index`, a gradient, or adds them to it
  /// if the call accumulates. add_to_totals adds them to the totals of this output.
  void (*write_sums)(const void* recurrence, int index, const std::byte* sums,
                     const scanrec::strides& strides, const region& box);
  void (*add_to_totals)(const void* recurrence, int index, const std::byte* sums,
                        const scanrec::strides& strides, const region& box, std::byte* totals,
                        const scanrec::strides& total_strides);
};

/// The table of a recurrence. `Lanes` is kernels_by_channel (lanes along channels), kernels_by_time
/// (lanes along time) or kernels_by_element (one element at a time).
template <class R, template <class> class Lanes>
struct kernel_table_of {
  using recomputed = recomputed_t<R>;
  using kernel = Lanes<recomputed>;
  using slot = typename kernel::slot;
  using reduction = typename kernel::reduction;
  using carry = typename kernel::carry;
  using state = decltype(slot::state);

  static constexpr pack_bytes planned{
      sizes_of<R>(), {.along = kernel::position::along, .single = kernel::lanes == 1}};
  static_assert(planned.lanes == kernel::lanes);
  static_assert(planned.slot == std::int64_t{sizeof(slot)});
  static_assert(planned.reduction == std::int64_t{sizeof(reduction)});
  static_assert(planned.carry == std::int64_t{sizeof(carry)});

  template <class T>
  static T* as(std::byte* position) {
    return reinterpret_cast<T*>(position);
  }
  template <class T>
  static const T* as(const std::byte* position) {
    return reinterpret_cast<const T*>(position);
  }

  // The recurrence with its fields bound to a row, and its sums to their accumulators.
  static SCANREC_INLINE R at_row(const tile_row& row) {
    R r = *static_cast<const R*>(row.recurrence);
    if constexpr (may_sum<R>)
      if (const sum_view* position = row.sums)
        for_outputs(r, [&](auto& out) {
          if (position->data)
            out.sums = {reinterpret_cast<decltype(out.sums.data)>(position->data), position->offset,
                        position->strides};
          ++position;
        });
    if (row.group != 0 || row.batch != 0) bind_row(r, row.group, row.batch);
    return r;
  }

  static void begin(const tile_row& row, std::byte* slots) {
    kernel::begin(at_row(row), row.where, as<slot>(slots));
  }
  static void end(const tile_row& row, const std::byte* slots) {
    kernel::end(at_row(row), row.where, as<slot>(slots));
  }
  static void reduce(const tile_row& row, std::byte* reductions) {
    kernel::clear(row.where, as<reduction>(reductions));
    kernel::reduce(at_row(row), row.where, as<reduction>(reductions), row.plan);
  }
  static void run(const tile_row& row, std::byte* slots_of_row) {
    slot* const slots = as<slot>(slots_of_row);
    for_parts(row, slots, [&](const recomputed& here, const block& part) {
      kernel::run(here, part, slots, row.plan);
    });
  }
  static void run_and_reduce(const tile_row& row, std::byte* slots_of_row,
                             std::byte* reductions_of_row) {
    slot* const slots = as<slot>(slots_of_row);
    reduction* const reductions = as<reduction>(reductions_of_row);
    kernel::clear(row.where, reductions);
    // With lanes along time, packs are composed in groups, which must be the same as in `reduce`.
    // If states are recomputed, the ends of parts would split groups, so the tile is reduced first.
    if (kernel::position::along == recurrence::lane_axis::time && row.room.bytes > 0) {
      kernel::reduce(at_row(row), row.where, reductions, row.plan);
      return run(row, slots_of_row);
    }
    for_parts(row, slots, [&](const recomputed& here, const block& part) {
      kernel::run_and_reduce(here, part, row.where.begin, slots, reductions, row.plan);
    });
  }
  // Calls f(recurrence with its states in memory, part) for all parts of a tile. Parts end where
  // sums are flushed, because a lane may add only a limited number of terms. If states are
  // recomputed, parts also end with each checkpoint interval.
  template <class F>
  static void for_parts(const tile_row& row, slot* slots, F f) {
    const R r = at_row(row);
    const block& where = row.where;
    const bool flushes = may_sum<R> && !kernel::flushes_itself && sums_run(r);
    const std::int64_t steps = flushes ? kernel::flush_steps : where.end - where.begin;
    std::int64_t flushed = where.begin;
    with_states(
        r, where, row.room, row.recomputed,
        [&](const auto& forward, const block& interval, std::byte* memory) {
          run_alone<Lanes>(forward, interval, row.plan.turned(), memory);
        },
        [&](const recomputed& here, const block& whole) {
          block part = whole;
          for (; part.begin < whole.end; part.begin = part.end) {
            if (part.begin - flushed >= kernel::flush_steps) {
              kernel::flush(r, where, slots);
              flushed = part.begin;
            }
            part.end = std::min(part.begin + steps, whole.end);
            f(here, part);
          }
        });
    kernel::flush(r, where, slots);
  }

  static void store_carries(const slots_in_use& in_use, const std::byte* slots,
                            std::byte* carries) {
    in_use.for_each(
        [=](auto i) { as<carry>(carries)[i] = kernel::carry_of(as<slot>(slots)[i].state); });
  }
  static void take_carries(const slots_in_use& in_use, const std::byte* carries, std::byte* slots) {
    in_use.for_each([=](auto i) {
      as<slot>(slots)[i] = slot{kernel::template state_of<state>(as<carry>(carries)[i]), {}};
    });
  }
  static bool advance(const void* recurrence, bool first, const slots_in_use& in_use,
                      const std::byte* reductions, std::byte* carries) {
    bool finite = true;
    in_use.for_each([&](auto i) {
      finite = finite && kernel::template finite_after<state>(
                             as<reduction>(reductions)[i].composed(), as<carry>(carries)[i]);
    });
    if (!finite) return false;
    in_use.for_each([=](auto i) {
      carry& c = as<carry>(carries)[i];
      c = kernel::advance(*static_cast<const R*>(recurrence), first,
                          as<reduction>(reductions)[i].composed(), c);
    });
    return true;
  }
  static void advance_from_state(const slots_in_use& in_use, const std::byte* reductions,
                                 const std::byte* slots, std::byte* carries) {
    in_use.for_each([=](auto i) {
      carry& c = as<carry>(carries)[i];
      c = kernel::advance_from_state(as<reduction>(reductions)[i].composed(), c,
                                     as<slot>(slots)[i].state);
    });
  }

  // Calls f(output `index`, its sums with their type).
  template <class Sums, class F>
  static void for_output(const void* recurrence, int index, Sums* sums, F f) {
    for_outputs(*static_cast<const R*>(recurrence), [&](const auto& out) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      using kept = std::conditional_t<std::is_const_v<Sums>, const wide, wide>;
      if (index-- == 0) f(out, reinterpret_cast<kept*>(sums));
    });
  }
  static void write_sums(const void* recurrence, int index, const std::byte* sums,
                         const scanrec::strides& strides, const region& box) {
    for_output(recurrence, index, sums, [&](const auto& out, const auto* typed) {
      detail::write_sums(out, typed, strides, box);
    });
  }
  static void add_to_totals(const void* recurrence, int index, const std::byte* sums,
                            const scanrec::strides& strides, const region& box, std::byte* totals,
                            const scanrec::strides& total_strides) {
    for_output(recurrence, index, sums, [&](const auto& out, const auto* typed) {
      using wide = std::remove_pointer_t<decltype(out.sums.data)>;
      detail::add_to_totals(out, typed, strides, box, as<wide>(totals), total_strides);
    });
  }

  static constexpr kernel_table table{
      kernel::lanes, begin,         reduce,       run,     run_and_reduce,
      end,           store_carries, take_carries, advance, advance_from_state,
      write_sums,    add_to_totals};
};

}  // namespace scanrec::detail::inline SCANREC_ABI
