// SPDX-License-Identifier: BSD-3-Clause
// The calls for GPUs run on the backend `cuda::automatic`, in memory that the caller lends.
#pragma once

#include <cstdint>
#include <new>

#include <scanrec/cuda/scan.cuh>
#include <scanrec/cuda/selective_scan.cuh>

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

/// Whether QRNN pooling has a kernel for every kind, or one that chooses when it runs. Kernels for
/// GPUs are slower where gradients are absent that a cell could have.
inline constexpr bool kernel_per_kind = true;
/// Whether kernels are to be small.
inline constexpr bool compact = false;

/// Whether one kernel of QRNN pooling serves calls that keep states and calls that do not: a test
/// per step is little beside its activations, and half the kernels take half as long to compile.
inline constexpr bool kernel_keeps_if_given = true;

/// Device memory for a call. Calls of one request share it: the stream runs one after the other.
inline cuda::workspace memory_of(gpu_queue& queue, std::int64_t bytes) {
  if (bytes > queue.bytes) {
    queue.memory = queue.given.allocate(queue.given.context, bytes);
    if (queue.memory == nullptr) throw std::bad_alloc();
    queue.bytes = bytes;
  }
  return {.data = queue.memory, .bytes = queue.bytes};
}

/// Queues run(backend), or checks the arguments alone; problem_of() does that.
template <class T, class ProblemOf, class Run>
void on_backend(const call& c, ProblemOf problem_of, Run run) {
  const problem p = problem_of();
  if (c.check_only) return;
  cuda::automatic on{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)};
  on.workspace = memory_of(*c.queue, workspace_bytes(on, p));
  run(on);
}

/// The backend of a selective scan, with the memory that bytes_of(backend) asks for.
template <class BytesOf>
cuda::automatic selective_backend(const selective_call& c, const BytesOf& bytes_of) {
  cuda::automatic on{.stream = static_cast<cuda::stream_t>(c.queue->given.stream)};
  on.workspace = memory_of(*c.queue, bytes_of(on));
  return on;
}

}  // namespace scanrec::native::SCANREC_LEVEL
