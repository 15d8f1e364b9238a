// SPDX-License-Identifier: BSD-3-Clause
// The default backend `tiled`, and the scalar loop `sequential`. Other backends are in
// variants.hpp, triangular_matmul.hpp and cuda/scan.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <scanrec/executor.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Cache-tiled scan over SIMD lanes and threads; the default of every call.
///
/// Determinism  The results have the same bits for any number of threads and any executor. If time
///              is not split and the lanes of SIMD packs are channels (see describe()), all results
///              have the bits of `sequential`, except gradients that are sums.
/// Memory       One workspace per call, see workspace_bytes(). A call allocates nothing if it needs
///              at most 8 KiB or if the caller provides the workspace.
///
/// Selective scans and causal convolutions ignore tile_steps and stream_bytes.
struct tiled {
  static constexpr bool recomputes_states = true;  ///< supports memory::recompute
  int threads = 0;                ///< workers; 0: one per hardware thread, fewer for small problems
  std::int64_t tile_steps = 0;    ///< steps per tile; 0: automatic. Affects bits if time is split.
                                  ///< With memory::recompute, rounded up to a multiple of 128.
  std::int64_t stream_bytes = 0;  ///< stores may bypass caches in calls that read and write this
                                  ///< many bytes or more; 0: automatic
  scanrec::executor executor{};   ///< runs the workers; empty: OpenMP if compiled in, else POSIX
                                  ///< threads
  /// Caller-provided memory that a call uses instead of allocating: workspace_bytes() bytes,
  /// aligned to 64 bytes, or more if the elements of an operator need it. Concurrent calls must not
  /// share it.
  std::span<std::byte> workspace{};
};

/// Scalar loop over one sequence after another; no threads, no SIMD.
///
/// Memory  Accumulators in the wide type (double for float) for gradients that are sums. With
///         memory::recompute, the states of 128 steps of one channel. In selective scans and causal
///         convolutions, also buffers for some steps of one channel; in linear attention, the
///         memory of one thread of `tiled`.
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
