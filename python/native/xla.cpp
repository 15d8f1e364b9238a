// SPDX-License-Identifier: BSD-3-Clause
// XLA's handlers for CPUs. They run calls on XLA's threads.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "xla_call.hpp"
#include "xla_typed.hpp"

namespace {

using namespace scanrec::native;

/// Runs the workers of a call on XLA's threads. The caller and its helpers claim workers one by
/// one. The caller waits only for claimed workers, not for helpers: handlers may occupy all of
/// XLA's threads, so that a queued helper never starts.
class workers {
 public:
  workers(int count, scanrec_work work, void* context)
      : count_(count), work_(work), context_(context) {}

  /// Claims workers and runs them until all are claimed.
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

/// XLA's thread pool.
struct thread_pool {
  const xla::api* api;
  xla::context* ctx;

  std::int64_t num_threads() const {
    std::int64_t count = 0;
    auto args = sized(xla::num_threads_args{{}, ctx, &count});
    return discard(*api, api->num_threads(&args)) ? 0 : count;
  }

  /// Queues a task, or runs it at once if XLA cannot queue it, for example without threads.
  template <class Task>
  void schedule(const Task& task) const {
    const auto run = [](void* data) {
      const std::unique_ptr<Task> owned(static_cast<Task*>(data));
      (*owned)();
    };
    auto args = sized(xla::schedule_args{{}, ctx, run, new Task(task)});
    if (discard(*api, api->schedule(&args))) run(args.data);
  }
};

void run_on_xla(void* pool, int count, scanrec_work work, void* context) {
  auto shared = std::make_shared<workers>(count, work, context);
  for (int helper = 1; helper < count; ++helper)
    static_cast<const thread_pool*>(pool)->schedule([shared] { shared->take_part(); });
  shared->take_part();
  shared->wait();
}

/// Runs the call that a frame describes.
template <auto Function>
void run(const xla::call_frame& frame) {
  decoded_call<decltype(arrays_taken_by(Function))> call(frame);
  thread_pool pool{frame.api, frame.ctx};
  call.problem.threads = static_cast<std::int32_t>(pool.num_threads());
  call.problem.executor = run_on_xla;
  call.problem.pool = &pool;
  check(Function(&call.problem, &call.arrays), scanrec_last_error);
}

}  // namespace

SCANREC_HANDLER(scanrec_xla_linear_scan, scanrec_linear_scan)
SCANREC_HANDLER(scanrec_xla_linear_scan_vjp, scanrec_linear_scan_vjp)
SCANREC_HANDLER(scanrec_xla_linear_scan_jvp, scanrec_linear_scan_jvp)
SCANREC_HANDLER(scanrec_xla_gated_scan, scanrec_gated_scan)
SCANREC_HANDLER(scanrec_xla_gated_scan_vjp, scanrec_gated_scan_vjp)
SCANREC_HANDLER(scanrec_xla_selective_scan, scanrec_selective_scan)
SCANREC_HANDLER(scanrec_xla_selective_scan_vjp, scanrec_selective_scan_vjp)
SCANREC_HANDLER(scanrec_xla_causal_conv1d, scanrec_causal_conv1d)
SCANREC_HANDLER(scanrec_xla_causal_conv1d_vjp, scanrec_causal_conv1d_vjp)
