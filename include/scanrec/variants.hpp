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
/// Memory all maps of the work items (sequences that are scanned together) in progress: a factor
///        and an offset per element, or two of each if threads share the passes of one work item.
///        See workspace_bytes().
/// Range  Results are within the error bound unless a product of gates over- or underflows. NaN and
///        infinity never propagate backwards in time, to another channel, or past a reset.
/// Source Hillis and Steele, Data Parallel Algorithms (1986).
struct hillis_steele {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                   ///< workers; 0: one per core, fewer for small problems
  scanrec::executor executor{};      ///< runs the workers; empty: OpenMP, or POSIX threads
  std::span<std::byte> workspace{};  ///< caller-provided, as for `tiled`
};

/// Scan over a balanced tree, with an up-sweep and a down-sweep: 2n work, but the tree is written
/// to memory and read again. For comparison and teaching.
///
/// Bits   The results have the same bits for any number of threads and any executor.
/// Memory the trees of the work items in progress: two maps per element, each with a factor and an
///        offset. See workspace_bytes().
/// Range  Results are within the error bound unless a product of gates over- or underflows. NaN and
///        infinity never propagate backwards in time, to another channel, or past a reset.
/// Source Blelloch, Prefix Sums and Their Applications (1990).
struct blelloch {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                   ///< workers; 0: one per core, fewer for small problems
  scanrec::executor executor{};      ///< runs the workers; empty: OpenMP, or POSIX threads
  std::span<std::byte> workspace{};  ///< caller-provided, as for `tiled`
};

}  // namespace scanrec::inline SCANREC_ABI

#if !defined(__CUDACC__)  // the front end of CUDA compilers lacks the vector extensions used here
#include <scanrec/detail/cpu/blelloch.hpp>
#include <scanrec/detail/cpu/hillis_steele.hpp>
#endif
