// SPDX-License-Identifier: BSD-3-Clause
// The kernel of look_back. A block processes one tile, or all tiles of its channels in turn.
//
// The block reads the steps of its tile, composes their maps (functions from the state before to
// the state after), and sends the map of the tile to later tiles. It finds the state before its
// tile from the messages of earlier tiles (tiles_before.cuh). Then it sends the state after its
// tile and computes its outputs. A block that processes tiles in turn sends nothing, because it
// keeps the state in shared memory.
//
// If a composed map is not finite, or gives a state that is not finite in the compute type, the
// leading thread of the channel (that of its first segment) computes the channel's steps in the
// tile one by one. This choice depends only on the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_loop.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/cuda/staging.cuh>
#include <scanrec/detail/cuda/tile_maps.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>
#include <scanrec/detail/cuda/tile_position.cuh>
#include <scanrec/detail/cuda/tile_states.cuh>
#include <scanrec/detail/cuda/tile_sums.cuh>
#include <scanrec/detail/cuda/tiles_before.cuh>
#include <scanrec/detail/cuda/whole_rows.cuh>
#include <scanrec/detail/maps/element_maps.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// How a block gets its tiles: it draws a ticket for one tile, or it processes all tiles of its
/// channels in turn. run_planned (look_back.cuh) chooses.
enum class tile_order { by_ticket, in_turn };

/// The kernel. `Assume` (position.hpp) holds for all steps except those whose neighbour lies
/// outside the sequence.
template <class R, recurrence::assume Assume, tile_order Order = tile_order::by_ticket>
struct run_tiles {
  static constexpr int threads = tile_partition::threads;
  // Adjoints of complex numbers and of cells need registers for many addresses and wide maps.
  static constexpr bool wide_maps = sizeof(typename scanrec::detail::element_maps<R>::map) > 16;
  static constexpr bool most_registers =
      scanrec::detail::recomputes<R> || (scanrec::detail::sequences_of<R> > 4 && wide_maps);
  static constexpr bool more_registers = wide_maps || Assume != recurrence::assume::plain;
  static constexpr int blocks_together = most_registers ? 2 : more_registers ? 3 : 4;
  static constexpr bool synchronises = true;
  static constexpr int segment_steps = segment_steps_of(
      sizeof(scanrec::detail::step_of<R>), sizeof(typename scanrec::detail::element_maps<R>::map));
  static constexpr int warps = threads / device::warp_size;

  using scalar = simd::lane_t<typename R::value, 1>;
  using lane = typename R::template state_of<scalar>;
  using position = recurrence::position<recurrence::lane_axis::channel>;
  using inner_position = recurrence::position<recurrence::lane_axis::channel, Assume>;
  using step = scanrec::detail::step_of<R>;
  using maps = scanrec::detail::element_maps<R>;
  using map = typename maps::map;
  using carry = typename maps::carry;

  R recurrence;
  operator_copy<R> copied_operator;
  tile_partition partition;
  workspace_header* header = nullptr;
  device::word* messages = nullptr;
  sum_turns<R> turns{};
  tile_stage<R, segment_steps> stage;
  whole_rows<R, segment_steps> rows;
  column_sums<R, scanrec::detail::may_sum<R> && Assume != recurrence::assume::plain> columns{};
  std::int64_t terms_bytes = 0;

