// SPDX-License-Identifier: BSD-3-Clause
// Stress tests of the protocol between blocks of cuda::look_back on a GPU: up to 16384 tiles per
// sequence, while kernels in another stream occupy multiprocessors.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/inclusive_scan.hpp>

#include "look_back_stress.hpp"
#include "merge_means.hpp"

// The namespace has a name because nvcc confuses an unnamed one with those that test cases open.
namespace stress_on_gpu {

using scanrec::cuda::detail::check;
using tested::stress_finding;

constexpr unsigned threads = 256;
unsigned blocks_for(std::size_t n) { return static_cast<unsigned>((n + threads - 1) / threads); }

template <class T>
__global__ void multiply_all(T* to, const T* from, T factor, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) to[i] = from[i] * factor;
}

template <class T>
__global__ void compare_all(const T* got, const T* want, T factor, std::size_t n,
                            unsigned long long call, stress_finding* found) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n && got[i] != want[i] * factor) {
    atomicAdd(&found->differences, 1ull);
    atomicMin(&found->first, (call << 40) + i);
  }
}

constexpr unsigned busy_threads = 1024;
/// Each block keeps half a multiprocessor busy for `clocks` clocks and reads memory meanwhile.
__global__ void __launch_bounds__(busy_threads)
    keep_busy(long long clocks, const std::uint32_t* memory, unsigned words, std::uint32_t* sink) {
  const long long begin = clock64();
  unsigned i = blockIdx.x * busy_threads + threadIdx.x;
  std::uint32_t seen = 0;
  while (clock64() - begin < clocks) {
    seen += *const_cast<const volatile std::uint32_t*>(memory + i % words);
    i += 1009 * busy_threads;
  }
  if (seen != 0) *sink = seen;  // never: the memory is zeros
}

