// SPDX-License-Identifier: BSD-3-Clause
// The lower triangular matrix L[i][j] = factor[j + 1] ... factor[i] of a chunk of 128 steps, built
// by a block of threads, and its product with the columns of a panel.
//
// Elements above the diagonal are never multiplied, not even as zeros. The 16 x 16 tiles on the
// diagonal are solved by substitution, and only the tiles strictly below it are multiplied. Columns
// that contain NaN or infinity are left to the caller. So NaN and infinity never leave their
// column, move backwards in time, or pass a reset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/chunk_partition.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/matrix_unit.cuh>
#include <scanrec/detail/cuda/precision.cuh>
#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/element.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Bytes of shared memory of an array, rounded up so that the next array is aligned.
constexpr std::int64_t shared_room(std::int64_t count, std::int64_t element_bytes) {
  return (count * element_bytes + 31) / 32 * 32;
}

/// A panel of inputs, and the factors of its steps, in shared memory. T is a compute type.
template <class T>
class triangle {
 public:
  using scalar = simd::lane_t<T, 1>;
  using wide = simd::lane_t<wide_t<T>, 1>;
  static constexpr int columns = panel_columns(sizeof(T));
  /// Length of a row of the panel, padded against bank conflicts. For floats, tiles for matrix
  /// units are also aligned to 32 bytes.
  static constexpr int row = columns + (sizeof(T) == 4 ? 8 : 2);
  /// Threads of a block: one for every 16 rows of every column of a panel.
  static constexpr int threads = columns * chunk_blocks;

 private:
  static constexpr int slab_row = chunk_block + (sizeof(T) == 4 ? 8 : 1);
  static constexpr std::int64_t panel_first = 0,
                                factors_first = shared_room(chunk_steps * row, sizeof(scalar)),
                                starts_first =
                                    factors_first + shared_room(chunk_steps, sizeof(scalar)),
                                heads_first = starts_first + shared_room(chunk_steps, sizeof(int)),
                                tails_first = heads_first + shared_room(chunk_steps, sizeof(wide)),
                                between_first =
                                    tails_first + shared_room(chunk_steps, sizeof(wide)),
                                slab_first =
                                    between_first +
                                    shared_room(chunk_blocks * (chunk_blocks + 1), sizeof(wide)),
                                halves_first = slab_first +
                                               shared_room(chunk_steps * slab_row, sizeof(scalar));

 public:
  /// Bytes of shared memory to compute maps of chunks, and to compute products.
  static constexpr std::int64_t reduce_bytes = slab_first;
  template <class Precision>
  static constexpr std::int64_t product_bytes = halves_first +
                                                (std::is_same_v<Precision, precision::bf16>
                                                     ? shared_room(chunk_steps * row, 2)
                                                     : 0);
  static_assert(halves_first + chunk_steps * row * 2 + 4096 <= most_shared_bytes,
                "scanrec: a panel must fit into most_shared_bytes, the shared memory of every GPU");

  /// The panel. It holds inputs until apply() replaces them by states.
  SCANREC_DEVICE static device::shared_array<scalar> panel() {
    return device::shared_array<scalar>(panel_first);
  }
  SCANREC_DEVICE static scalar load(int r, int column) { return panel().load(r * row + column); }
  SCANREC_DEVICE static void store(int r, int column, const scalar& x) {
    panel().store(r * row + column, x);
  }
  /// The factor of a step. All steps must be set before build().
  SCANREC_DEVICE static scalar factor(int r) { return factors().load(r); }
  SCANREC_DEVICE static void set_step(int r, const scalar& factor_of_step, bool reset) {
    factors().store(r, factor_of_step);
    starts().store(r, reset ? 1 : 0);
  }
  /// The step of the last reset at or before step r, or 0. Valid after build().
  SCANREC_DEVICE static int start_of(int r) { return starts().load(r); }

