// SPDX-License-Identifier: BSD-3-Clause
// A wrapper that runs a GPU backend on host arrays. It adds a stream and a workspace of exactly the
// required size, filled with 0xff. The emulator uses the host arrays themselves, a GPU uses copies.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include <scanrec/cuda/scan.cuh>

#if defined(__CUDACC__)
#include "device_mirror.hpp"
#else
#include "emulator.hpp"
#endif

namespace tested {

template <class Backend>
struct on_device {
  static constexpr bool recomputes_states = Backend::recomputes_states;
  Backend options{.stream = nullptr};  // without stream and workspace
};

template <class Backend>
std::int64_t workspace_bytes(const on_device<Backend>& on, const scanrec::problem& p) {
  return workspace_bytes(on.options, p);
}

#if defined(__CUDACC__)
/// Extends the reset mask of a problem by the reset after the last step, if the scan reads that
/// reset. The mask in a problem has only the resets of its steps.
template <class R>
scanrec::problem with_last_reset(const R& r, scanrec::problem p) {
  if constexpr (requires { r.resets; })
    for (scanrec::array_use& array : p) {
      if (!array.one_step_more) continue;
      if (r.resets.before_first()) array.data -= array.strides.time * array.element_bytes;
      if (r.resets.before_first() || r.resets.after_last()) ++array.shape.time;
    }
  return p;
}
#endif

template <class Backend, class R>
void run_recurrence(const on_device<Backend>& on, R r, scanrec::problem p) {
#if defined(__CUDACC__)
  const device_mirror mirror(with_last_reset(r, p));
  const auto move = [&](auto& field) { field.data = mirror.on_device(field.data); };
  using namespace scanrec::detail;
  for_reads(r, move), for_writes(r, move), for_starts(r, move), for_ends(r, move);
  for (scanrec::array_use& array : p) array.data = mirror.on_device(array.data);

  Backend backend = on.options;
  backend.stream = test_stream();
  backend.workspace.bytes = workspace_bytes(backend, p);
  const device_memory memory(static_cast<std::size_t>(backend.workspace.bytes));
  check_cuda(cudaMemsetAsync(memory.data(), 0xff, memory.bytes(), test_stream()));
  backend.workspace.data = memory.data();
  run_recurrence(backend, r, p);
  mirror.copy_back();
#else
  cuda_on_host::stream stream;
  Backend backend = on.options;
  backend.stream = &stream;
  backend.workspace.bytes = workspace_bytes(backend, p);
  const auto bytes = static_cast<std::size_t>(backend.workspace.bytes);
  const std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
  std::memset(memory.get(), 0xff, bytes);
  backend.workspace.data = memory.get();
  run_recurrence(backend, r, p);
#endif
}

}  // namespace tested
