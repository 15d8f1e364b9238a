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

/// One call: which arrays of its struct there are, and where.
class buffers {
 public:
  explicit buffers(span shape) : shape_(shape) {}

  /// The strides of a dense buffer, 0 where it broadcasts.
  scanrec_array array(void* data, span dimensions) {
    auto& strides = strides_.emplace_back(new std::int64_t[shape_.size()]);
    std::int64_t stride = 1;
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      strides[axis] = dimensions[axis] == 1 ? 0 : stride;
      stride *= dimensions[axis];
    }
    return {data, strides.get()};
  }

 private:
  span shape_;
  std::vector<std::unique_ptr<std::int64_t[]>> strides_;
};

/// A handler for the call `function`, whose struct of type Arrays begins with the operands: bit i
/// of `operands` says whether the i-th is there, and likewise bit i of `results`.
template <class Arrays, int Operands, int (*Function)(const scanrec_problem*, const Arrays*)>
ffi::Error run(ffi::ThreadPool pool, std::int64_t axis, bool reverse, span shape,
               std::int64_t operands, std::int64_t results, ffi::RemainingArgs args,
               ffi::RemainingRets rets) {
  static_assert(sizeof(Arrays) % sizeof(scanrec_array) == 0);
  constexpr int all = static_cast<int>(sizeof(Arrays) / sizeof(scanrec_array));
  buffers made(shape);
  Arrays arrays{};
  auto* array = reinterpret_cast<scanrec_array*>(&arrays);
  int dtype = -1;
  std::size_t next = 0;
  for (int i = 0; i < Operands; ++i) {
    if ((operands >> i & 1) == 0) continue;
    const auto buffer = args.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    const span dimensions(buffer->dimensions().begin(), buffer->dimensions().size());
    if (dimensions.size() != shape.size()) return ffi::Error::InvalidArgument("scanrec: rank");
    if (i == 0) dtype = dtype_of(buffer->element_type());
    array[i] = made.array(buffer->untyped_data(), dimensions);
  }
  next = 0;
  for (int i = 0; i < all - Operands; ++i) {
    if ((results >> i & 1) == 0) continue;
    auto buffer = rets.get<ffi::AnyBuffer>(next++);
    if (buffer.has_error()) return buffer.error();
    const span dimensions((*buffer)->dimensions().begin(), (*buffer)->dimensions().size());
    if (dimensions.size() != shape.size()) return ffi::Error::InvalidArgument("scanrec: rank");
    array[Operands + i] = made.array((*buffer)->untyped_data(), dimensions);
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
