// SPDX-License-Identifier: BSD-3-Clause
// Executors, which run the workers of a parallel backend.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <scanrec/detail/config.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

// Functions that executor and work_ref instantiate for each type that they wrap. The names of these
// functions include the instruction set; the names of executor and work_ref do not.
template <class Work>
void call_work(const void* work, int worker) {
  (*static_cast<const Work*>(work))(worker);
}
template <class Run, class Work>
void call_executor(void* run, int workers, const Work& work) {
  (*static_cast<Run*>(run))(workers, work);
}
template <class Run>
void* copy_executor(const void* run) {
  return new Run(*static_cast<const Run*>(run));
}
template <class Run>
void drop_executor(void* run) {
  delete static_cast<Run*>(run);
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec {

/// The work of an executor, which calls `work(worker)` once for each worker. A work_ref refers to
/// an object that stays alive until the executor returns. A work_ref may be copied, also into a
/// std::function<void(int)>.
class work_ref {
 public:
  template <class Work>
  requires(!std::same_as<Work, work_ref> && std::is_invocable_v<const Work&, int>)
      // NOLINTNEXTLINE(google-explicit-constructor)
      SCANREC_INLINE work_ref(const Work& work)
      : work_(&work), call_(detail::call_work<Work>) {}

  SCANREC_INLINE void operator()(int worker) const { call_(work_, worker); }

 private:
  const void* work_;
  void (*call_)(const void*, int);
};

/// Runs `work(0)`, ..., `work(workers - 1)`, each exactly once, and returns after all of them have
/// returned. An executor wraps any object that can be called with (int workers, work_ref work),
/// such as a function whose second parameter is a const std::function<void(int)>&. An executor
/// may be empty; a backend then runs its workers on OpenMP or POSIX threads.
///
/// Use an executor to run scans on a thread pool; the library has none. Workers may run in any
/// order and on any threads, also on fewer threads than workers, or one after the other. Every
/// backend makes progress, since workers claim tasks in order and wait only for tasks that were
/// claimed earlier.
///
/// `work` does not throw. An executor may throw, but must not start any worker after that. Its
/// exception reaches the caller of the scan after all workers that have started have returned.
///
/// This is not a std::function, because the linker could take the members of std::function from an
/// object file that was compiled for another CPU.
class executor {
 public:
  SCANREC_INLINE executor() = default;
  template <class Run>
  requires(!std::same_as<std::remove_cvref_t<Run>, executor> &&
           std::is_invocable_v<std::decay_t<Run>&, int, const work_ref&>)
      // NOLINTNEXTLINE(google-explicit-constructor)
      SCANREC_INLINE executor(Run&& run) {
    using kept = std::decay_t<Run>;
    kept copy(std::forward<Run>(run));
    if constexpr (requires { copy = nullptr; })  // a pointer or a std::function, which may be empty
      if (!copy) return;
    run_ = new kept(std::move(copy));
    call_ = detail::call_executor<kept, work_ref>;
    copy_ = detail::copy_executor<kept>;
    drop_ = detail::drop_executor<kept>;
  }
  SCANREC_INLINE ~executor() {
    if (run_) drop_(run_);
  }
  SCANREC_INLINE executor(const executor& other)
      : run_(other.run_ ? other.copy_(other.run_) : nullptr),
        call_(other.call_),
        copy_(other.copy_),
        drop_(other.drop_) {}
  SCANREC_INLINE executor(executor&& other) noexcept
      : run_(std::exchange(other.run_, nullptr)),
        call_(other.call_),
        copy_(other.copy_),
        drop_(other.drop_) {}
  SCANREC_INLINE executor& operator=(executor other) noexcept {
    std::swap(run_, other.run_), std::swap(call_, other.call_);
    std::swap(copy_, other.copy_), std::swap(drop_, other.drop_);
    return *this;
  }

  SCANREC_INLINE explicit operator bool() const { return run_ != nullptr; }
  /// Must not be called on an empty executor.
  SCANREC_INLINE void operator()(int workers, const work_ref& work) const {
    call_(run_, workers, work);
  }

 private:
  void* run_ = nullptr;
  void (*call_)(void*, int, const work_ref&) = nullptr;
  void* (*copy_)(const void*) = nullptr;
  void (*drop_)(void*) = nullptr;
};

}  // namespace scanrec
