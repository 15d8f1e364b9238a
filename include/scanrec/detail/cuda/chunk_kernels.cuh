// SPDX-License-Identifier: BSD-3-Clause
// The two kernels of triangular_matmul. One computes the maps of chunks (panel_steps.cuh). The
// other computes all states and outputs once the states between chunks are known. A thread block
// processes one panel at a time. Chunks and panels are defined in chunk_partition.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cuda/chunk_partition.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_sums.cuh>
#include <scanrec/detail/cuda/panel_steps.cuh>
#include <scanrec/detail/cuda/triangle.cuh>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/steps.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Computes the maps of chunks, and stores the state before the first step of each sequence.
template <class R>
struct reduce_chunks : panel_steps<R> {
  using base = panel_steps<R>;
  using base::partition, base::chunks, base::columns, base::threads;
  using typename base::block_map, typename base::carry, typename base::matrix,
      typename base::position, typename base::wide_value;
  static constexpr int blocks_together = sizeof(typename base::scalar) <= 8 ? 2 : 1;
  static constexpr bool synchronises = true;
  static constexpr std::int64_t partials = matrix::reduce_bytes;
  static constexpr std::int64_t shared_bytes =
      std::max(base::block_maps_bytes, partials + shared_room(threads, sizeof(carry)));

  R recurrence;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t stacks = partition.lanes.threads, block = device::block_index();
    for_panels(recurrence, partition, partition.stack(block % stacks), block / stacks,
               [&](const R& row, const R& here, const panel_position& at) {
                 if (at.chunk == 0) keep_first_state(row, at);
                 if (partition.sharing == shared_factor::nowhere)
                   reduce_columns(here, at);
                 else
                   reduce_panel(here, at);
                 device::synchronise_block();
               });
  }

 private:
  SCANREC_DEVICE void keep_first_state(const R& row, const panel_position& at) const {
    if (base::own_block() != 0 || (partition.in_time() && base::own_column() != 0)) return;
    const std::int64_t c = partition.channel_at(at, base::own_column());
    if (c >= partition.lanes.all.channel) return;
    simd::store_one(
        chunks.first_states + partition.lane_of(at.g, at.b, c),
        simd::to_wide<carry>(row.template begin<typename base::scalar>(position{0, c})));
  }
  SCANREC_DEVICE void write(const panel_position& at, carry product, carry offset,
                            bool reset) const {
    const std::int64_t i = base::map_index(at, base::own_column());
    simd::store_one(chunks.products + i, product);
    simd::store_one(chunks.offsets + i, offset);
    if (chunks.resets) chunks.resets[i] = reset;
  }
  SCANREC_DEVICE void reduce_columns(const R& here, const panel_position& at) const {
    base::store_block(base::compose_block(here, at));
    device::synchronise_block();
    if (base::own_block() != 0 || !partition.there(at, 0, base::own_column())) return;
    block_map all = base::block_of(0);
    for (int b = 1; b < chunk_blocks; ++b) {
      const block_map m = base::block_of(b);
      all = m.reset ? m : block_map{combine(all.all, m.all), all.reset};
    }
    write(at, all.all.a, all.all.u, all.reset);
  }
  SCANREC_DEVICE void reduce_panel(const R& here, const panel_position& at) const {
    base::load_panel(here, at);
    const device::shared_array<carry> sums(partials);
    // Inputs before the last reset are skipped instead of multiplied by zero, because they may be
    // NaN or infinite.
    const int from = matrix::start_of(chunk_steps - 1);
    carry sum = simd::constant<carry>(0);
    for (int k = 0; k < chunk_block; ++k) {
      const int r = base::own_block() * chunk_block + k;
      if (r >= from)
        sum = simd::fma(matrix::weight(r),
                        simd::to_wide<carry>(matrix::load(r, base::own_column())), sum);
    }
    sums.store(device::thread_index(), sum);
    device::synchronise_block();
    if (base::own_block() != 0 || !partition.there(at, 0, base::own_column())) return;
    for (int b = 1; b < chunk_blocks; ++b) sum = sum + sums.load(b * columns + base::own_column());
    bool reset = from > 0;
    if (here.resets.present()) reset = reset || base::map_at(here, base::site(at, 0, 0)).reset;
    write(at, matrix::product(), sum, reset);
  }
};

