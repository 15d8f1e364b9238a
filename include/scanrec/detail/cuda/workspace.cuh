// SPDX-License-Identifier: BSD-3-Clause
// The memory that calls work in, and the stream they are queued in. Both belong to the caller. How
// a backend plans a call and queues it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/error.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// A stream that has been named: no call falls back to the default stream by itself.
class stream_ref {
 public:
  SCANREC_INLINE stream_ref(stream_t stream)  // NOLINT(google-explicit-constructor)
      : stream_(stream) {}
  SCANREC_INLINE operator stream_t() const { return stream_; }  // NOLINT

 private:
  stream_t stream_;
};

/// What a workspace holds when a call begins.
enum class workspace_content {
  unknown,  ///< anything; a call that depends on it clears the workspace first, by one memset
  kept,     ///< zeros, or what calls that say the same have left; they may be of other problems
};

/// Device memory for calls to work in: workspace_bytes(backend, problem) of them, one workspace for
/// each call in flight.
struct workspace {
  void* data = nullptr;    ///< aligned to 16 bytes, as cudaMalloc and its siblings give it
  std::int64_t bytes = 0;  ///< how much there is
  workspace_content content = workspace_content::unknown;
};

namespace detail {

/// Throws argument_error unless there is as much memory as a call needs.
inline void check_workspace(const char* call, const workspace& given, std::int64_t needed) {
  if (needed == 0) return;
  const auto refuse = [&](const scanrec::detail::text& got) {
    scanrec::detail::refuse(
        call, "workspace",
        scanrec::detail::text(needed, " bytes of device memory, as workspace_bytes() says"), got);
  };
  if (!given.data) refuse("a null pointer");
  if (given.bytes < needed) refuse(scanrec::detail::text(given.bytes, " bytes"));
  if (reinterpret_cast<std::uintptr_t>(given.data) % 16 != 0)
    refuse("memory that is not aligned to 16 bytes");
}

/// Queues the clearing of what a call has left in a workspace from a byte on, if it must be kept
/// fit for calls that depend on it.
inline void zero_used(const workspace& given, std::int64_t first, std::int64_t bytes,
                      stream_t stream) {
  if (given.content == workspace_content::kept)
    clear(static_cast<std::byte*>(given.data) + first, bytes, stream);
}

}  // namespace detail

/// A backend with plan_for(backend, problem), which returns all that a call does, `workspace_bytes`
/// among it, and run_planned(backend, plan, recurrence, problem), which queues that.
template <class B>
concept plans_calls = requires(const B& on, const problem& p) {
  plan_for(on, p).workspace_bytes;
};

/// Bytes of device memory that the workspace of a backend must have for a problem.
template <plans_calls Backend>
std::int64_t workspace_bytes(const Backend& on, const problem& p) {
  return plan_for(on, p).workspace_bytes;
}

/// Queues a recurrence, given in scan order.
template <plans_calls Backend, class R>
void run_recurrence(const Backend& on, const R& r, const problem& p) {
  const auto plan = plan_for(on, p);
  detail::check_workspace(p.call, on.workspace, plan.workspace_bytes);
  run_planned(on, plan, r, p);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
