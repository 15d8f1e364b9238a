// SPDX-License-Identifier: BSD-3-Clause
// The calls as XLA sees them on CPUs: handlers of its foreign function interface, on its threads.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "xla_call.hpp"
#include "xla_selective.hpp"

namespace {

using namespace scanrec::native;

/// XLA's threads as an executor. The caller claims workers as its helpers do, and waits for claimed
/// ones alone: handlers run on these very threads, so what is only queued may never begin.
class workers {
 public:
  workers(int count, scanrec_work work, void* context)
      : count_(count), work_(work), context_(context) {}

  /// Works as long as there are unclaimed workers; of a call that is over there are none.
  void take_part() {
    for (int worker = next_++; worker < count_; worker = next_++) {
      work_(worker, context_);
      if (++finished_ == count_) {
        const std::lock_guard lock(mutex_);
        all_finished_.notify_one();
      }
    }
  }
  void wait() {
    std::unique_lock lock(mutex_);
    all_finished_.wait(lock, [this] { return finished_ == count_; });
  }

 private:
  const int count_;
  const scanrec_work work_;
  void* const context_;
  std::atomic<int> next_ = 0, finished_ = 0;
  std::mutex mutex_;
  std::condition_variable all_finished_;
};

void run_on_xla(void* pool, int count, scanrec_work work, void* context) {
  auto shared = std::make_shared<workers>(count, work, context);
  for (int helper = 1; helper < count; ++helper)
    static_cast<ffi::ThreadPool*>(pool)->Schedule([shared] { shared->take_part(); });
  shared->take_part();
  shared->wait();
}

/// Has XLA's threads work on a problem.
template <class Problem>
void run_by(ffi::ThreadPool& pool, Problem& problem) {
  problem.threads = static_cast<std::int32_t>(pool.num_threads());
  problem.executor = run_on_xla;
  problem.pool = &pool;
}

/// The handler of a call.
template <auto Function>
ffi::Error run(ffi::ThreadPool pool, std::int64_t axis, bool reverse, span shape,
               std::int64_t stack, std::int64_t logarithms, double forget_bias,
               std::int64_t operands, std::int64_t results, ffi::RemainingArgs args,
               ffi::RemainingRets rets) {
  using Arrays = decltype(arrays_taken_by(Function));
  const auto call = [&](scanrec_problem& problem, const Arrays& arrays) {
    run_by(pool, problem);
    return Function(&problem, &arrays);
  };
  return call_on_buffers<Arrays>(
      {axis, reverse, shape, stack, logarithms, forget_bias, operands, results}, args, rets, call,
      scanrec_last_error);
}

/// The handler of a selective scan.
template <auto Function>
ffi::Error run_selective(ffi::ThreadPool pool, bool softplus, bool reverse, std::int64_t operands,
                         std::int64_t results, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  using Arrays = decltype(arrays_taken_by(Function));
  const auto call = [&](scanrec_selective_problem& problem, const Arrays& arrays) {
    run_by(pool, problem);
    return Function(&problem, &arrays);
  };
  return call_on_selective_buffers<Arrays>({softplus, reverse, operands, results}, args, rets, call,
                                           scanrec_last_error);
}

auto binding() { return with_attributes_and_buffers(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()); }
auto selective_binding() {
  return with_selective_attributes_and_buffers(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>());
}

}  // namespace

SCANREC_HANDLER(scanrec_xla_linear_scan, scanrec_linear_scan)
SCANREC_HANDLER(scanrec_xla_linear_scan_vjp, scanrec_linear_scan_vjp)
SCANREC_HANDLER(scanrec_xla_linear_scan_jvp, scanrec_linear_scan_jvp)
SCANREC_HANDLER(scanrec_xla_gated_scan, scanrec_gated_scan)
SCANREC_HANDLER(scanrec_xla_gated_scan_vjp, scanrec_gated_scan_vjp)
SCANREC_HANDLER_OF(scanrec_xla_selective_scan, selective_binding, run_selective,
                   scanrec_selective_scan)
SCANREC_HANDLER_OF(scanrec_xla_selective_scan_vjp, selective_binding, run_selective,
                   scanrec_selective_scan_vjp)
