// SPDX-License-Identifier: BSD-3-Clause
// The backends that every call knows: `tiled`, which is the default, and the plain loop. Others
// have headers of their own: variants.hpp, triangular_matmul.hpp, cuda/scan.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Cache-tiled scan over SIMD lanes and threads; the default of every call.
///
/// Determinism  the same bits for any number of threads and any executor; where time is not split
///              and lanes lie along channels, the bits of `sequential`.
/// Memory       one workspace per call, see workspace_bytes(); nothing up to 8 KiB, or where the
///              caller gives it.
struct tiled {
  static constexpr bool recomputes_states = true;  ///< serves adjoints that kept checkpoints
  int threads = 0;                ///< workers; 0: all cores, fewer on small problems
  std::int64_t tile_steps = 0;    ///< steps per tile; 0: policy. Changes bits where time is split.
                                  ///< With memory::recompute rounded up to a multiple of 128.
  std::int64_t stream_bytes = 0;  ///< non-temporal stores from this many bytes on; 0: policy
  scanrec::executor executor{};   ///< runs the workers; empty: OpenMP, or POSIX threads
  /// Memory for a call to use instead of allocating: workspace_bytes(), aligned to 64 bytes
  /// (elements of an operator may need more). One call at a time.
  std::span<std::byte> workspace{};
};

/// Scalar loop over every sequence in turn; no threads, no SIMD.
///
/// Memory  nothing, except accumulators in the wide type for gradients that are sums, and with
///         memory::recompute the states of one channel's 128 steps.
struct sequential {
  static constexpr bool recomputes_states = true;  ///< serves adjoints that kept checkpoints
  /// Memory for a call to use instead of allocating: workspace_bytes(), aligned to 64 bytes
  /// (elements of an operator may need more). One call at a time.
  std::span<std::byte> workspace{};
};

}  // namespace scanrec::inline SCANREC_ABI

#include <scanrec/detail/cpu/sequential.hpp>
#if defined(__CUDACC__)
#include <scanrec/detail/cpu/host_only.hpp>
#else
#include <scanrec/detail/cpu/tiled.hpp>
#endif
