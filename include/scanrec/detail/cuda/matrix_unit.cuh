// SPDX-License-Identifier: BSD-3-Clause
// Products of 16 x 16 tiles on the matrix units of a GPU ("tensor cores"), computed by a warp.
// tests/cuda_on_host replaces this file and device.cuh by versions for CPUs.
#pragma once

#include <cuda_bf16.h>
#include <mma.h>

#include <algorithm>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/precision.cuh>
#include <scanrec/element.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace device {

/// Whether every GPU that this translation unit is compiled for multiplies TF32 and bfloat16 on
/// matrix units. Assumed if the compiler does not list the GPUs.
#if defined(__CUDA_ARCH_LIST__)
inline constexpr bool has_matrix_units = std::min({__CUDA_ARCH_LIST__}) >= 800;
#else
inline constexpr bool has_matrix_units = true;
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// A tile of sums in float, distributed over the threads of a warp. All threads of the warp call
/// the functions marked (*), with the same arguments.
///
/// The units truncate sums instead of rounding them. So they compute only the sums within one
/// product of tiles, and these products are added outside of the units.
template <class Precision>
class tile_sum {
  static constexpr bool halves = std::is_same_v<Precision, precision::bf16>;

 public:
  /// The type of the factors in shared memory.
  using stored = std::conditional_t<halves, bfloat16, float>;

  /// (*) Clears the sums.
  SCANREC_DEVICE tile_sum() { nvcuda::wmma::fill_fragment(sums_, 0.0f); }

  /// (*) Adds the product of two tiles that are stored row by row. Their first elements are aligned
  /// to 32 bytes. The distances between rows, `left_row` and `right_row`, are multiples of 16
  /// bytes.
  SCANREC_DEVICE void add_product(const shared_array<stored>& left, int first_left, int left_row,
                                  const shared_array<stored>& right, int first_right,
                                  int right_row) {
    using namespace nvcuda;
    decltype(sums_) product;
    wmma::fill_fragment(product, 0.0f);
    SCANREC_UNROLL
    for (int k = 0; k < 16; k += depth) {
      wmma::fragment<wmma::matrix_a, 16, 16, depth, number, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, 16, 16, depth, number, wmma::row_major> b;
      wmma::load_matrix_sync(a, pointer(left, first_left + k), left_row);
      wmma::load_matrix_sync(b, pointer(right, first_right + k * right_row), right_row);
      if constexpr (halves) {
        wmma::mma_sync(product, a, b, product);
      } else if constexpr (std::is_same_v<Precision, precision::tf32>) {
        for (float& x : a.x) x = to_tf32(x);
        for (float& x : b.x) x = to_tf32(x);
        wmma::mma_sync(product, a, b, product);
      } else {
        auto a_rest = a;
        auto b_rest = b;
        split(a.x, a_rest.x);
        split(b.x, b_rest.x);
        wmma::mma_sync(product, a_rest, b, product);
        wmma::mma_sync(product, a, b_rest, product);
        wmma::mma_sync(product, a, b, product);
      }
    }
    SCANREC_UNROLL
    for (int i = 0; i < sums_.num_elements; ++i) sums_.x[i] += product.x[i];
  }
  /// (*) Stores the sums row by row, aligned as for add_product.
  SCANREC_DEVICE void store(const shared_array<float>& to, int first, int row) const {
    nvcuda::wmma::store_matrix_sync(to.address(first), sums_, static_cast<unsigned>(row),
                                    nvcuda::wmma::mem_row_major);
  }

 private:
  static constexpr int depth = halves ? 16 : 8;
  using number = std::conditional_t<halves, __nv_bfloat16, nvcuda::wmma::precision::tf32>;

  SCANREC_DEVICE static auto pointer(const shared_array<stored>& from, int i) {
    if constexpr (halves)
      return reinterpret_cast<const __nv_bfloat16*>(from.address(i));
    else
      return static_cast<const float*>(from.address(i));
  }
  // The conversion leaves the lower 13 bits undefined, so they are cleared.
  SCANREC_DEVICE static float to_tf32(float x) {
    return __uint_as_float(__float_as_uint(nvcuda::wmma::__float_to_tf32(x)) & ~0x1fffu);
  }
  // Splits each number into a TF32 number and the remainder, rounded to TF32.
  template <int N>
  SCANREC_DEVICE static void split(float (&x)[N], float (&rest)[N]) {
    SCANREC_UNROLL
    for (int i = 0; i < N; ++i) {
      const float high = to_tf32(x[i]);
      rest[i] = to_tf32(x[i] - high);
      x[i] = high;
    }
  }

  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, depth, float> sums_;
};

#else
template <class Precision>
class tile_sum;  // has_matrix_units is false
#endif

}  // namespace device
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
