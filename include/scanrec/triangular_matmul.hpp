// SPDX-License-Identifier: BSD-3-Clause
// The scan by triangular matrix products. Needs Eigen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scan by triangular matrices, `chunk` steps at a time: chunk * n work. For gates that are shared,
/// and for comparison. Any recurrence of numbers; none of vectors, and no other operator.
///
/// Bits     the same for any number of threads and any executor.
/// Memory   of the units at work factor and offset of every step (a shared factor once), a
///          buffer of some steps, and a triangle per worker. See workspace_bytes(); Eigen's
///          products take small buffers of their own.
/// Range    within the error bound (docs/numerics.md) as long as no product of gates over- or
///          underflows; what is not finite never moves backwards in time, nor to another channel,
///          nor past a reset.
/// Throws   argument_error if chunk is less than 1.
/// Source   Dao and Gu, Transformers are SSMs (2024), section 6, for the chunked form.
struct triangular_matmul {
  static constexpr bool recomputes_states = true;  ///< serves adjoints that kept checkpoints
  std::int64_t chunk = 128;                        ///< steps per triangle
  int threads = 0;                   ///< workers; 0: all cores, fewer on small problems
  scanrec::executor executor{};      ///< who runs the workers; empty: OpenMP, or POSIX threads
  std::span<std::byte> workspace{};  ///< to work in, as `tiled` has it
};

}  // namespace scanrec::inline SCANREC_ABI

#include <scanrec/detail/cpu/triangular_matmul.hpp>