  // Byte offsets of the parts of shared memory, in this order: the drawn tile; maps of warps;
  // results of compose_segments; for each channel, the state before the tile; for each channel, a
  // flag for values that are not finite; ballots of warps (tiles_before.cuh), reused later for such
  // a flag per thread; received states (or, if tiles run in turn, the states for the next tile);
  // sums; received maps; staged arrays; recomputed states; terms of sums.
  static constexpr std::int64_t aligned(std::size_t bytes) {
    return static_cast<std::int64_t>((bytes + 15) / 16 * 16);
  }
  static constexpr std::int64_t warp_maps = aligned(sizeof(drawn_tile)),
                                composed_maps = warp_maps + aligned(threads * sizeof(map)),
                                incoming = composed_maps + aligned(threads * sizeof(map)),
                                nonfinite_columns =
                                    incoming + aligned(device::warp_size * sizeof(carry)),
                                kinds =
                                    nonfinite_columns + aligned(device::warp_size * sizeof(int)),
                                seen_states = kinds + aligned(threads * sizeof(seen)),
                                sum_views = seen_states + aligned(threads * sizeof(carry));
  using thread_sums_of_carry =
      thread_sums<R, typename widest_sum<carry, scanrec::detail::may_sum<R>>::type,
                  Assume != recurrence::assume::plain>;
  // Tiles that are processed in turn receive no maps.
  static constexpr std::int64_t seen_maps = sum_views + aligned(static_cast<std::size_t>(
                                                            thread_sums_of_carry::shared_bytes)),
                                staged = seen_maps + (Order == tile_order::in_turn
                                                          ? 0
                                                          : aligned(threads * sizeof(map)));
  static_assert(staged <= bytes_of_maps(sizeof(map), sizeof(carry)));
  using states = tile_states<R>;
  [[nodiscard]] std::int64_t shared_bytes() const { return columns.first_byte + terms_bytes; }

  SCANREC_DEVICE void operator()() const {
    if constexpr (Order == tile_order::by_ticket) {
      take_tile(take_ticket(header, partition));
    } else {
      const device::shared_array<drawn_tile> head(0);
      if (device::thread_index() == 0)
        head.store(0, tile_of(partition, 0, static_cast<std::uint32_t>(device::block_index())));
      device::synchronise_block();
      if (in_rows(0)) begin_rows(position_in(partition, head.load(0)));
      for (std::uint32_t tile = 0; tile < partition.tiles; ++tile) {
        if (in_rows(tile)) device::wait_for_copies();
        device::synchronise_block();  // the next tile reuses shared memory
        drawn_tile own = head.load(0);
        own.tile = tile;
        take_tile(position_in(partition, own));
      }
    }
  }

