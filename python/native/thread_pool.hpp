// SPDX-License-Identifier: BSD-3-Clause
// The library's own threads: one pool per process, started when first needed, and again after fork.
#pragma once

#include <functional>

namespace scanrec::native {

/// Threads that work on one call at most, the calling one among them: one per CPU that this process
/// may run on.
int pool_threads();

/// Runs work(0), ..., work(workers - 1), each exactly once, on at most so many threads, the calling
/// one among them; 0: pool_threads(). Several threads may call at once. Never waits for work that
/// no thread has begun, so it cannot deadlock.
void run_on_pool(int threads, int workers, const std::function<void(int)>& work);

}  // namespace scanrec::native
