// SPDX-License-Identifier: BSD-3-Clause
// Workspaces and streams, both owned by the caller, and the interface by which backends plan and
// queue calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/error.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// A stream that the caller passes. It has no default value, so no call uses the default stream of
/// CUDA by omission.
class stream_ref {
 public:
  SCANREC_INLINE stream_ref(stream_t stream)  // NOLINT(google-explicit-constructor)
      : stream_(stream) {}
  SCANREC_INLINE operator stream_t() const { return stream_; }  // NOLINT

 private:
  stream_t stream_;
};

/// The contents of a workspace when a call begins.
enum class workspace_content {
  unknown,  ///< anything; a call that needs zeros first clears the workspace by one memset
  kept,     ///< zeros, or the contents left by earlier `kept` calls of any problem
};

/// Device memory of workspace_bytes(backend, problem) bytes. Each call in flight needs its own.
struct workspace {
  void* data = nullptr;    ///< aligned to 16 bytes, as memory from cudaMalloc is
  std::int64_t bytes = 0;  ///< size of the memory
  workspace_content content = workspace_content::unknown;
};

namespace detail {

/// The first bytes of a workspace, which count the calls of look_back. Every block draws a ticket,
/// which selects its tile (tile_position.cuh). The block that draws the last ticket of a call
/// prepares the header for the next call.
struct workspace_header {
  std::uint64_t drawn;   // low 32 bits: tickets drawn in this call; high 32 bits: earlier calls
  std::uint64_t halves;  // how often the number of calls has passed a multiple of 2^31; extends the
                         // 32-bit number of calls in `drawn`
};
/// The memory of every call begins after the header. If another backend cleared the header, the
/// count would restart, and look_back would accept messages of earlier calls.
inline constexpr std::int64_t header_bytes = sizeof(workspace_header);

/// Reserves `count` more bytes in a workspace of `bytes` bytes. Returns the offset of the first,
/// which is past the header, or 0 if `count` is 0.
inline std::int64_t reserve_bytes(std::int64_t& bytes, std::int64_t count) {
  if (count == 0) return 0;
  const std::int64_t first = bytes < header_bytes ? header_bytes : bytes;
  bytes = first + (count + 15) / 16 * 16;
  return first;
}

/// Throws argument_error if the workspace is absent, too small or not aligned.
inline void check_workspace(const char* call, const workspace& given, std::int64_t needed) {
  if (needed == 0) return;
  const auto refuse = [&](const scanrec::detail::text& got) {
    scanrec::detail::refuse(
        call, "workspace",
        scanrec::detail::text("at least ", needed,
                              " bytes of device memory, the value of workspace_bytes()"),
        got);
  };
  if (!given.data) refuse("a null pointer");
  if (given.bytes < needed) refuse(scanrec::detail::text(given.bytes, " bytes"));
  if (reinterpret_cast<std::uintptr_t>(given.data) % 16 != 0)
    refuse("memory that is not aligned to 16 bytes");
}

/// If the workspace is `kept`, clears the bytes [first, end) that this call has used, for later
/// calls. The header is not cleared.
inline void zero_used(const workspace& given, std::int64_t first, std::int64_t end,
                      stream_t stream) {
  if (first < header_bytes) first = header_bytes;
  if (given.content == workspace_content::kept && first < end)
    clear(static_cast<std::byte*>(given.data) + first, end - first, stream);
}

}  // namespace detail

/// A backend with two functions. plan_for(backend, problem) makes all decisions of a call,
/// including `workspace_bytes`. run_planned(backend, plan, recurrence, problem) queues the call.
template <class B>
concept plans_calls = requires(const B& on, const problem& p) {
  plan_for(on, p).workspace_bytes;
};

/// Bytes of device memory that a backend needs for a problem.
template <plans_calls Backend>
std::int64_t workspace_bytes(const Backend& on, const problem& p) {
  return plan_for(on, p).workspace_bytes;
}

/// Queues a recurrence whose arrays are in scan order.
template <plans_calls Backend, class R>
void run_recurrence(const Backend& on, const R& r, const problem& p) {
  const auto plan = plan_for(on, p);
  detail::check_workspace(p.call, on.workspace, plan.workspace_bytes);
  run_planned(on, plan, r, p);
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
