// SPDX-License-Identifier: BSD-3-Clause
// The textbook scans hillis_steele and blelloch, for comparison and teaching.
#pragma once

#include <cstddef>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scan by doubling shifts: simple and parallel, but n log n work. For comparison and teaching.
///
/// Bits   The results have the same bits for any number of threads and any executor.
/// Memory A work item is a set of sequences that are scanned together. Each one in progress needs
///        the maps of all its steps: a factor and an offset per element, or two of each if threads
///        share the passes of one work item. See workspace_bytes().
/// Range  Results are within the error bound unless a product of gates over- or underflows. NaN and
///        infinity never propagate to earlier steps of the scan, to another channel, or past a
///        reset.
/// Source Hillis and Steele, Data Parallel Algorithms (1986).
struct hillis_steele {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                                 ///< workers; 0: as in `tiled`
  scanrec::executor executor{};                    ///< runs the workers; empty: as in `tiled`
  std::span<std::byte> workspace{};                ///< caller-provided, as for `tiled`
};

/// Scan over a balanced tree, with an up-sweep and a down-sweep: 2n work, but the tree is written
/// to memory and read again. For comparison and teaching.
///
/// Bits   The results have the same bits for any number of threads and any executor.
/// Memory A work item is a set of sequences that are scanned together. Each one in progress needs a
///        tree: two maps per element, each with a factor and an offset. See workspace_bytes().
/// Range  Results are within the error bound unless a product of gates over- or underflows. NaN and
///        infinity never propagate to earlier steps of the scan, to another channel, or past a
///        reset.
/// Source Blelloch, Prefix Sums and Their Applications (1990).
struct blelloch {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                                 ///< workers; 0: as in `tiled`
  scanrec::executor executor{};                    ///< runs the workers; empty: as in `tiled`
  std::span<std::byte> workspace{};                ///< caller-provided, as for `tiled`
};

}  // namespace scanrec::inline SCANREC_ABI

#if !defined(__CUDACC__)  // CUDA compilers lack the vector extensions that these headers use
#include <scanrec/detail/cpu/blelloch.hpp>
#include <scanrec/detail/cpu/hillis_steele.hpp>
#endif