 private:
  SCANREC_DEVICE void take_tile(const tile_position& at) const {
    step now[segment_steps];
    map own{};
    const auto algebra = scanrec::detail::algebra_of(copied_operator.in(recurrence));
    // Messages are loaded early to overlap latencies. If steps are staged, this would not pay.
    typename tiles_before<R>::received early;
    if constexpr (Order == tile_order::by_ticket)
      if (at.tile > 0 && stage.which.reads == 0) before_it().load(at, early);
    if (!in_rows(at.tile)) stage.load(at_row(at), partition, at, staged);
    states::compute(at_row(at), partition, at, staged + stage.which.bytes);
    load_segment(at, algebra, now, own);
    compose_segments(partition, at, algebra, own, {warp_maps, composed_maps});
    // All threads have their steps in registers, so the next tile's inputs may replace this tile's.
    if (in_rows(at.tile + 1)) {
      drawn_tile own = device::shared_array<drawn_tile>(0).load(0);
      own.tile = static_cast<std::uint32_t>(at.tile) + 1;
      begin_rows(position_in(partition, own));
    }
    const device::shared_array<map> composed(composed_maps);
    const int thread = device::thread_index();
    const bool leads = at.segment == 0 && at.there;  // whether the thread sends for its channel

    const tiles_before<R> others = before_it();
    const bool follows = at.tile + 1 < partition.tiles, is_first = at.tile == 0;
    typename tiles_before<R>::found before;
    if (is_first && leads) before.state = first_state(at);
    if constexpr (Order == tile_order::in_turn) {
      if (!is_first && leads) before.state = device::shared_array<carry>(seen_states).load(thread);
    } else {
      if (leads && follows && is_first)
        others.boundary_state(at, 0).send(before.state, call_number());
      if (leads && follows && !others.ends_span(at))
        others.tile_map(at, at.tile).send(composed.load(thread), call_number());
      if (!is_first) before = others.look(at, algebra, leads, follows, early);
    }
    states::order_writes();
    bool nonfinite = at.count > 0 && at.segment > 0 && !finite(composed.load(thread));
    bool unknown = false;  // whether the state after the tile requires running its steps
    if (leads) {
      const carry x_in = before.state;
      device::shared_array<carry>(incoming).store(at.column, x_in);
      const bool good = partition.steps == 0 || finite_after(composed.load(thread), x_in);
      nonfinite = nonfinite || !good;
      unknown = follows && !good && !before.knows_next;
      if (follows && !unknown)
        pass(at, before.knows_next ? before.next_boundary
                                   : advance(is_first, composed.load(thread), x_in));
    }
    turns.begin(recurrence, partition, at);
    columns.clear(recurrence, partition, at);
    nonfinite = device::any_of_block(nonfinite) && column_is_nonfinite(at, nonfinite);

    run_segment(at, now, nonfinite, unknown);
    if (in_rows(at.tile)) {
      device::synchronise_block();
      if (device::shared_array<int>(nonfinite_columns).load(0) == 0)
        rows.store(at_row(at), partition, at, staged);
    } else if (stage.which.writes != 0) {
      const device::shared_array<int> is_nonfinite(nonfinite_columns);
      device::synchronise_block();
      stage.store(at_row(at), partition, at, staged,
                  [&](int column) SCANREC_LAMBDA { return is_nonfinite.load(column) != 0; });
    }
    turns.end(recurrence, partition, at);
    columns.gather(recurrence, partition, at);
  }
  // Whether a tile passes through shared memory as whole rows (whole_rows.cuh).
  SCANREC_DEVICE bool in_rows(std::int64_t tile) const {
    return Order == tile_order::in_turn && rows.have(partition, tile);
  }
  SCANREC_DEVICE void begin_rows(const tile_position& at) const {
    if constexpr (Order == tile_order::in_turn) rows.begin_load(at_row(at), partition, at, staged);
  }
  // Passes the state after a tile to the next tile: by a message, or through shared memory if this
  // block also processes the next tile.
  SCANREC_DEVICE void pass(const tile_position& at, const carry& x) const {
    if constexpr (Order == tile_order::by_ticket)
      before_it().state_after(at).send(x, call_number());
    else
      device::shared_array<carry>(seen_states).store(device::thread_index(), x);
  }
  // The recurrence at the lane of the thread. It is constructed at each use, because keeping it
  // would take registers that the steps need.
  SCANREC_DEVICE R at_lane(tile_position at) const {
    device::pin(at.c);
    return scanrec::detail::standing_at(at_row(at), 0, at.there ? at.c : 0);
  }
  SCANREC_DEVICE R at_row(tile_position at) const {
    device::pin(at.g), device::pin(at.b);
    return scanrec::detail::bound(copied_operator.in(recurrence), at.g, at.b);
  }
  SCANREC_DEVICE tiles_before<R> before_it() const {
    return {recurrence,
            copied_operator,
            partition,
            messages,
            {kinds, seen_maps, seen_states, warp_maps, composed_maps}};
  }
  SCANREC_DEVICE carry first_state(const tile_position& at) const {
    return maps::carry_of(at_lane(at).template begin<scalar>(position{0, at.c}));
  }
  SCANREC_DEVICE carry advance(bool first, const map& m, const carry& x) const {
    return maps::advance(copied_operator.in(recurrence), first, m, x);
  }
  SCANREC_DEVICE static bool finite_after(const map& m, const carry& x) {
    return maps::template finite_after<lane>(m, x);
  }
  // Loads the steps of a thread and composes their maps.
  template <class Algebra>
  SCANREC_DEVICE void load_segment(const tile_position& at, const Algebra& algebra, step* now,
                                   map& own) const {
    R here = at_lane(at);
    const bool whole =
        at.count == segment_steps && !at_edge(at.first) && !at_edge(at.first + segment_steps - 1);
    if constexpr (Order == tile_order::in_turn)
      if (in_rows(at.tile)) {
        if (whole) {
          typename whole_rows<R, segment_steps>::registers values;
          rows.take(here, staged, values);
          return load_whole<true>(here, at, algebra, now, own);
        }
        return load_checked(here, at, algebra, now, own);
      }
    if constexpr (Assume == recurrence::assume::plain)
      if (whole && stage.which.all_reads) {
        stage.template redirect_reads<true>(here, partition, at, staged);
        return load_whole<false>(here, at, algebra, now, own);
      }
    stage.redirect_reads(here, partition, at, staged);
    states::redirect(here, partition, at, at.count, staged + stage.which.bytes);
    if (whole) return load_whole<false>(here, at, algebra, now, own);
    load_checked(here, at, algebra, now, own);
  }
  template <class Algebra>
  SCANREC_DEVICE void load_checked(const R& here, const tile_position& at, const Algebra& algebra,
                                   step* now, map& own) const {
    SCANREC_UNROLL
    for (int k = 0; k < segment_steps; ++k)
      if (k < at.count) {
        const inner_position p = inner_position_of(at, k);
        // A step at the edge lacks a neighbour, so its position assumes nothing.
        now[k] = at_edge(p.time) ? here.template load<scalar>(position_of(at, p.time))
                                 : here.template load<scalar>(p);
        const map m = maps::widened(here.map(p, now[k]));
        own = k == 0 ? m : algebra.compose(own, m);
      }
  }
  // Like load_checked, for a complete segment whose neighbours exist. All loads precede all uses.
  template <bool InRegisters, class Algebra>
  SCANREC_DEVICE SCANREC_INLINE static void load_whole(const R& here, const tile_position& at,
                                                       const Algebra& algebra, step* now,
                                                       map& own) {
    SCANREC_UNROLL
    for (int k = 0; k < segment_steps; ++k)
      now[k] = here.template load<scalar>(inner_position_of<InRegisters>(at, k));
    SCANREC_UNROLL
    for (int k = 0; k < segment_steps; ++k) {
      const map m = maps::widened(here.map(inner_position_of<InRegisters>(at, k), now[k]));
      own = k == 0 ? m : algebra.compose(own, m);
    }
  }
  // Whether the neighbour of a step lies outside the sequence.
  SCANREC_DEVICE bool at_edge(std::int64_t time) const {
    return (scanrec::detail::halo_of<R> > 0 && time == partition.steps - 1) ||
           (scanrec::detail::halo_of<R> < 0 && time == 0);
  }
  // The position of step k of the segment, in the arrays or in registers.
  template <bool InRegisters = false>
  SCANREC_DEVICE static inner_position inner_position_of(const tile_position& at, int k) {
    return {at.first + k, at.c, InRegisters ? k : at.first + k};
  }
  SCANREC_DEVICE static position position_of(const tile_position& at, std::int64_t time) {
    return {time, at.c, time};
  }
  SCANREC_DEVICE static bool finite(const map& m) {
    if constexpr (R::any_operator)
      return true;
    else
      return simd::all_zero(scanrec::detail::zero_if_finite(m));
  }