/// Computes the states and outputs of all steps from the states between chunks.
template <class R, class Precision>
struct apply_chunks : panel_steps<R> {
  using base = panel_steps<R>;
  using base::partition, base::chunks, base::columns, base::threads;
  using typename base::block_map, typename base::carry, typename base::matrix, typename base::maps,
      typename base::position, typename base::scalar, typename base::wide_value;
  static constexpr int blocks_together = sizeof(typename base::scalar) <= 8 ? 2 : 1;
  static constexpr bool synchronises = true;
  static constexpr std::int64_t product_bytes = matrix::template product_bytes<Precision>,
                                incoming = std::max(product_bytes, base::block_maps_bytes),
                                verdicts = incoming + shared_room(columns, sizeof(carry));
  static constexpr std::int64_t shared_bytes = verdicts + shared_room(threads, sizeof(int));
  using running_sums = typename R::template sums<scalar>;

  R recurrence;
  bool sums_over_time = false;  // whether any output has accumulators per lane (lane_plan.cuh)

  SCANREC_DEVICE void operator()() const {
    const std::int64_t stacks = partition.lanes.threads, block = device::block_index();
    const region stack = partition.stack(block % stacks);
    const std::int64_t panel = block / stacks;
    if (partition.sums_by_step) {
      for_own_steps(stack, panel, [&](const region& own) { clear_step_sums(recurrence, own); });
      device::synchronise_block();
    }
    for_panels(recurrence, partition, stack, panel,
               [&](const R& row, const R& here, const panel_position& at) {
                 carry_in(row, at);
                 if (partition.sharing == shared_factor::nowhere)
                   run_columns(here, at);
                 else
                   multiply_panel(here, at);
                 device::synchronise_block();
                 finish(row, here, at);
                 device::synchronise_block();
               });
    if (partition.sums_by_step)
      for_own_steps(stack, panel, [&](const region& own) { write_step_sums(recurrence, own); });
  }

 private:
  template <class F>
  SCANREC_DEVICE void for_own_steps(const region& stack, std::int64_t panel, F f) const {
    const panel_position at{0, 0, 0, panel * (partition.in_time() ? columns : 1)};
    const std::int64_t end = partition.end_step(at);
    for (std::int64_t t = partition.first_step(at) + device::thread_index(); t < end;
         t += threads) {
      region own = stack;
      own.begin.time = t, own.end.time = t + 1;
      f(own);
    }
  }
  // Loads the state before the first step of each column to shared memory.
  SCANREC_DEVICE void carry_in(const R& row, const panel_position& at) const {
    if (base::own_block() == 0 && partition.there(at, 0, base::own_column())) {
      const std::int64_t c = partition.channel_at(at, base::own_column());
      carry x;
      if (partition.chunks == 1)
        x = simd::to_wide<carry>(row.template begin<scalar>(position{0, c}));
      else if (partition.time_at(at, 0, base::own_column()) == 0)
        x = simd::load_one<carry>(chunks.first_states + partition.lane_of(at.g, at.b, c));
      else
        x = simd::load_one<carry>(chunks.offsets + base::map_index(at, base::own_column()) -
                                  partition.lane_count());
      device::shared_array<carry>(incoming).store(base::own_column(), x);
    }
    device::synchronise_block();
  }
  SCANREC_DEVICE static carry state_in(int column) {
    return device::shared_array<carry>(incoming).load(column);
  }

