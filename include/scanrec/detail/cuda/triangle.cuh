// SPDX-License-Identifier: BSD-3-Clause
// The lower triangular matrix L[i][j] = factor[j + 1] ... factor[i] of a chunk of 128 steps, as a
// block of threads makes it, and its product with the columns of a panel.
//
// L is never applied above its diagonal, not even as zeros: the 16 x 16 tiles on the diagonal are
// solved by substitution, and only those strictly below it are products. Nor are columns with
// something that is not finite: those are left to the caller. So nothing leaves its column, moves
// backwards in time, or passes a reset.
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

/// Bytes of shared memory, up to where the next array may begin.
constexpr std::int64_t shared_room(std::int64_t count, std::int64_t element_bytes) {
  return (count * element_bytes + 31) / 32 * 32;
}

/// A panel of inputs, and what the triangle over its rows is made of. T is a compute type.
template <class T>
class triangle {
 public:
  using scalar = simd::lane_t<T, 1>;
  using wide = simd::lane_t<wide_t<T>, 1>;
  static constexpr int columns = panel_columns(sizeof(T));
  /// Elements from a row to the next: more than a row has, for the banks; of floats so many that
  /// tiles for matrix units begin at multiples of 32 bytes.
  static constexpr int row = columns + (sizeof(T) == 4 ? 8 : 2);
  /// Of a block: as many as there are columns of diagonal tiles.
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
  /// Bytes of shared memory for forming maps of chunks, and for products.
  static constexpr std::int64_t reduce_bytes = slab_first;
  template <class Precision>
  static constexpr std::int64_t product_bytes = halves_first +
                                                (std::is_same_v<Precision, precision::bf16>
                                                     ? shared_room(chunk_steps * row, 2)
                                                     : 0);
  static_assert(halves_first + chunk_steps * row * 2 + 4096 <= most_shared_bytes,
                "scanrec: panels fit GPUs that have no more shared memory than that");

  /// The numbers of the panel: inputs, later states.
  SCANREC_DEVICE static device::shared_array<scalar> panel() {
    return device::shared_array<scalar>(panel_first);
  }
  SCANREC_DEVICE static scalar load(int r, int column) { return panel().load(r * row + column); }
  SCANREC_DEVICE static void store(int r, int column, const scalar& x) {
    panel().store(r * row + column, x);
  }
  /// The factor of a step, to be set before build().
  SCANREC_DEVICE static scalar factor(int r) { return factors().load(r); }
  SCANREC_DEVICE static void set_step(int r, const scalar& factor_of_step, bool reset) {
    factors().store(r, factor_of_step);
    starts().store(r, reset ? 1 : 0);
  }
  /// The first step of what a reset has not cut off a step.
  SCANREC_DEVICE static int start_of(int r) { return starts().load(r); }

  /// For all threads of the block, which have set all steps. Products are formed in the wide type.
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
  /// What an input at step `r` is multiplied with in the state after the last step.
  SCANREC_DEVICE static wide weight(int r) {
    return simd::mul(tails().load(r),
                     between().load(r / chunk_block * (chunk_blocks + 1) + chunk_blocks));
  }

  /// Turns the columns of inputs into columns of states; for all threads of the block, each of
  /// which writes 16 rows of a column. `nonfinite` says whether a column is left to the caller,
  /// which then writes it: whether any thread has found something that is not finite there.
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
      static_assert(std::is_same_v<scalar, float>,
                    "scanrec: matrix units multiply floats; precision::full takes every type");
      multiply_tiles<Precision>(sums, any_nonfinite);
    } else {
      multiply(sums);
    }
    // From nothing before the tile; what comes from there has been added up.
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
  // Of every step the product of the factors of its tile up to it, and of those after it; of every
  // two tiles the product of the tiles between them.
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
  // Whether a number is finite, and will be when it is rounded for the matrix units.
  template <class Precision>
  SCANREC_DEVICE static bool multiplies(const scalar& x) {
    if constexpr (Precision::on_matrix_units)
      return finite(x * 1.0078125f);
    else
      return finite(x);
  }
  // L[i][j], of different tiles.
  SCANREC_DEVICE static scalar element(int i, int j) {
    if (start_of(i) > j) return simd::constant<scalar>(0);
    const wide gap = between().load(j / chunk_block * (chunk_blocks + 1) + i / chunk_block);
    return simd::from_wide<scalar>(simd::mul(simd::mul(tails().load(j), gap), heads().load(i)));
  }
  // The tiles of L below one of its diagonal tiles.
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

  // A warp takes all tiles of columns for its 16 rows.
  template <class Precision>
  SCANREC_DEVICE static void multiply_tiles(scalar* sums, bool any_nonfinite) {
    using tile_sum = device::tile_sum<Precision>;
    using stored = typename tile_sum::stored;
    constexpr int across = columns / chunk_block;
    const int thread = device::thread_index(), own = thread / device::warp_size;
    const device::shared_array<stored> slab(slab_first);
    constexpr bool copies = !std::is_same_v<stored, scalar>;
    const device::shared_array<stored> right(copies ? halves_first : panel_first);
    // What is not finite is not multiplied: a zero of L would make it NaN.
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