  // Whether any thread of the channel has found a value that is not finite.
  SCANREC_DEVICE bool column_is_nonfinite(const tile_position& at, bool nonfinite) const {
    const device::shared_array<seen> verdict(kinds);
    verdict.store(device::thread_index(), nonfinite ? seen::state : seen::nothing);
    device::synchronise_block();
    bool any = false;
    SCANREC_KEEP_LOOP
    for (int s = 0; s < partition.segments(); ++s)
      any = any || verdict.load(s * partition.width + at.column) == seen::state;
    return any;
  }

  // Whether arrays are plain, the thread's segment is complete, and all outputs are staged.
  SCANREC_DEVICE bool takes_staged(const tile_position& at) const {
    return Assume == recurrence::assume::plain && stage.which.all_writes &&
           at.count == segment_steps;
  }
  // Computes the steps of a thread. If a channel has values that are not finite, its leading thread
  // computes all steps that the channel has in the tile. Values that follow from the position of
  // the thread are recomputed, to save registers.
  SCANREC_DEVICE void run_segment(tile_position at, const step* now, bool nonfinite,
                                  bool unknown) const {
    device::pin(at.segment), device::pin(at.column), device::pin(at.count);
    thread_sums_of_carry sums;
    R here = at_lane(at);
    std::int64_t count = at.count;
    if (nonfinite) {
      const std::int64_t left = partition.steps - at.first, all = partition.tile_steps();
      count = at.segment > 0 || !at.there ? 0 : left < all ? left : all;
      states::redirect(here, partition, at, count, staged + stage.which.bytes);
    } else if (!in_rows(at.tile) && !takes_staged(at)) {
      stage.redirect_writes(here, at, staged);
    }
    columns.redirect(here, partition, at, count);
    if (at.segment == 0)
      device::shared_array<int>(nonfinite_columns).store(at.column, nonfinite ? 1 : 0);
    sums.redirect(here);
    typename R::template sums<scalar> running{};
    const bool takes = at.there && (at.count > 0 || at.segment == 0);
    if (takes && !(nonfinite && at.segment > 0)) {
      const carry x_in = device::shared_array<carry>(incoming).load(at.column);
      lane x = maps::template state_of<lane>(x_in);
      const std::int64_t last = at.first + count;
      if (nonfinite) {
        for (std::int64_t t = at.first; t < last; ++t) {
          const position p = position_of(at, t);
          x = scanrec::detail::take_step(here, p, here.template load<scalar>(p), x, running);
          if ((t + 1) % scanrec::detail::sum_steps == 0) here.flush(p, running);
        }
        if (unknown) pass(at, maps::carry_of(x));
      } else {
        if (at.segment > 0) {
          const map before = device::shared_array<map>(composed_maps).load(device::thread_index());
          x = maps::template state_of<lane>(advance(at.tile == 0, before, x_in));
        }
        const auto take_at = [&](const R& r, const inner_position& p, int k) SCANREC_LAMBDA {
          x = scanrec::detail::take_step(r, p, now[k], x, running);
        };
        const auto take = [&](const R& r, int k)
                              SCANREC_LAMBDA { take_at(r, inner_position_of(at, k), k); };
        if (in_rows(at.tile)) {
          if constexpr (Order == tile_order::in_turn) {
            typename whole_rows<R, segment_steps>::registers results;
            R there = here;
            rows.aim(there, results);
            SCANREC_UNROLL
            for (int k = 0; k < segment_steps; ++k)
              take_at(there, inner_position_of<true>(at, k), k);
            rows.put(there, staged, results);
          }
        } else if (takes_staged(at)) {
          R there = here;
          stage.template redirect_writes<true>(there, at, staged);
          SCANREC_UNROLL
          for (int k = 0; k < segment_steps; ++k) take(there, k);
        } else if (at.count == segment_steps) {
          SCANREC_UNROLL
          for (int k = 0; k < segment_steps; ++k) take(here, k);
        } else {
          SCANREC_UNROLL
          for (int k = 0; k < segment_steps; ++k)
            if (k < at.count) take(here, k);
        }
      }
      if constexpr (Assume != recurrence::assume::plain) here.flush(position_of(at, last), running);
      if (last == partition.steps && (at.count > 0 || at.tile + 1 == partition.tiles))
        here.end(position{partition.steps, at.c}, x);
    }
    sums.gather(recurrence, partition, at, sum_views);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
