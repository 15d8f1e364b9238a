// SPDX-License-Identifier: BSD-3-Clause
// The emulator's version of include/scanrec/detail/cuda/matrix_unit.cuh, with tiles of 16 x 16.
// Every thread of a warp has eight sums of a tile. Factors are rounded as in matrix units.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/precision.cuh>
#include <scanrec/element.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace device {

inline constexpr bool has_matrix_units = true;

/// Rounds to 11 bits, to nearest, with ties away from zero.
inline float to_tf32(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

template <class Precision>
class tile_sum {
  static constexpr bool halves = std::is_same_v<Precision, precision::bf16>;

 public:
  using stored = std::conditional_t<halves, bfloat16, float>;

  void add_product(const shared_array<stored>& left, int first_left, int left_row,
                   const shared_array<stored>& right, int first_right, int right_row) {
    synchronise_warp();  // all threads of the warp must be here
    for (int e = 0; e < own; ++e) {
      double sum = sums_[e];
      for (int k = 0; k < 16; ++k) {
        const auto a = static_cast<float>(left.load(first_left + row_of(e) * left_row + k));
        const auto b = static_cast<float>(right.load(first_right + k * right_row + column_of(e)));
        sum += product(a, b);
      }
      sums_[e] = static_cast<float>(sum);
    }
  }
  void store(const shared_array<float>& to, int first, int row) const {
    synchronise_warp();
    for (int e = 0; e < own; ++e) to.store(first + row_of(e) * row + column_of(e), sums_[e]);
  }

 private:
  static constexpr int own = 16 * 16 / warp_size;
  static int row_of(int e) { return (thread_index() % warp_size * own + e) / 16; }
  static int column_of(int e) { return (thread_index() % warp_size * own + e) % 16; }
  static double product(double a, double b) {
    if constexpr (halves) return a * b;
    const double a_high = to_tf32(static_cast<float>(a)), b_high = to_tf32(static_cast<float>(b));
    if constexpr (std::is_same_v<Precision, precision::tf32>) return a_high * b_high;
    const double a_rest = to_tf32(static_cast<float>(a - a_high));
    const double b_rest = to_tf32(static_cast<float>(b - b_high));
    return a_rest * b_high + a_high * b_rest + a_high * b_high;
  }

  float sums_[own] = {};
};

}  // namespace device
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