  /// Builds the products of factors, in the wide type (wide_t). All threads of the block call it,
  /// after all steps are set.
  SCANREC_DEVICE static void build(bool any_resets) {
    device::synchronise_block();
    const int thread = device::thread_index();
    int start = 0;
    if (thread < chunk_steps) {
      const int first = thread / chunk_block * chunk_block, last = first + chunk_block - 1;
      wide head = simd::to_wide<wide>(factor(first));
      for (int r = first + 1; r <= thread; ++r)
        head = simd::mul(head, simd::to_wide<wide>(factor(r)));
      wide tail = simd::constant<wide>(1);
      for (int r = thread + 1; r <= last; ++r)
        tail = simd::mul(tail, simd::to_wide<wide>(factor(r)));
      heads().store(thread, head), tails().store(thread, tail);
      if (any_resets)
        for (start = thread; start > 0 && starts().load(start) == 0;) --start;
    }
    device::synchronise_block();
    if (thread < chunk_steps) starts().store(thread, start);
    if (thread < chunk_blocks * (chunk_blocks + 1)) {
      const int from = thread / (chunk_blocks + 1), to = thread % (chunk_blocks + 1);
      wide product = simd::constant<wide>(1);
      for (int b = from + 1; b < to; ++b)
        product = simd::mul(product, heads().load(b * chunk_block + chunk_block - 1));
      between().store(thread, product);
    }
    device::synchronise_block();
  }

  /// The product of all factors.
  SCANREC_DEVICE static wide product() {
    return simd::mul(heads().load(chunk_block - 1), between().load(chunk_blocks));
  }
  /// The weight of the input of step r in the state after the last step.
  SCANREC_DEVICE static wide weight(int r) {
    return simd::mul(tails().load(r),
                     between().load(r / chunk_block * (chunk_blocks + 1) + chunk_blocks));
  }

  /// Replaces the columns of inputs by columns of states. All threads of the block call it; each
  /// writes 16 rows of a column. Returns whether any thread has found a value that is not finite.
  /// Sets `nonfinite` to whether this thread has found one. If so, the caller must compute the
  /// states of the column.
  template <class Precision>
  SCANREC_DEVICE static bool apply(bool& nonfinite) {
    const int column = device::thread_index() % columns, own = device::thread_index() / columns;
    scalar inputs[chunk_block], sums[chunk_block];
    nonfinite = false;
    SCANREC_UNROLL
    for (int k = 0; k < chunk_block; ++k) {
      inputs[k] = load(own * chunk_block + k, column);
      sums[k] = simd::constant<scalar>(0);
      nonfinite =
          nonfinite || !multiplies<Precision>(inputs[k]) || !finite(factor(own * chunk_block + k));
    }
    const bool any_nonfinite = device::any_of_block(nonfinite);
    if constexpr (Precision::on_matrix_units) {
      static_assert(
          std::is_same_v<scalar, float>,
          "scanrec: matrix units multiply floats only; precision::full supports every type");
      multiply_tiles<Precision>(sums, any_nonfinite);
    } else {
      multiply(sums);
    }
    // Substitution within the tile starts from zero, because `sums` contains the contribution of
    // earlier tiles.
    scalar x = inputs[0];
    SCANREC_UNROLL
    for (int k = 0; k < chunk_block; ++k) {
      const int r = own * chunk_block + k;
      if (k > 0) x = start_of(r) == r ? inputs[k] : simd::fma(factor(r), x, inputs[k]);
      store(r, column, sums[k] + x);
    }
    return any_nonfinite;
  }

