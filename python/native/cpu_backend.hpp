// SPDX-License-Identifier: BSD-3-Clause
// Runs the calls of an instruction set on the backend `tiled`.
#pragma once

#include <cstdint>

#include <scanrec/backends.hpp>
#include <scanrec/selective_scan.hpp>

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Whether each kind of QRNN pooling has its own kernel. Otherwise one kernel chooses the kind at
/// run time.
inline constexpr bool kernel_per_kind = false;

/// Whether one kernel of QRNN pooling serves both calls that store states and calls that do not.
inline constexpr bool kernel_keeps_if_given = false;

/// Whether kernels are optimised for size instead of speed, as for x86-64 CPUs without AVX2.
#if defined(__x86_64__) && !defined(__AVX2__)
inline constexpr bool compact = true;
#else
inline constexpr bool compact = false;
#endif

/// Whether kernels process packs of sequences (SIMD vectors). Compact kernels process 16-bit types
/// one sequence at a time: their instruction set cannot convert such types, and code that converts
/// packs would be most of the kernel.
template <class T>
inline constexpr bool in_packs = !compact || sizeof(T) > 2;

/// The recurrence R, processed one sequence at a time.
template <class R>
struct alone : R {
  static constexpr bool one_by_one = true;
};

/// The backend `tiled`. With `check_only`, a call only checks its arguments. The flag is a run-time
/// value, so that the code that builds problems is compiled once.
template <bool InPacks>
struct tiled_or_checked {
  static constexpr bool recomputes_states = tiled::recomputes_states;
  tiled backend;
  bool check_only;
};
template <bool InPacks>
std::int64_t workspace_bytes(const tiled_or_checked<InPacks>& on, const problem& p) {
  return workspace_bytes(on.backend, p);
}
template <bool InPacks, class R>
void run_recurrence(const tiled_or_checked<InPacks>& on, const R& recurrence, const problem& p) {
  if (on.check_only) return;
  if constexpr (InPacks || scanrec::detail::recomputes<R>) {
    run_recurrence(on.backend, recurrence, p);
  } else {
    problem one_by_one = p;
    static_cast<recurrence_sizes&>(one_by_one) = detail::sizes_of<alone<R>>();
    run_recurrence(on.backend, alone<R>{recurrence}, one_by_one);
  }
}

/// The backend of a call on arrays of T, of a selective scan, and of a causal convolution.
template <class T>
tiled_or_checked<in_packs<T>> backend_of(const call& c) {
  return {{.threads = c.threads, .executor = *c.workers}, c.check_only};
}
inline tiled backend_of(const selective_call& c) {
  return {.threads = c.threads, .executor = *c.workers};
}
inline tiled backend_of(const conv1d_call& c) {
  return {.threads = c.threads, .executor = *c.workers};
}

}  // namespace scanrec::native::SCANREC_LEVEL
