// SPDX-License-Identifier: BSD-3-Clause
// The common part of the kernels of triangular_matmul: loads of panels, composition of the maps of
// blocks of 16 steps, and the layout of the maps of chunks. Panels and chunks are defined in
// chunk_partition.cuh. The map of some steps is the affine function from the state before them to
// the state after them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/chunk_partition.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/triangle.cuh>
#include <scanrec/detail/maps/element_maps.hpp>
#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/maps/map_planes.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The maps of chunks, in the wide type (wide_t), one per chunk and lane. A lane is one sequence: a
/// group, a batch row and a channel. The maps of one chunk are contiguous.
template <class Wide>
struct chunk_maps {
  Wide* products = nullptr;      // products of factors
  Wide* offsets = nullptr;       // states after chunks that begin with 0; later the actual states
  bool* resets = nullptr;        // whether a chunk has a reset; null: no resets
  Wide* first_states = nullptr;  // states before the first step, one per lane
};

/// The operations on a panel that both kernels share.
template <class R>
struct panel_steps {
  using value = typename R::value;
  using wide_value = wide_t<value>;
  using matrix = triangle<value>;
  using scalar = typename matrix::scalar;
  using maps = scanrec::detail::element_maps<R>;
  using map = typename maps::map;
  using carry = typename maps::carry;
  using position = recurrence::position<recurrence::lane_axis::channel>;
  static constexpr int threads = matrix::threads, columns = matrix::columns;

  chunk_partition partition;
  chunk_maps<wide_value> chunks;

  SCANREC_DEVICE static int own_column() { return device::thread_index() % columns; }
  SCANREC_DEVICE static int own_block() { return device::thread_index() / columns; }
  /// Calls f(row, column) for a thread's share of the elements of a panel.
  template <class F>
  SCANREC_DEVICE void for_sites(F f) const {
    for (int e = device::thread_index(); e < chunk_steps * columns; e += threads)
      if (partition.steps_side_by_side)
        f(e % chunk_steps, e / chunk_steps);
      else
        f(e / columns, e % columns);
  }
  SCANREC_DEVICE position site(const panel_position& at, int r, int column) const {
    const std::int64_t t = partition.time_at(at, r, column);
    return {t, partition.channel_at(at, column), t, partition.channel_at(at, column) - at.c};
  }
  /// The map of a step, and whether the step has a reset.
  struct reset_map {
    affine<scalar> map;
    bool reset;
  };
  SCANREC_DEVICE static reset_map map_at(const R& here, const position& p) {
    const auto read = here.template load<scalar>(p);
    bool reset = false;
    if (here.resets.present()) reset = !simd::all_zero(read.reset);
    return {here.map(p, read), reset};
  }

  /// Loads the inputs of a panel and the factors that its columns share, and builds the triangle.
  /// After the end of the sequence inputs are 0, and factors are 1 unless they are shared in time.
  SCANREC_DEVICE void load_panel(const R& here, const panel_position& at) const {
    const auto zero = simd::constant<scalar>(0);
    for_sites([&](int r, int column) {
      matrix::store(
          r, column,
          partition.there(at, r, column) ? map_at(here, site(at, r, column)).map.u : zero);
    });
    for (int r = device::thread_index(); r < chunk_steps; r += threads) {
      // Factors that are shared in time are loaded from the first step of the panel.
      const int from = partition.in_time() ? 0 : r;
      reset_map m{affine<scalar>::identity(), false};
      if (partition.there(at, from, 0)) m = map_at(here, site(at, from, 0));
      matrix::set_step(r, m.map.a, m.reset);
    }
    matrix::build(here.resets.present());
  }

  /// The map of a thread's 16 steps, for a column with its own factors, and whether any of these
  /// steps has a reset.
  struct block_map {
    map all;
    bool reset;
  };
  SCANREC_DEVICE block_map compose_block(const R& here, const panel_position& at) const {
    const scanrec::detail::map_algebra algebra;
    block_map own{map::identity(), false};
    for (int k = 0; k < chunk_block; ++k) {
      const int r = own_block() * chunk_block + k;
      if (!partition.there(at, r, own_column())) break;
      const reset_map m = map_at(here, site(at, r, own_column()));
      own = m.reset ? block_map{map::constant(simd::to_wide<carry>(m.map.u)), true}
                    : block_map{algebra.compose(own.all, maps::widened(m.map)), own.reset};
    }
    return own;
  }
  // Block maps use the shared memory of the panel.
  static constexpr std::int64_t block_resets_first = shared_room(threads, sizeof(map));
  static constexpr std::int64_t block_maps_bytes =
      block_resets_first + shared_room(threads, sizeof(int));
  SCANREC_DEVICE static void store_block(const block_map& own) {
    device::shared_array<map>(0).store(device::thread_index(), own.all);
    device::shared_array<int>(block_resets_first).store(device::thread_index(), own.reset ? 1 : 0);
  }
  SCANREC_DEVICE static block_map block_of(int b) {
    const int i = b * columns + own_column();
    return {device::shared_array<map>(0).load(i),
            device::shared_array<int>(block_resets_first).load(i) != 0};
  }

  /// The index of a column's map among the maps of chunks.
  SCANREC_DEVICE std::int64_t map_index(const panel_position& at, int column) const {
    const std::int64_t lane = partition.lane_of(at.g, at.b, partition.channel_at(at, column));
    return (at.chunk + (partition.in_time() ? column : 0)) * partition.lane_count() + lane;
  }
};

/// Calls f(row, here, position) for the panels of a stack (chunk_partition::stack), in order.
/// `panel` is their index along time. `row` is the recurrence at the batch row of a panel, and
/// `here` the recurrence at its first channel.
template <class R, class F>
SCANREC_DEVICE void for_panels(const R& r, const chunk_partition& partition, const region& stack,
                               std::int64_t panel, F f) {
  const std::int64_t chunk = panel * (partition.in_time() ? partition.columns : 1);
  for (std::int64_t g = stack.begin.group; g < stack.end.group; ++g)
    for (std::int64_t b = stack.begin.batch; b < stack.end.batch; ++b) {
      const R row = scanrec::detail::bound(r, g, b);
      for (std::int64_t c = stack.begin.channel; c < stack.end.channel;
           c += partition.channel_step())
        f(row, scanrec::detail::standing_at(row, 0, c), panel_position{g, b, c, chunk});
    }
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
