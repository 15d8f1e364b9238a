// SPDX-License-Identifier: BSD-3-Clause
// A backend for GPUs as the tests call it, on arrays of the host: with a stream and a workspace of
// its own, exactly as large as the backend says, of any content. On the emulator the arrays are
// used where they are, on a GPU copies of them.
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
  static constexpr bool restores_states = Backend::restores_states;
  Backend options{.stream = nullptr};  // but for the stream and the workspace
};

template <class Backend>
std::int64_t workspace_bytes(const on_device<Backend>& on, const scanrec::problem& p) {
  return workspace_bytes(on.options, p);
}

template <class Backend, class R>
void run_recurrence(const on_device<Backend>& on, R r, scanrec::problem p) {
#if defined(__CUDACC__)
  const device_mirror mirror(p);
  const auto move = [&](auto& field) { field.data = mirror.on_device(field.data); };
  using namespace scanrec::detail;
  for_reads(r, move), for_writes(r, move), for_starts(r, move), for_ends(r, move);
  for (scanrec::array_use& array : p) array.data = mirror.on_device(array.data);

  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_cuda(cudaDeviceSynchronize());  // the copies are in another stream
  Backend backend = on.options;
  backend.stream = stream;
  backend.workspace.bytes = workspace_bytes(backend, p);
  const device_memory memory(static_cast<std::size_t>(backend.workspace.bytes));
  check_cuda(cudaMemsetAsync(memory.data(), 0xff, memory.bytes(), stream));
  backend.workspace.data = memory.data();
  run_recurrence(backend, r, p);
  check_cuda(cudaStreamSynchronize(stream));
  check_cuda(cudaStreamDestroy(stream));
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
