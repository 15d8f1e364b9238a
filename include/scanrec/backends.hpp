// SPDX-License-Identifier: BSD-3-Clause
// The backends `tiled`, the default, and `sequential`, the plain loop. Other backends are in
// variants.hpp, triangular_matmul.hpp and cuda/scan.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Cache-tiled scan over SIMD lanes and threads; the default of every call.
///
/// Determinism  The results have the same bits for any number of threads and any executor. They
///              have the bits of `sequential`, except gradients that are sums, if time is not split
///              and the lanes of SIMD packs are channels; describe() reports both.
/// Memory       One workspace per call, see workspace_bytes(). A call allocates nothing if it needs
///              at most 8 KiB or if the caller provides the workspace.
struct tiled {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                ///< workers; 0: one per core, fewer for small problems
  std::int64_t tile_steps = 0;    ///< steps per tile; 0: automatic. Affects bits if time is split.
                                  ///< memory::recompute rounds it up to a multiple of 128.
  std::int64_t stream_bytes = 0;  ///< stores bypass caches in calls that read and write this many
                                  ///< bytes or more; 0: automatic
  scanrec::executor executor{};   ///< runs the workers; empty: OpenMP, or POSIX threads
  /// Caller-provided memory that a call uses instead of allocating: workspace_bytes() bytes,
  /// aligned to 64 bytes, or more if the elements of an operator need it. Concurrent calls must not
  /// share it.
  std::span<std::byte> workspace{};
};

/// Scalar loop over one sequence after the other; no threads, no SIMD.
///
/// Memory  None, except accumulators in the wide type (double for float) for gradients that are
///         sums and, with memory::recompute, the states of 128 steps of one channel.
struct sequential {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  /// Caller-provided memory that a call uses instead of allocating: workspace_bytes() bytes,
  /// aligned to 64 bytes, or more if the elements of an operator need it. Concurrent calls must not
  /// share it.
  std::span<std::byte> workspace{};
};

}  // namespace scanrec::inline SCANREC_ABI

#include <scanrec/detail/cpu/sequential.hpp>
#if defined(__CUDACC__)
#include <scanrec/detail/cpu/host_only.hpp>
#else
#include <scanrec/detail/cpu/tiled.hpp>
#endif