  // Computes states by a product with the triangular matrix.
  SCANREC_DEVICE void multiply_panel(const R& here, const panel_position& at) const {
    base::load_panel(here, at);
    const int column = base::own_column();
    if (base::own_block() == 0 && partition.there(at, 0, column)) {
      bool reset = false;
      if (here.resets.present()) reset = base::map_at(here, base::site(at, 0, 0)).reset;
      if (!reset)
        matrix::store(0, column,
                      simd::fma(matrix::factor(0), simd::from_wide<scalar>(state_in(column)),
                                matrix::load(0, column)));
    }
    device::synchronise_block();
    bool nonfinite = false;
    if (matrix::template apply<Precision>(nonfinite)) run_nonfinite(here, at, nonfinite);
  }
  // Computes states in columns with factors of their own. Each thread has a block of 16 steps of a
  // column. It first applies the maps of the column's earlier blocks in order, and then computes
  // the states of its own steps.
  SCANREC_DEVICE void run_columns(const R& here, const panel_position& at) const {
    const block_map own = base::compose_block(here, at);
    base::store_block(own);
    device::synchronise_block();
    const int column = base::own_column();
    bool nonfinite = false;
    carry x = simd::constant<carry>(0);
    if (partition.there(at, 0, column)) {
      x = state_in(column);
      nonfinite = !maps::finite(own.all, x);
      for (int b = 0; b < base::own_block(); ++b) {
        const block_map m = base::block_of(b);
        x = m.reset ? m.all.u : m.all.act(x);
      }
    }
    const bool any_nonfinite = device::any_of_block(nonfinite);
    scalar state = maps::template state_of<scalar>(x);
    for (int k = 0; k < chunk_block; ++k) {
      const int r = base::own_block() * chunk_block + k;
      if (!partition.there(at, r, column)) break;
      state = step_from(here, base::site(at, r, column), state);
      matrix::store(r, column, state);
    }
    if (any_nonfinite) run_nonfinite(here, at, nonfinite);
  }
  SCANREC_DEVICE static scalar step_from(const R& here, const position& p, const scalar& x) {
    return here.next(p, here.template load<scalar>(p), x);
  }
  // If `nonfinite` is true in any thread of a column, the first thread of this column computes its
  // states step by step.
  SCANREC_DEVICE void run_nonfinite(const R& here, const panel_position& at, bool nonfinite) const {
    const device::shared_array<int> verdict(verdicts);
    verdict.store(device::thread_index(), nonfinite ? 1 : 0);
    device::synchronise_block();
    const int column = base::own_column();
    if (base::own_block() != 0 || !partition.there(at, 0, column)) return;
    for (int b = 0; b < chunk_blocks; ++b)
      nonfinite = nonfinite || verdict.load(b * columns + column) != 0;
    if (!nonfinite) return;
    scalar x = maps::template state_of<scalar>(state_in(column));
    for (int r = 0; r < chunk_steps && partition.there(at, r, column); ++r) {
      x = step_from(here, base::site(at, r, column), x);
      matrix::store(r, column, x);
    }
  }

  // Computes the outputs of every step from the state before it.
  SCANREC_DEVICE void finish(const R& row, const R& here, const panel_position& at) const {
    const int thread = device::thread_index();
    if (partition.in_time()) {
      running_sums running{};
      const position tile{at.chunk / columns * threads + thread, at.c};
      if (sums_over_time) clear_lane_sums(row, tile);
      base::for_sites([&](int r, int column) { take(here, at, r, column, tile, running); });
      here.flush(tile, running);
    } else if (partition.sums_by_step) {
      // Each of the first 128 threads has one step of every column.
      for (int column = 0; column < columns && thread < chunk_steps; ++column)
        take_column(row, here, at, column, at.chunk * chunk_steps + thread, thread, chunk_steps);
    } else if (partition.steps_side_by_side && !sums_over_time) {
      running_sums none{};
      base::for_sites([&](int r, int column) { take(here, at, r, column, position{}, none); });
    } else {
      take_column(row, here, at, base::own_column(), at.chunk * chunk_blocks + base::own_block(),
                  base::own_block(), chunk_blocks);
    }
    if (partition.steps > 0) return;
    // Without steps, the final states are the initial ones.
    device::synchronise_block();
    const std::int64_t c = partition.channel_at(at, base::own_column());
    if (base::own_block() == 0 && c < partition.lanes.all.channel)
      here.end(position{0, c}, row.template begin<scalar>(position{0, c}));
  }
  // Computes the outputs of steps `first`, `first + apart`, ... of a column. Sums over time go to
  // accumulator `tile_number` of the column's sequence.
  SCANREC_DEVICE void take_column(const R& row, const R& here, const panel_position& at, int column,
                                  std::int64_t tile_number, int first, int apart) const {
    const std::int64_t c = partition.channel_at(at, column);
    if (c >= partition.lanes.all.channel) return;
    const position tile{tile_number, c};
    running_sums running{};
    if (sums_over_time) clear_lane_sums(row, tile);
    for (int r = first; r < chunk_steps; r += apart) take(here, at, r, column, tile, running);
    here.flush(tile, running);
  }
  SCANREC_DEVICE void take(const R& here, const panel_position& at, int r, int column,
                           const position& tile, running_sums& running) const {
    if (!partition.there(at, r, column)) return;
    const position p = base::site(at, r, column);
    const scalar before =
        r == 0 ? maps::template state_of<scalar>(state_in(column)) : matrix::load(r - 1, column);
    const scalar after =
        scanrec::detail::take_step(here, p, here.template load<scalar>(p), before, running);
    if (p.time == partition.steps - 1) here.end(position{tile.time, p.channel}, after);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
