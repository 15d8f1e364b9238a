// SPDX-License-Identifier: BSD-3-Clause
// triangular_matmul: the scan by triangular matrix products. Requires Eigen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scan by products with triangular matrices of `chunk` steps; for n steps the work grows as
/// chunk * n. Useful for gates that many sequences share, and as a comparison backend. Runs
/// only affine recurrences whose states are numbers.
///
/// Bits   The results have the same bits for any number of threads and any executor.
/// Memory A work item is a set of sequences that are scanned together. Each work item in
///        progress needs the factor and offset of every step (a shared factor is stored once) and a
///        buffer of some steps. Each worker needs a triangular matrix. See workspace_bytes().
///        Eigen's products allocate small buffers in addition.
/// Range  Results are within the error bound (docs/numerics.md) unless a product of gates over- or
///        underflows. NaN and infinity never propagate to earlier steps of the scan, to another
///        channel, or past a reset.
/// Throws argument_error if chunk is less than 1.
/// Source Dao and Gu, Transformers are SSMs (2024), section 6, for the chunked form.
struct triangular_matmul {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  std::int64_t chunk = 128;                        ///< steps per triangular matrix
  int threads = 0;                                 ///< workers; 0: as in `tiled`
  scanrec::executor executor{};                    ///< runs the workers; empty: as in `tiled`
  std::span<std::byte> workspace{};                ///< caller-provided, as for `tiled`
};

}  // namespace scanrec::inline SCANREC_ABI

#include <scanrec/detail/cpu/triangular_matmul.hpp>
