// SPDX-License-Identifier: BSD-3-Clause
// Executors: who runs the workers of a parallel backend. OpenMP when compiled in, else std::thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <scanrec/config.hpp>

namespace scanrec {

/// Runs `work(0)`, ..., `work(workers - 1)`, each exactly once, and returns when all have returned.
///
/// Any order, any threads, fewer threads than workers, one after the other: every backend makes
/// progress, since workers claim tasks in order and only ever wait for a task that was claimed
/// before. A thread pool is plugged in here; the library owns none.
using executor = std::function<void(int workers, const std::function<void(int)>& work)>;

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

/// Threads the default executor would use.
inline int default_threads() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
#endif
}

inline constexpr int most_threads = 256;

/// Threads of a call: as many as were asked for; else at most so many as are of use. The system is
/// not asked where that is one: it takes longer than a small scan.
inline int threads_for(int asked, std::int64_t useful) {
  if (asked > 0) return std::min(asked, most_threads);
  if (useful <= 1) return 1;
  return static_cast<int>(
      std::min<std::int64_t>(useful, std::min(default_threads(), most_threads)));
}

/// The default executor; the calling thread is one of the workers.
inline void run_workers(int workers, const std::function<void(int)>& work) {
  if (workers <= 1) {
    work(0);
    return;
  }
#if defined(_OPENMP)
  // Fewer threads than asked for may come; the loop hands every worker to one of them.
#pragma omp parallel for schedule(static, 1) num_threads(workers)
  for (int worker = 0; worker < workers; ++worker) work(worker);
#else
  std::thread helpers[most_threads];
  int started = 0;
  try {
    while (started < workers - 1) {
      helpers[started] = std::thread(std::cref(work), started + 1);
      ++started;
    }
  } catch (...) {
    // No more threads or memory to be had: the rest of the workers run here.
  }
  work(0);
  for (int worker = started + 1; worker < workers; ++worker) work(worker);
  for (int helper = 0; helper < started; ++helper) helpers[helper].join();
#endif
}

/// Waits until another worker has brought `value` to `wanted`.
inline void await(const std::atomic<std::int64_t>& value, std::int64_t wanted) {
  for (int spin = 0; value.load(std::memory_order_acquire) != wanted; ++spin) {
    if (spin < 256) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
