// SPDX-License-Identifier: BSD-3-Clause
// GPU utilities of the benchmarks: device memory, a stream, events, graphs, flushes of the L2
// cache, random numbers, and the largest difference between two arrays.
#pragma once

#include <cfloat>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include <scanrec/cuda/scan.cuh>

namespace bench {

using scanrec::cuda::detail::check;

/// Device memory.
class device_buffer {
 public:
  device_buffer() = default;
  explicit device_buffer(std::int64_t bytes) : bytes_(bytes) {
    if (bytes > 0) check(cudaMalloc(&data_, static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  ~device_buffer() { cudaFree(data_); }
  device_buffer(device_buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  device_buffer& operator=(device_buffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class event {
 public:
  event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~event() { cudaEventDestroy(event_); }
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "record"); }
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  [[nodiscard]] double seconds_since(const event& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

namespace kernels {

/// Reads all data. `sink` is never written in practice, but the compiler cannot know that.
template <class Vector>
__global__ void read_all(const Vector* data, std::int64_t n, unsigned* sink) {
  unsigned all = 0;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    all |= data[i].x | data[i].y | data[i].z | data[i].w;
  if (all == 1) *sink = all;
}

template <class T>
SCANREC_HD T element_of(float x) {
  if constexpr (scanrec::detail::is_complex<T>)
    return T(0.9f * x, 0.3f * x);
  else
    return static_cast<T>(x);
}

/// Fills `data` with numbers x between low and high that depend only on index and seed. Complex
/// elements are (0.9 + 0.3i) x.
template <class T>
__global__ void fill(T* data, std::int64_t n, float low, float high, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    // SplitMix64 (Steele, Lea and Flood 2014).
    std::uint64_t z = (static_cast<std::uint64_t>(i) + (seed << 40) + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const float unit = static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-24f;
    data[i] = element_of<T>(low + (high - low) * unit);
  }
}

template <class T>
__device__ float difference(T got, T want) {
  if constexpr (scanrec::detail::is_complex<T>) {
    return hypotf(got.real() - want.real(), got.imag() - want.imag()) /
           (1 + hypotf(want.real(), want.imag()));
  } else {
    const auto x = static_cast<float>(got), y = static_cast<float>(want);
    return fabsf(x - y) / (1 + fabsf(y));
  }
}
/// largest = max |got - want| / (1 + |want|), as the bits of a float. Values that are not finite
/// count as infinity.
template <class T>
__global__ void compare(const T* got, const T* want, std::int64_t n, unsigned* largest) {
  float most = 0;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const float one = difference(got[i], want[i]);
    most = one <= FLT_MAX ? fmaxf(most, one) : INFINITY;
  }
  atomicMax(largest, __float_as_uint(most));
}

}  // namespace kernels

/// The current GPU, the stream of all work, and memory that rows share.
class machine {
 public:
  cudaDeviceProp properties{};
  cudaStream_t stream = nullptr;

  static machine& here() {
    static machine one;
    return one;
  }
  /// One buffer per role, grown as needed.
  void* get(int role, std::int64_t bytes) {
    device_buffer& slot = roles_[role];
    if (slot.bytes() < bytes) {
      slot = device_buffer();
      slot = device_buffer(bytes);
    }
    return slot.data();
  }
  [[nodiscard]] static std::int64_t free_bytes() {
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }
  [[nodiscard]] unsigned enough_blocks() const {
    return 8u * static_cast<unsigned>(properties.multiProcessorCount);
  }
  void wait() const { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  /// Fills the L2 cache with unrelated data: first by writes, then by reads. The reads evict the
  /// written lines, so that no measured call pays for writing them back.
  void flush_cache() const {
    check(cudaMemsetAsync(flushed_[0].data(), 1, static_cast<std::size_t>(flushed_[0].bytes()),
                          stream),
          "cudaMemsetAsync");
    kernels::read_all<<<enough_blocks(), 256, 0, stream>>>(
        static_cast<const uint4*>(flushed_[1].data()), flushed_[1].bytes() / 16,
        static_cast<unsigned*>(word_.data()));
    check(cudaGetLastError(), "read_all");
  }
  /// Seconds of the work that `queue` queues. The cache is flushed first.
  double seconds_of(const std::function<void()>& queue) const {
    flush_cache();
    begin_.record(stream);
    queue();
    end_.record(stream);
    end_.wait();
    return end_.seconds_since(begin_);
  }
  /// Seconds of `times` consecutive calls of `queue`. The cache is not flushed.
  double seconds_of(const std::function<void()>& queue, int times) const {
    begin_.record(stream);
    for (int i = 0; i < times; ++i) queue();
    end_.record(stream);
    end_.wait();
    return end_.seconds_since(begin_);
  }

  template <class T>
  void fill(T* data, std::int64_t n, float low, float high, int seed) const {
    kernels::fill<<<enough_blocks(), 256, 0, stream>>>(data, n, low, high,
                                                       static_cast<std::uint64_t>(seed));
    check(cudaGetLastError(), "fill");
  }
  template <class T>
  double largest_difference(const T* got, const T* want, std::int64_t n) const {
    auto* const largest = static_cast<unsigned*>(word_.data());
    check(cudaMemsetAsync(largest, 0, 4, stream), "cudaMemsetAsync");
    kernels::compare<<<enough_blocks(), 256, 0, stream>>>(got, want, n, largest);
    check(cudaGetLastError(), "compare");
    float result = 0;
    check(cudaMemcpyAsync(&result, largest, 4, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    wait();
    return result;
  }

 private:
  machine() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (device_buffer& buffer : flushed_)
      buffer = device_buffer(2 * static_cast<std::int64_t>(properties.l2CacheSize) + (1 << 20));
  }

  device_buffer flushed_[2], word_{16};
  event begin_, end_;
  std::map<int, device_buffer> roles_;
};

/// Calls captured in a graph, to be replayed.
class captured_calls {
 public:
  captured_calls(const std::function<void()>& queue, int times) {
    const cudaStream_t stream = machine::here().stream;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    try {
      for (int i = 0; i < times; ++i) queue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph_);
      cudaGraphDestroy(graph_);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph_), "end capture");
    check(cudaGraphInstantiateWithFlags(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~captured_calls() {
    if (executable_) cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  captured_calls(const captured_calls&) = delete;
  captured_calls& operator=(const captured_calls&) = delete;

  /// The number of kernels and other queued operations.
  [[nodiscard]] std::size_t nodes() const {
    std::size_t n = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &n), "cudaGraphGetNodes");
    return n;
  }
  void replay() const {
    check(cudaGraphLaunch(executable_, machine::here().stream), "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace bench
