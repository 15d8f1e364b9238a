// SPDX-License-Identifier: BSD-3-Clause
// The calls as XLA sees them: handlers of its foreign function interface, over buffers with axes of
// extent 1 wherever they broadcast. Checks are made before, in Python; errors here are bugs.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <xla/ffi/api/ffi.h>

#include <scanrec/c/scanrec.h>

namespace ffi = xla::ffi;

namespace {

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

/// scanrec_dtype of an element type, or -1.
int dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return SCANREC_FLOAT32;
    case ffi::DataType::F64:
      return SCANREC_FLOAT64;
    case ffi::DataType::C64:
      return SCANREC_COMPLEX64;
    case ffi::DataType::C128:
      return SCANREC_COMPLEX128;
    case ffi::DataType::BF16:
      return SCANREC_BFLOAT16;
    case ffi::DataType::F16:
      return SCANREC_FLOAT16;
    default:
      return -1;
  }
}

using span = ffi::Span<const std::int64_t>;

/// Turns dense buffers into arrays of a call. A buffer with one more axis than the problem, the
/// axis `stack`, is a stack of arrays that follow one another in the struct.
class arrays_of_buffers {
 public:
  arrays_of_buffers(std::size_t rank, std::int64_t stack) : rank_(rank), stack_(stack) {}

  /// Puts what is in a buffer at `to`; how many arrays, or 0 for a buffer of another rank.
  template <class Buffer>
  int put(scanrec_array* to, const Buffer& buffer) {
    const auto dimensions = buffer.dimensions();
    auto* const data = static_cast<char*>(buffer.untyped_data());
    const bool stacked = stack_ >= 0 && dimensions.size() == rank_ + 1;
    if (dimensions.size() != rank_ && !stacked) return 0;

    auto& strides = strides_.emplace_back(new std::int64_t[rank_]);
    std::int64_t stride = 1, between = 0;
    std::size_t axis = rank_;
    for (std::size_t d = dimensions.size(); d-- > 0;) {
      if (stacked && d == static_cast<std::size_t>(stack_))
        between = stride * static_cast<std::int64_t>(ffi::ByteWidth(buffer.element_type()));
      else
        strides[--axis] = dimensions[d] == 1 ? 0 : stride;
      stride *= dimensions[d];
    }
    const int count = stacked ? static_cast<int>(dimensions[static_cast<std::size_t>(stack_)]) : 1;
    for (int i = 0; i < count; ++i) to[i] = {data + i * between, strides.get()};
    return count;
  }

 private:
  std::size_t rank_;
  std::int64_t stack_;
  std::vector<std::unique_ptr<std::int64_t[]>> strides_;
};

/// A handler for the call `function`, whose struct of type Arrays begins with the operands: bit i
/// of `operands` says whether the i-th is there, and likewise bit i of `results`.
template <class Arrays, int Operands, int (*Function)(const scanrec_problem*, const Arrays*)>
ffi::Error run(ffi::ThreadPool pool, std::int64_t axis, bool reverse, span shape,
               std::int64_t stack, std::int64_t operands, std::int64_t results,
               ffi::RemainingArgs args, ffi::RemainingRets rets) {
  static_assert(sizeof(Arrays) % sizeof(scanrec_array) == 0);
  constexpr int all = static_cast<int>(sizeof(Arrays) / sizeof(scanrec_array));
  const auto wrong_rank = ffi::Error::InvalidArgument("scanrec: rank");
  arrays_of_buffers made(shape.size(), stack);
  Arrays arrays{};
  auto* array = reinterpret_cast<scanrec_array*>(&arrays);
  int dtype = -1;
  std::size_t next = 0;
  for (int i = 0, count = 1; i < Operands; i += count) {
    count = 1;
    if ((operands >> i & 1) == 0) continue;
    const auto buffer = args.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    if (dtype < 0) dtype = dtype_of(buffer->element_type());
    if ((count = made.put(array + i, *buffer)) == 0) return wrong_rank;
  }
  next = 0;
  for (int i = 0, count = 1; i < all - Operands; i += count) {
    count = 1;
    if ((results >> i & 1) == 0) continue;
    auto buffer = rets.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    if ((count = made.put(array + Operands + i, **buffer)) == 0) return wrong_rank;
  }

  scanrec_problem problem{};
  problem.dtype = dtype;
  problem.rank = static_cast<std::int32_t>(shape.size());
  problem.shape = shape.begin();
  problem.axis = static_cast<std::int32_t>(axis);
  problem.reverse = reverse;
  problem.plain = 1;
  problem.threads = static_cast<std::int32_t>(pool.num_threads());
  problem.executor = run_on_xla;
  problem.pool = &pool;
  switch (Function(&problem, &arrays)) {
    case SCANREC_OK:
      return ffi::Error::Success();
    case SCANREC_BAD_ARGUMENT:
      return ffi::Error::InvalidArgument(scanrec_last_error());
    case SCANREC_OUT_OF_MEMORY:
      return ffi::Error(ffi::ErrorCode::kResourceExhausted, scanrec_last_error());
    default:
      return ffi::Error::Internal(scanrec_last_error());
  }
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<std::int64_t>("axis")
      .Attr<bool>("reverse")
      .Attr<span>("shape")
      .Attr<std::int64_t>("stack")
      .Attr<std::int64_t>("operands")
      .Attr<std::int64_t>("results")
      .RemainingArgs()
      .RemainingRets();
}

}  // namespace

#define SCANREC_HANDLER(name, Arrays, operands, function)                                 \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(                  \
      XLA_FFI_CallFrame* frame) {                                                         \
    static const auto* handler = binding().To(run<Arrays, operands, function>).release(); \
    return handler->Call(frame);                                                          \
  }

SCANREC_HANDLER(scanrec_xla_linear_scan, scanrec_scan_arrays, 4, scanrec_linear_scan)
SCANREC_HANDLER(scanrec_xla_linear_scan_vjp, scanrec_vjp_arrays, 6, scanrec_linear_scan_vjp)
SCANREC_HANDLER(scanrec_xla_linear_scan_jvp, scanrec_jvp_arrays, 7, scanrec_linear_scan_jvp)
SCANREC_HANDLER(scanrec_xla_qrnn_pool, scanrec_pool_arrays, 7, scanrec_qrnn_pool)
SCANREC_HANDLER(scanrec_xla_qrnn_pool_vjp, scanrec_pool_vjp_arrays, 10, scanrec_qrnn_pool_vjp)
