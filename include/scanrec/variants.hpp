// SPDX-License-Identifier: BSD-3-Clause
// Scans of the textbooks, to compare with and to teach.
#pragma once

#include <cstddef>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Scan by doubling shifts: simple and wide, but n log n work. For comparison and teaching.
///
/// Bits     the same for any number of threads and any executor.
/// Memory   all maps of the units at work: a factor and an offset per element, twice where the
///          passes of one unit are shared by threads. See workspace_bytes().
/// Range    within the error bound as long as no product of gates over- or underflows; what is not
///          finite never moves backwards in time, nor to another channel, nor past a reset.
/// Source   Hillis and Steele, Data Parallel Algorithms (1986).
struct hillis_steele {
  static constexpr bool recomputes_states = true;  ///< serves adjoints that kept checkpoints
  int threads = 0;                   ///< workers; 0: all cores, fewer on small problems
  scanrec::executor executor{};      ///< who runs the workers; empty: OpenMP, or POSIX threads
  std::span<std::byte> workspace{};  ///< to work in, as `tiled` has it
};

/// Scan over a balanced tree, up-sweep and down-sweep: 2n work, but the tree is written down and
/// read again. For comparison and teaching.
///
/// Bits     the same for any number of threads and any executor.
/// Memory   the trees of the units at work: two maps, of a factor and an offset, per element. See
///          workspace_bytes().
/// Range    within the error bound as long as no product of gates over- or underflows; what is not
///          finite never moves backwards in time, nor to another channel, nor past a reset.
/// Source   Blelloch, Prefix Sums and Their Applications (1990).
struct blelloch {
  static constexpr bool recomputes_states = true;  ///< serves adjoints that kept checkpoints
  int threads = 0;                   ///< workers; 0: all cores, fewer on small problems
  scanrec::executor executor{};      ///< who runs the workers; empty: OpenMP, or POSIX threads
  std::span<std::byte> workspace{};  ///< to work in, as `tiled` has it
};

}  // namespace scanrec::inline SCANREC_ABI

#if !defined(__CUDACC__)  // whose front end does not know their vectors
#include <scanrec/detail/cpu/blelloch.hpp>
#include <scanrec/detail/cpu/hillis_steele.hpp>
#endif
