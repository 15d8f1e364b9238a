// SPDX-License-Identifier: BSD-3-Clause
// XLA's handlers for GPUs. They queue calls in XLA's stream, with workspaces from XLA's allocator.
// A handler frees its workspaces when it returns, but a call captured in a CUDA graph would run
// later. So the handlers are not marked as compatible with XLA's command buffers.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <scanrec/c/scanrec_cuda.h>

#include "xla_call.hpp"
#include "xla_typed.hpp"

namespace {

using namespace scanrec::native;

/// Device memory from the runtime. It is freed when the handler returns.
class scratch {
 public:
  explicit scratch(const xla::call_frame& frame) : api_(*frame.api), ctx_(frame.ctx) {}
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    for (auto& block : blocks_) discard(api_, api_.memory_free(&block));
  }

  /// Returns null if the runtime has no memory left.
  void* allocate(std::size_t bytes) {
    constexpr std::size_t alignment = 16;
    auto& block = blocks_.emplace_back(sized(xla::memory_free_args{{}, ctx_, bytes, nullptr}));
    auto args = sized(xla::memory_allocate_args{{}, ctx_, bytes, alignment, nullptr});
    if (discard(api_, api_.memory_allocate(&args)))
      blocks_.pop_back();
    else
      block.data = args.data;
    return args.data;
  }

 private:
  const xla::api& api_;
  xla::context* ctx_;
  std::vector<xla::memory_free_args> blocks_;
};

void* allocate(void* context, std::int64_t bytes) {
  return static_cast<scratch*>(context)->allocate(static_cast<std::size_t>(bytes));
}

/// Queues the call that a frame describes.
template <auto Function>
void run(const xla::call_frame& frame) {
  decoded_call<decltype(arrays_taken_by(Function))> call(frame);
  auto stream = sized(xla::stream_get_args{{}, frame.ctx, nullptr});
  if (discard(*frame.api, frame.api->stream_get(&stream)))
    throw failure{xla::internal, "scanrec: the call has no stream"};
  scratch memory(frame);
  const scanrec_cuda_queue queue{stream.stream, allocate, &memory};
  check(Function(&call.problem, &call.arrays, &queue), scanrec_cuda_last_error);
}

}  // namespace

SCANREC_HANDLER(scanrec_xla_cuda_linear_scan, scanrec_cuda_linear_scan)
SCANREC_HANDLER(scanrec_xla_cuda_linear_scan_vjp, scanrec_cuda_linear_scan_vjp)
SCANREC_HANDLER(scanrec_xla_cuda_linear_scan_jvp, scanrec_cuda_linear_scan_jvp)
SCANREC_HANDLER(scanrec_xla_cuda_gated_scan, scanrec_cuda_gated_scan)
SCANREC_HANDLER(scanrec_xla_cuda_gated_scan_vjp, scanrec_cuda_gated_scan_vjp)
SCANREC_HANDLER(scanrec_xla_cuda_selective_scan, scanrec_cuda_selective_scan)
SCANREC_HANDLER(scanrec_xla_cuda_selective_scan_vjp, scanrec_cuda_selective_scan_vjp)