/// An array in device memory.
template <class T>
class device_array {
 public:
  device_array() = default;
  explicit device_array(std::size_t n) : size_(n) {
    check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc");
  }
  explicit device_array(const std::vector<T>& from) : device_array(from.size()) {
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  device_array(device_array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  device_array& operator=(device_array&&) = delete;
  ~device_array() { cudaFree(data_); }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
class gpu {
 public:
  using element = T;
  using array = device_array<T>;

  gpu() : found_(most_kinds), busy_(busy_words + 1) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMemset(busy_.data(), 0, busy_.size() * sizeof(std::uint32_t)), "cudaMemset");
    forget();
  }
  gpu(const gpu&) = delete;
  gpu& operator=(const gpu&) = delete;
  ~gpu() { cudaStreamDestroy(stream_), cudaStreamDestroy(other_); }

  cudaStream_t stream() const { return stream_; }
  void* workspace(std::int64_t bytes) {
    workspace_.emplace_back(static_cast<std::size_t>(bytes));
    check(cudaMemset(workspace_.back().data(), 0, static_cast<std::size_t>(bytes)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return workspace_.back().data();
  }
  void multiply(array& to, const array& from, T factor) {
    multiply_all<<<blocks_for(to.size()), threads, 0, stream_>>>(to.data(), from.data(), factor,
                                                                 to.size());
    check(cudaGetLastError(), "multiply_all");
  }
  void compare(const array& got, const array& want, T factor, std::size_t kind, int call) {
    REQUIRE(kind < most_kinds);
    compare_all<<<blocks_for(want.size()), threads, 0, stream_>>>(
        got.data(), want.data(), factor, want.size(), static_cast<unsigned long long>(call),
        found_.data() + kind);
    check(cudaGetLastError(), "compare_all");
  }
  /// Occupies up to 96 multiprocessors for up to about 40 microseconds in another stream. The
  /// return value has no meaning.
  int beside(int call) {
    const auto chosen = static_cast<std::uint32_t>(call) * 2654435769u >> 8;
    const unsigned blocks = 1 + chosen % 192;
    const auto clocks = static_cast<long long>(chosen / 192 % 70000);
    keep_busy<<<blocks, busy_threads, 0, other_>>>(clocks, busy_.data(), busy_words,
                                                   busy_.data() + busy_words);
    check(cudaGetLastError(), "keep_busy");
    return 0;
  }
  std::vector<stress_finding> findings(std::size_t kinds) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<stress_finding> found(kinds);
    check(cudaMemcpy(found.data(), found_.data(), kinds * sizeof(stress_finding),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    forget();
    return found;
  }

 private:
  static constexpr std::size_t most_kinds = 64;
  static constexpr unsigned busy_words = 1u << 22;

  void forget() {
    const std::vector<stress_finding> none(most_kinds);
    check(cudaMemcpy(found_.data(), none.data(), most_kinds * sizeof(stress_finding),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  device_array<stress_finding> found_;
  device_array<std::uint32_t> busy_;
  std::vector<device_array<std::byte>> workspace_;
};

/// The object, with one workspace, that all test cases with these template arguments share.
template <class T, bool Rounded = false>
tested::look_back_stress<gpu<T>>& stress() {
  static gpu<T> machine;
  static tested::look_back_stress<gpu<T>> all(machine, {.lone_steps = std::int64_t{1} << 24,
                                                        .wide_steps = std::int64_t{1} << 20,
                                                        .row_steps = 70000,
                                                        .rounds = 200,
                                                        .segment_steps = 0,
                                                        .least_blocks = 64,
                                                        .rounded = Rounded});
  return all;
}

}  // namespace stress_on_gpu

using stress_on_gpu::stress;

TEST_CASE("uint32: different problems on one kept workspace equal `sequential` bit for bit",
          "[gpu][protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<std::uint32_t>().in_turn();
}

TEST_CASE("uint32: one call repeated on a kept workspace equals `sequential` bit for bit",
          "[gpu][protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<std::uint32_t>().one_after_the_other();
}

TEST_CASE("double: different problems on one kept workspace equal `sequential` bit for bit",
          "[gpu][protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double>().in_turn();
}

TEST_CASE("double: one call repeated on a kept workspace equals `sequential` bit for bit",
          "[gpu][protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double>().one_after_the_other();
}

TEST_CASE("double: rounded results have the same bits in every call",
          "[gpu][protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double, true>().one_after_the_other();
}

TEST_CASE("an operator with products gives the same bits in every call",
          "[gpu][protocol][operator][determinism][cuda_look_back]") {
  using stress_on_gpu::check, tested::mean_of, tested::merge_means;
  constexpr std::size_t n = std::size_t{1} << 21, bytes = n * sizeof(mean_of);
  std::vector<mean_of> in(n), first(n), now(n);
  std::uint32_t seed = 7;
  for (mean_of& x : in) {
    seed = seed * 1664525u + 1013904223u;
    x = {1 + (seed >> 8) * 0x1p-24, static_cast<double>(seed % 4096) - 2048};
  }
  const stress_on_gpu::device_array<mean_of> from(in), to(n);
  const scanrec::extents shape{.batch = 1, .time = n, .channel = 1};
  const scanrec::sequence_view<mean_of> elements(from.data(), shape), prefixes(to.data(), shape);
  stress_on_gpu::gpu<double> machine;
  scanrec::cuda::look_back on{.stream = machine.stream()};
  on.workspace.bytes = scanrec::cuda::workspace_bytes(
      on, scanrec::inclusive_scan_problem(merge_means{}, elements, prefixes));
  on.workspace.data = machine.workspace(on.workspace.bytes);
  on.workspace.content = scanrec::cuda::workspace_content::kept;
  for (int call = 0; call < 100; ++call) {
    if (call > 0) machine.beside(call);
    inclusive_scan(on, merge_means{}, elements, prefixes);
    std::vector<mean_of>& got = call == 0 ? first : now;
    check(cudaMemcpyAsync(got.data(), to.data(), bytes, cudaMemcpyDeviceToHost, machine.stream()),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(machine.stream()), "cudaStreamSynchronize");
    INFO("call " << call);
    if (call > 0) REQUIRE(std::memcmp(now.data(), first.data(), bytes) == 0);
  }
  CHECK(first.back().count > n);
}
