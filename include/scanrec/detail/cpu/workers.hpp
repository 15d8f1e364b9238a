// SPDX-License-Identifier: BSD-3-Clause
// Workers: run by an executor of the caller, by OpenMP when compiled in, or by threads of POSIX.
// And what becomes of exceptions there: none leaves a worker, no worker waits for one that
// has thrown, and the caller gets the first.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <pthread.h>
#endif
#include <sched.h>

#include <scanrec/detail/config.hpp>
#include <scanrec/executor.hpp>

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

/// The default executor; the calling thread is one of the workers. No exception may leave them.
inline void run_workers(int workers, const work_ref& work) {
  if (workers <= 1) {
    work(0);
    return;
  }
#if defined(_OPENMP)
  // Fewer threads than asked for may come; the loop hands every worker to one of them.
#pragma omp parallel for schedule(static, 1) num_threads(workers)
  for (int worker = 0; worker < workers; ++worker) work(worker);
#else
  // std::thread would leave members of std::unique_ptr in the object.
  const auto run = [&]() noexcept {
    struct helper {
      const work_ref* work;
      int worker;
      pthread_t thread;
    };
    helper helpers[most_threads];
    int started = 0;
    for (; started < workers - 1; ++started) {
      helper& h = helpers[started];
      h.work = &work, h.worker = started + 1;
      const auto start = [](void* of) noexcept -> void* {
        const helper& own = *static_cast<const helper*>(of);
        (*own.work)(own.worker);
        return nullptr;
      };
      // No more threads or memory to be had: the rest of the workers run here.
      if (pthread_create(&h.thread, nullptr, start, &h) != 0) break;
    }
    work(0);
    for (int worker = started + 1; worker < workers; ++worker) work(worker);
    for (int i = 0; i < started; ++i) pthread_join(helpers[i].thread, nullptr);
  };
  run();
#endif
}

/// The first exception of several workers: that of the lowest number.
class first_failure {
 public:
  /// Keeps the exception that is being handled, unless there is one of a lower number.
  void keep(std::int64_t number) {
    const std::lock_guard<std::mutex> alone(access_);
    if (number >= number_.load(std::memory_order_relaxed)) return;
    exception_ = std::current_exception();
    number_.store(number, std::memory_order_release);
  }
  [[nodiscard]] bool before(std::int64_t number) const {
    return number_.load(std::memory_order_acquire) < number;
  }
  /// Throws it, if there is one; once all workers have returned.
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<std::int64_t> number_{std::numeric_limits<std::int64_t>::max()};
  std::exception_ptr exception_;
  std::mutex access_;
};

/// Tells the processor that this thread waits for another; the longer, the more of its time it
/// gives away.
inline void pause(int spin) {
  if (spin < 256) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  } else {
    sched_yield();
  }
}

/// Runs work(0), ..., work(workers - 1) on an executor, or the default one. An exception reaches
/// the caller when all have returned: that of the worker of the lowest number.
template <class Work>
void run_on(const executor& given, int workers, const Work& work) {
  if (workers <= 1) return work(0);
  first_failure failure;
  std::atomic<int> running{0};
  const auto guarded = [&](int worker) noexcept {
    ++running;
    try {
      work(worker);
    } catch (...) {
      failure.keep(worker);
    }
    --running;
  };
  try {
    if (given)
      given(workers, guarded);
    else
      run_workers(workers, guarded);
  } catch (...) {
    failure.keep(most_threads);
    for (int spin = 0; running.load(std::memory_order_acquire) > 0; ++spin) pause(spin);
  }
  failure.rethrow();
}

/// Tasks 0, 1, ... that workers claim in order, until one throws.
///
/// A task waits for those before it only. So when one has thrown, those before it go on to their
/// ends, and those after it give up; and the exception that is kept in the end is the same however
/// many workers there are.
///
/// Tasks that wait for none may be claimed in blocks: each worker begins with its share, the same
/// in every call, so that what it brought near in one call it finds near in the next; then it helps
/// the others with theirs.
class task_queue {
 public:
  using counter = std::atomic<std::int64_t>;
  explicit task_queue(std::int64_t tasks) : tasks_(tasks) {}

  /// In blocks, one for each worker; `claimed`: room for a counter of each.
  void share_out(std::byte* claimed, int workers) {
    claimed_ = reinterpret_cast<counter*>(claimed);
    workers_ = workers;
    for (int i = 0; i < workers; ++i) ::new (&claimed_[i]) counter(0);
  }

  /// Calls f(task) for the tasks that this worker claims; or f(task, next), where f may claim the
  /// next one early.
  template <class F>
  void work_off(int worker, F f) {
    std::int64_t task = 0, next = -1;
    const auto run = [&] {
      if constexpr (std::is_invocable_v<F&, std::int64_t>)
        f(task);
      else
        f(task, next);
    };
    try {
      if (claimed_ == nullptr)
        while ((task = next < 0 ? next_++ : std::exchange(next, -1)) < tasks_) run();
      for (int i = 0; i < workers_; ++i) {
        const int owner = (worker + i) % workers_;
        const std::int64_t begin = begin_of(owner), end = begin_of(owner + 1);
        for (task = begin + claimed_[owner]++; task < end && !failure_.before(task);
             task = begin + claimed_[owner]++)
          run();
      }
    } catch (const given_up&) {
      // One before it has thrown, and says why.
    } catch (...) {
      failure_.keep(task);
      next_ = tasks_;
    }
  }
  /// Claims a task that is run later, unless so few are left that another worker may want it: -1.
  std::int64_t claim_early(int workers) {
    return next_.load(std::memory_order_relaxed) + 2 * workers < tasks_ ? next_++ : -1;
  }
  /// Waits until another worker has brought `value` to `wanted`; for use in a task.
  void await(const std::atomic<std::int64_t>& value, std::int64_t wanted, std::int64_t task) const {
    for (int spin = 0; value.load(std::memory_order_acquire) != wanted; ++spin) {
      if (failure_.before(task)) throw given_up{};
      pause(spin);
    }
  }
  /// Throws what the first of the tasks that threw has thrown, once all workers have returned.
  void rethrow() const { failure_.rethrow(); }

 private:
  struct given_up {};
  // Blocks differ by one task at most.
  [[nodiscard]] std::int64_t begin_of(int block) const {
    return tasks_ / workers_ * block + std::min<std::int64_t>(block, tasks_ % workers_);
  }

  std::int64_t tasks_;
  counter next_{0};             // the next task to claim
  counter* claimed_ = nullptr;  // or, of every block, how many tasks have been
  int workers_ = 0;
  first_failure failure_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
