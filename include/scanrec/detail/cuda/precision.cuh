// SPDX-License-Identifier: BSD-3-Clause
// In what numbers the products of a triangular_matmul are formed.
#pragma once

namespace scanrec::cuda::precision {

/// Multiply-adds in the compute type, on the ordinary units: for every element type.
struct full {
  static constexpr bool on_matrix_units = false;
};
/// Three products of TF32 halves, which have 22 bits of a float's 24 between them.
struct tf32x3 {
  static constexpr bool on_matrix_units = true;
};
/// Factors rounded to TF32, of 11 bits, summed up in float.
struct tf32 {
  static constexpr bool on_matrix_units = true;
};
/// Factors rounded to bfloat16, of 8 bits, summed up in float.
struct bf16 {
  static constexpr bool on_matrix_units = true;
};

}  // namespace scanrec::cuda::precision
