// SPDX-License-Identifier: BSD-3-Clause
// Copies of the arrays of a problem in GPU memory, with the alignment of the host arrays.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/detail/problem/check.hpp>
#include <scanrec/problem.hpp>

#include "arena.hpp"

namespace tested {

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

/// The stream for all calls and copies of this process.
inline cudaStream_t test_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

/// The arena for small blocks of device memory: 64 MiB, filled with 0xff on creation. Tests
/// allocate hundreds of thousands of blocks, and cudaMalloc and cudaFree wait for the GPU. If the
/// environment variable SCANREC_TEST_ARENA is 0, the arena is empty. Set it to 0 under
/// compute-sanitizer, whose memcheck knows only the bounds of allocations.
inline arena& device_arena() {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  static arena blocks(
      [] {
        const char* const given = std::getenv("SCANREC_TEST_ARENA");
        const std::string value = given ? given : "";
        if (!value.empty() && value != "0" && value != "1")
          throw std::runtime_error(
              "environment variable SCANREC_TEST_ARENA: expected 0 or 1, got '" + value + "'");
        void* first = nullptr;
        if (value == "0") return static_cast<std::byte*>(first);
        check_cuda(cudaMalloc(&first, bytes));
        check_cuda(cudaMemset(first, 0xff, bytes));
        check_cuda(cudaDeviceSynchronize());
        return static_cast<std::byte*>(first);
      }(),
      bytes);
  return blocks;
}

/// Device memory whose address has a given remainder modulo 256. The kernels that use it must have
/// finished before it is released.
class device_memory {
 public:
  explicit device_memory(std::size_t bytes, std::size_t remainder = 0)
      : start_(device_arena().allocate(bytes + 512)), in_arena_(start_ != nullptr), bytes_(bytes) {
    if (!in_arena_) check_cuda(cudaMalloc(&start_, bytes + 512));
    data_ = static_cast<std::byte*>(start_) + remainder % 256;
  }
  ~device_memory() {
    if (!in_arena_) {
      cudaFree(start_);
    } else if (start_) {
      if (std::uncaught_exceptions() > 0)
        cudaDeviceSynchronize();  // a call may have failed half-way
      device_arena().release();
    }
  }
  device_memory(device_memory&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)),
        data_(other.data_),
        in_arena_(other.in_arena_),
        bytes_(other.bytes_) {}
  device_memory& operator=(device_memory&&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* start_ = nullptr;
  std::byte* data_ = nullptr;
  bool in_arena_ = false;
  std::size_t bytes_;
};

/// Copies of the memory that the arrays of a problem span. Arrays that overlap or adjoin share a
/// copy.
class device_mirror {
 public:
  explicit device_mirror(const scanrec::problem& p) {
    std::vector<span> spans;
    for (const scanrec::array_use& array : p) {
      if (!array.data || scanrec::detail::placeless(array)) continue;
      const auto range = scanrec::detail::range_of(array);
      auto* const at = const_cast<std::byte*>(array.data);
      if (range.high > range.low) spans.push_back({at + range.low, at + range.high});
    }
    std::sort(spans.begin(), spans.end(),
              [](const span& x, const span& y) { return x.begin < y.begin; });
    for (const span& s : spans)
      if (!spans_.empty() && s.begin <= spans_.back().end)
        spans_.back().end = std::max(spans_.back().end, s.end);
      else
        spans_.push_back(s);
    for (const span& s : spans_) {
      const auto bytes = static_cast<std::size_t>(s.end - s.begin);
      copies_.emplace_back(bytes, reinterpret_cast<std::uintptr_t>(s.begin) % 256);
      check_cuda(cudaMemcpyAsync(copies_.back().data(), s.begin, bytes, cudaMemcpyHostToDevice,
                                 test_stream()));
    }
  }

  /// Returns the device address of the copy of `host`, or `host` itself if it is outside all
  /// arrays.
  template <class T>
  T* on_device(T* host) const {
    const auto* const at = reinterpret_cast<const std::byte*>(host);
    for (std::size_t i = 0; i < spans_.size(); ++i)
      if (at >= spans_[i].begin && at < spans_[i].end)
        return reinterpret_cast<T*>(copies_[i].data() + (at - spans_[i].begin));
    return host;
  }
  /// Copies everything back and waits until the stream is done.
  void copy_back() const {
    for (std::size_t i = 0; i < spans_.size(); ++i)
      check_cuda(cudaMemcpyAsync(spans_[i].begin, copies_[i].data(), copies_[i].bytes(),
                                 cudaMemcpyDeviceToHost, test_stream()));
    check_cuda(cudaStreamSynchronize(test_stream()));
  }

 private:
  struct span {
    std::byte *begin, *end;
  };
  std::vector<span> spans_;
  std::vector<device_memory> copies_;
};

}  // namespace tested
