// SPDX-License-Identifier: BSD-3-Clause
// The precisions of the products of a triangular_matmul.
#pragma once

namespace scanrec::cuda::precision {

/// Multiply-adds in the compute type without matrix units, for every element type.
struct full {
  static constexpr bool on_matrix_units = false;
};
/// Three products of TF32 numbers for each product of floats. Each factor is split into two TF32
/// numbers, which hold 22 of the 24 bits of a float.
struct tf32x3 {
  static constexpr bool on_matrix_units = true;
};
/// Factors rounded to TF32 (11 bits), with sums in float.
struct tf32 {
  static constexpr bool on_matrix_units = true;
};
/// Factors rounded to bfloat16 (8 bits), with sums in float.
struct bf16 {
  static constexpr bool on_matrix_units = true;
};

}  // namespace scanrec::cuda::precision
