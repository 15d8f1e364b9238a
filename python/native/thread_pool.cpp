// SPDX-License-Identifier: BSD-3-Clause
// The library's thread pool: a list of jobs. A job has a number of workers, which are calls of one
// function with indices from 0. Helper threads and the caller claim workers one by one.
#include "thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace scanrec::native {
namespace {

/// One call of run_on_pool. It lives on the stack of the caller, which returns after all workers
/// have finished.
struct job {
  const std::function<void(int)>& work;
  int workers;
  int helpers;  // helpers that may still join
  int claimed = 0;
  int finished = 0;
  std::condition_variable all_finished{};
};

class pool {
 public:
  void run(int threads, int workers, const std::function<void(int)>& work) {
    job mine{work, workers, std::min(threads, workers) - 1};
    std::unique_lock lock(mutex_);
    start_helpers(std::min(mine.helpers, pool_threads() - 1));
    jobs_.push_back(&mine);
    for (int helper = 0; helper < mine.helpers; ++helper) wake_.notify_one();
    while (mine.claimed < workers) work_on(mine, lock);
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &mine));
    mine.all_finished.wait(lock, [&] { return mine.finished == workers; });
  }

 private:
  // The lock is held on entry and on return, but not during the work.
  static void work_on(job& j, std::unique_lock<std::mutex>& lock) {
    const int worker = j.claimed++;
    lock.unlock();
    j.work(worker);
    lock.lock();
    // Once all workers have finished, the caller may destroy the job as soon as the lock is free.
    if (++j.finished == j.workers) j.all_finished.notify_one();
  }

  // A job with work for one more helper, or null.
  job* open_job() {
    for (job* j : jobs_)
      if (j->claimed < j->workers && j->helpers > 0) return j;
    return nullptr;
  }

  void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      job* j = nullptr;
      wake_.wait(lock, [&] { return (j = open_job()) != nullptr; });
      --j->helpers;
      // The job exists until all of its workers have finished and the lock is released.
      do work_on(*j, lock);
      while (j->claimed < j->workers);
    }
  }

  void start_helpers(int wanted) {
    try {
      for (; helpers_ < wanted; ++helpers_) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
      // The system has no more threads. The existing helpers and the caller do the work.
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<job*> jobs_;
  int helpers_ = 0;
};

// The pool is never destroyed, since helpers wait in it until the process ends. A child of fork
// gets a new pool: the child has none of the helpers, and the old mutex may be locked.
pool* current = [] {
  pthread_atfork(nullptr, nullptr, [] { current = new pool; });
  return new pool;
}();

}  // namespace

int pool_threads() {
  const unsigned cpus = std::thread::hardware_concurrency();
  return cpus == 0 ? 1 : static_cast<int>(cpus);
}

void run_on_pool(int threads, int workers, const std::function<void(int)>& work) {
  // One worker needs no count of the CPUs, which takes longer than a small scan.
  if (threads == 0 && workers > 1) threads = pool_threads();
  if (threads <= 1 || workers <= 1)
    for (int worker = 0; worker < workers; ++worker) work(worker);
  else
    current->run(threads, workers, work);
}

}  // namespace scanrec::native
