// SPDX-License-Identifier: BSD-3-Clause
// A stub of the default CPU backend for CUDA translation units.
#pragma once

#include <cstdint>

#include <scanrec/backends.hpp>
#include <scanrec/problem.hpp>

#if defined(__CUDACC__)

namespace scanrec::inline SCANREC_ABI {

// Calls without a backend would run on `tiled`, but CUDA compilers do not support its SIMD vectors.
template <class R>
void run_recurrence(const tiled&, const R&, const problem&) {
  static_assert(!sizeof(R),
                "scanrec: a call in a .cu file needs a backend, cuda::automatic{.stream = ...} or "
                "sequential{}; the other backends for CPUs compile in .cpp files only");
}
inline std::int64_t workspace_bytes(const tiled&, const problem&) { return 0; }

}  // namespace scanrec::inline SCANREC_ABI

#endif
