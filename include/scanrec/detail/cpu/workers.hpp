// SPDX-License-Identifier: BSD-3-Clause
// Runs the workers of a call on the caller's executor, on OpenMP if compiled in, or on POSIX
// threads. No exception leaves a worker, no worker waits for one that has thrown, and the caller
// gets the first exception.
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

/// Number of threads of the default executor.
inline int default_threads() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
#endif
}

inline constexpr int most_threads = 256;

/// Number of threads of a call, at most most_threads: the requested number or, if `asked` is 0, as
/// many as are useful, up to default_threads(). If only one is useful, the system is not queried,
/// because the query takes longer than a small scan.
inline int threads_for(int asked, std::int64_t useful) {
  if (asked > 0) return std::min(asked, most_threads);
  if (useful <= 1) return 1;
  return static_cast<int>(
      std::min<std::int64_t>(useful, std::min(default_threads(), most_threads)));
}

/// The default executor. The calling thread is one of the workers. Work must not throw.
inline void run_workers(int workers, const work_ref& work) {
  if (workers <= 1) {
    work(0);
    return;
  }
#if defined(_OPENMP)
  // OpenMP may start fewer threads than requested. The loop assigns every worker to one of them.
#pragma omp parallel for schedule(static, 1) num_threads(workers)
  for (int worker = 0; worker < workers; ++worker) work(worker);
#else
  // std::thread is not used: it would leave members of std::unique_ptr in the object file, under
  // the same names for all instruction sets. A linker keeps only one of them.
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
      // If the system has no more threads or memory, the remaining workers run in this thread.
      if (pthread_create(&h.thread, nullptr, start, &h) != 0) break;
    }
    work(0);
    for (int worker = started + 1; worker < workers; ++worker) work(worker);
    for (int i = 0; i < started; ++i) pthread_join(helpers[i].thread, nullptr);
  };
  run();
#endif
}

/// Keeps the exception of the lowest-numbered worker or task that threw.
class first_failure {
 public:
  /// Keeps the current exception, unless one with the same or a lower number is kept.
  void keep(std::int64_t number) {
    const std::lock_guard<std::mutex> alone(access_);
    if (number >= number_.load(std::memory_order_relaxed)) return;
    exception_ = std::current_exception();
    number_.store(number, std::memory_order_release);
  }
  [[nodiscard]] bool before(std::int64_t number) const {
    return number_.load(std::memory_order_acquire) < number;
  }
  /// Throws the exception, if there is one. Call it after all workers have returned.
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<std::int64_t> number_{std::numeric_limits<std::int64_t>::max()};
  std::exception_ptr exception_;
  std::mutex access_;
};

/// Tells the processor that this thread waits for another. From spin 256 on, lets the system run
/// another thread.
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

/// Runs work(0), ..., work(workers - 1) on the caller's executor or, if it is empty, on the default
/// one. If workers throw, the exception of the one with the lowest number is rethrown after all
/// have returned. If only the executor throws, its exception is rethrown.
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
/// A task waits only for tasks before it. So after a task has thrown, the tasks before it run to
/// their end. Tasks after it are not claimed, or give up if they have to wait. The exception that
/// is kept is the same for any number of workers.
///
/// Tasks that do not wait may be divided into blocks. Each worker begins with its own block, which
/// is the same in every call, so that its caches may still hold the data of the previous call. Then
/// the worker claims tasks of the other blocks.
class task_queue {
 public:
  using counter = std::atomic<std::int64_t>;
  explicit task_queue(std::int64_t tasks) : tasks_(tasks) {}

  /// Divides the tasks into one block per worker. `claimed` has room for a counter per worker.
  void share_out(std::byte* claimed, int workers) {
    claimed_ = reinterpret_cast<counter*>(claimed);
    workers_ = workers;
    for (int i = 0; i < workers; ++i) ::new (&claimed_[i]) counter(0);
  }

  /// Calls f(task) or f(task, next) for the tasks that this worker claims. Without blocks, f may
  /// claim another task early and store it in `next`.
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
      // An earlier task has thrown, and its exception is reported.
    } catch (...) {
      failure_.keep(task);
      next_ = tasks_;
    }
  }
  /// Claims a task to be run later. Returns -1 if so few are left that another worker may need it.
  std::int64_t claim_early(int workers) {
    return next_.load(std::memory_order_relaxed) + 2 * workers < tasks_ ? next_++ : -1;
  }
  /// Waits until another worker sets `value` to `wanted`. Throws given_up if an earlier task has
  /// thrown. Only tasks may call this.
  void await(const counter& value, std::int64_t wanted, std::int64_t task) const {
    await_that([&] { return value.load(std::memory_order_acquire) == wanted; }, task);
  }
  /// The same, until `value` is `wanted` or more.
  void await_at_least(const counter& value, std::int64_t wanted, std::int64_t task) const {
    await_that([&] { return value.load(std::memory_order_acquire) >= wanted; }, task);
  }
  /// Throws the exception of the lowest-numbered task that threw, if any. Call it after all workers
  /// have returned.
  void rethrow() const { failure_.rethrow(); }

 private:
  struct given_up {};
  template <class Condition>
  void await_that(Condition met, std::int64_t task) const {
    for (int spin = 0; !met(); ++spin) {
      if (failure_.before(task)) throw given_up{};
      pause(spin);
    }
  }
  // Blocks differ by one task at most.
  [[nodiscard]] std::int64_t begin_of(int block) const {
    return tasks_ / workers_ * block + std::min<std::int64_t>(block, tasks_ % workers_);
  }

  std::int64_t tasks_;
  counter next_{0};             // the next task to claim
  counter* claimed_ = nullptr;  // number of claimed tasks of each block, if any
  int workers_ = 0;
  first_failure failure_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