 private:
  static_assert(chunk_blocks * (chunk_blocks + 1) <= threads && chunk_steps <= threads);
  SCANREC_DEVICE static device::shared_array<scalar> factors() {
    return device::shared_array<scalar>(factors_first);
  }
  SCANREC_DEVICE static device::shared_array<int> starts() {
    return device::shared_array<int>(starts_first);
  }
  // heads: per step, the product of its factor and the factors before it in its tile. tails: per
  // step, the product of the factors after it in its tile. between: per pair of tiles, the product
  // of all factors of the tiles between them.
  SCANREC_DEVICE static device::shared_array<wide> heads() {
    return device::shared_array<wide>(heads_first);
  }
  SCANREC_DEVICE static device::shared_array<wide> tails() {
    return device::shared_array<wide>(tails_first);
  }
  SCANREC_DEVICE static device::shared_array<wide> between() {
    return device::shared_array<wide>(between_first);
  }
  SCANREC_DEVICE static bool finite(const scalar& x) {
    return simd::all_zero(simd::zero_if_finite(x));
  }
  // Whether a number is finite, also after rounding for the matrix units.
  template <class Precision>
  SCANREC_DEVICE static bool multiplies(const scalar& x) {
    if constexpr (Precision::on_matrix_units)
      return finite(x * 1.0078125f);
    else
      return finite(x);
  }
  // L[i][j], for i and j in different tiles.
  SCANREC_DEVICE static scalar element(int i, int j) {
    if (start_of(i) > j) return simd::constant<scalar>(0);
    const wide gap = between().load(j / chunk_block * (chunk_blocks + 1) + i / chunk_block);
    return simd::from_wide<scalar>(simd::mul(simd::mul(tails().load(j), gap), heads().load(i)));
  }
  // Writes the tiles of L below one of its diagonal tiles to shared memory.
  template <class Stored>
  SCANREC_DEVICE static void build_slab(int diagonal) {
    const device::shared_array<Stored> slab(slab_first);
    const int first = (diagonal + 1) * chunk_block;
    for (int e = device::thread_index(); e < (chunk_steps - first) * chunk_block; e += threads) {
      const int i = first + e / chunk_block, k = e % chunk_block;
      const scalar x = element(i, diagonal * chunk_block + k);
      slab.store(i * slab_row + k, static_cast<Stored>(x));
    }
  }

  SCANREC_DEVICE static void multiply(scalar* sums) {
    const int column = device::thread_index() % columns, own = device::thread_index() / columns;
    const device::shared_array<scalar> slab(slab_first);
    for (int tile = 0; tile + 1 < chunk_blocks; ++tile) {
      build_slab<scalar>(tile);
      device::synchronise_block();
      if (own > tile)
        for (int k = 0; k < chunk_block; ++k) {
          const scalar u = load(tile * chunk_block + k, column);
          SCANREC_UNROLL
          for (int r = 0; r < chunk_block; ++r)
            sums[r] = simd::fma(slab.load((own * chunk_block + r) * slab_row + k), u, sums[r]);
        }
      device::synchronise_block();
    }
  }

  // A warp computes 16 rows of all columns.
  template <class Precision>
  SCANREC_DEVICE static void multiply_tiles(scalar* sums, bool any_nonfinite) {
    using tile_sum = device::tile_sum<Precision>;
    using stored = typename tile_sum::stored;
    constexpr int across = columns / chunk_block;
    const int thread = device::thread_index(), own = thread / device::warp_size;
    const device::shared_array<stored> slab(slab_first);
    constexpr bool copies = !std::is_same_v<stored, scalar>;
    const device::shared_array<stored> right(copies ? halves_first : panel_first);
    // Values that are not finite are replaced by zero, because a zero of L would turn them into
    // NaN.
    if (copies || any_nonfinite) {
      for (int e = thread; e < chunk_steps * columns; e += threads) {
        const int i = e / columns * row + e % columns;
        const scalar u = panel().load(i);
        right.store(i,
                    static_cast<stored>(multiplies<Precision>(u) ? u : simd::constant<scalar>(0)));
      }
      device::synchronise_block();
    }
    tile_sum tiles[across];
    for (int tile = 0; tile + 1 < chunk_blocks; ++tile) {
      build_slab<stored>(tile);
      device::synchronise_block();
      if (own > tile) {
        SCANREC_UNROLL
        for (int a = 0; a < across; ++a)
          tiles[a].add_product(slab, own * chunk_block * slab_row, slab_row, right,
                               tile * chunk_block * row + a * chunk_block, row);
      }
      device::synchronise_block();
    }
    SCANREC_UNROLL
    for (int a = 0; a < across; ++a)
      tiles[a].store(panel(), own * chunk_block * row + a * chunk_block, row);
    device::synchronise_block();
    SCANREC_UNROLL
    for (int k = 0; k < chunk_block; ++k)
      sums[k] = load(thread / columns * chunk_block + k, thread % columns);
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
