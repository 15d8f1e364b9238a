// SPDX-License-Identifier: BSD-3-Clause
// The copy baseline on the GPU. It reads and writes the same arrays as a call, 16 bytes at a time,
// but computes no recurrence. Calls are measured against the fastest of several launch shapes, with
// ordinary and with streaming accesses.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device.cuh"

namespace bench {

/// Numbers of arrays of equal size that a call reads and writes.
struct traffic {
  int reads = 1, writes = 1;
};
/// The arrays of a copy baseline. The sizes are the largest supported numbers of arrays.
using read_arrays = std::array<const void*, 5>;
using written_arrays = std::array<void*, 3>;

namespace kernels {

enum class access { plain, streaming };

template <int Reads, int Writes>
struct baseline_arrays {
  const uint4* in[Reads];
  uint4* out[Writes > 0 ? Writes : 1];  // if Writes is 0: in practice not written
};

/// A block takes chunks of Ahead vectors per thread. A thread loads all its vectors of a chunk
/// before it stores any. Indices beyond the end are clamped to the last vector, which avoids
/// branches.
template <int Reads, int Writes, int Ahead, access Access>
__global__ void copy_baseline(baseline_arrays<Reads, Writes> arrays, std::int64_t vectors) {
  const std::int64_t chunk = static_cast<std::int64_t>(Ahead) * blockDim.x;
  uint4 all{};
  for (std::int64_t first = blockIdx.x * chunk; first < vectors; first += gridDim.x * chunk) {
    const auto at = [&](int k) {
      return min(first + k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x, vectors - 1);
    };
    uint4 sum[Ahead]{};
#pragma unroll
    for (int k = 0; k < Ahead; ++k)
#pragma unroll
      for (int r = 0; r < Reads; ++r) {
        const uint4* const from = arrays.in[r] + at(k);
        const uint4 x = Access == access::plain ? __ldg(from) : __ldcs(from);
        sum[k].x ^= x.x, sum[k].y ^= x.y, sum[k].z ^= x.z, sum[k].w ^= x.w;
      }
#pragma unroll
    for (int k = 0; k < Ahead; ++k) {
#pragma unroll
      for (int w = 0; w < Writes; ++w) {
        uint4* const to = arrays.out[w] + at(k);
        if constexpr (Access == access::plain)
          *to = sum[k];
        else
          __stcs(to, sum[k]);
      }
      all.x ^= sum[k].x, all.y ^= sum[k].y, all.z ^= sum[k].z, all.w ^= sum[k].w;
    }
  }
  if constexpr (Writes == 0)
    if ((all.x & all.y & all.z & all.w) == 0xffffffffu) *arrays.out[0] = all;
}

}  // namespace kernels

/// A launch shape of the copy baseline.
struct baseline_shape {
  kernels::access access = kernels::access::plain;
  int ahead = 1, threads = 256;
  unsigned most_blocks = 0;  // more chunks are processed in a grid-stride loop; 0: no limit

  [[nodiscard]] std::string text() const {
    return std::string(access == kernels::access::plain ? "plain" : "streaming") + " " +
           std::to_string(ahead) + "x16 B, " + std::to_string(threads) + " threads" +
           (most_blocks ? ", striding" : "");
  }
};

/// The copy baseline of a call with this traffic over arrays of `bytes` bytes.
class copy_baseline {
 public:
  copy_baseline(traffic moved, const read_arrays& in, const written_arrays& out, std::int64_t bytes)
      : moved_(moved), in_(in), out_(out), bytes_(bytes) {
    static std::map<std::tuple<int, int, std::int64_t>, baseline_shape> best;
    const auto key = std::tuple(moved.reads, moved.writes, bytes);
    if (const auto found = best.find(key); found != best.end()) {
      shape_ = found->second;
      return;
    }
    best[key] = shape_ = best_shape();
  }
  void run() const { run(shape_); }
  [[nodiscard]] std::string text() const {
    return "baseline " + std::to_string(moved_.reads) + "R+" + std::to_string(moved_.writes) +
           "W, " + shape_.text();
  }

 private:
  [[nodiscard]] baseline_shape best_shape() const {
    const machine& gpu = machine::here();
    baseline_shape best;
    double best_seconds = 1e9;
    for (const auto access : {kernels::access::plain, kernels::access::streaming})
      for (const int ahead : {1, 2, 4})
        for (const int threads : {256, 512})
          for (const unsigned most_blocks : {0u, gpu.enough_blocks()}) {
            const baseline_shape shape{access, ahead, threads, most_blocks};
            std::array<double, 3> seconds{};
            for (double& s : seconds) s = gpu.seconds_of([&] { run(shape); });
            std::sort(seconds.begin(), seconds.end());
            if (seconds[1] < best_seconds) best_seconds = seconds[1], best = shape;
          }
    return best;
  }

  void run(const baseline_shape& shape) const {
    const bool found = run_if<1, 1>(shape) || run_if<2, 0>(shape) || run_if<2, 1>(shape) ||
                       run_if<3, 1>(shape) || run_if<3, 2>(shape) || run_if<4, 3>(shape) ||
                       run_if<5, 3>(shape);
    if (!found) throw std::logic_error("no copy baseline for these numbers of arrays");
    check(cudaGetLastError(), "copy_baseline");
  }
  template <int Reads, int Writes>
  bool run_if(const baseline_shape& shape) const {
    if (moved_.reads != Reads || moved_.writes != Writes) return false;
    using kernels::access;
    shape.access == access::plain ? run_ahead<Reads, Writes, access::plain>(shape)
                                  : run_ahead<Reads, Writes, access::streaming>(shape);
    return true;
  }
  template <int Reads, int Writes, kernels::access Access>
  void run_ahead(const baseline_shape& shape) const {
    switch (shape.ahead) {
      case 1:
        return launch<Reads, Writes>(kernels::copy_baseline<Reads, Writes, 1, Access>, shape);
      case 2:
        return launch<Reads, Writes>(kernels::copy_baseline<Reads, Writes, 2, Access>, shape);
      default:
        return launch<Reads, Writes>(kernels::copy_baseline<Reads, Writes, 4, Access>, shape);
    }
  }
  template <int Reads, int Writes>
  void launch(void (*kernel)(kernels::baseline_arrays<Reads, Writes>, std::int64_t),
              const baseline_shape& shape) const {
    kernels::baseline_arrays<Reads, Writes> arrays{};
    for (int r = 0; r < Reads; ++r) arrays.in[r] = static_cast<const uint4*>(in_[r]);
    for (int w = 0; w < Writes; ++w) arrays.out[w] = static_cast<uint4*>(out_[w]);
    if (Writes == 0) arrays.out[0] = static_cast<uint4*>(out_[0]);
    const std::int64_t vectors = bytes_ / 16;
    const std::int64_t chunk = static_cast<std::int64_t>(shape.ahead) * shape.threads;
    std::int64_t blocks = (vectors + chunk - 1) / chunk;
    if (shape.most_blocks > 0) blocks = std::min<std::int64_t>(blocks, shape.most_blocks);
    kernel<<<static_cast<unsigned>(blocks), shape.threads, 0, machine::here().stream>>>(arrays,
                                                                                        vectors);
  }

  traffic moved_;
  read_arrays in_;
  written_arrays out_;
  std::int64_t bytes_;
  baseline_shape shape_;
};

}  // namespace bench
