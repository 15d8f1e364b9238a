// SPDX-License-Identifier: BSD-3-Clause
// Declares the library's thread pool. Each process has one, also after a fork. Its threads start
// when they are first needed.
#pragma once

#include <functional>

namespace scanrec::native {

/// The largest number of threads that work on one call, including the calling thread: one per CPU
/// that std::thread::hardware_concurrency() counts.
int pool_threads();

/// Runs work(0), ..., work(workers - 1), each exactly once, on at most `threads` threads, including
/// the calling thread. If `threads` is 0, pool_threads() is the limit. Several threads may call
/// this function at once. It never waits for work that no thread has begun, so it cannot deadlock.
void run_on_pool(int threads, int workers, const std::function<void(int)>& work);

}  // namespace scanrec::native
