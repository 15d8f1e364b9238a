// SPDX-License-Identifier: BSD-3-Clause
// The copy baseline reads and writes as many arrays as a call, but computes no recurrence. Calls
// are measured against it in the same process.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <scanrec/scan.hpp>

namespace bench {

/// Zeroed memory, aligned to 2 MiB, on huge pages if the system grants them.
class buffer {
 public:
  explicit buffer(std::size_t bytes) : bytes_((bytes + huge - 1) / huge * huge) {
    data_ = std::aligned_alloc(huge, bytes_);
    if (!data_) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~buffer() { std::free(data_); }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t huge = 2 << 20;
  std::size_t bytes_;
  void* data_;
};

inline int default_threads() { return scanrec::detail::default_threads(); }

/// Runs work(worker) on `threads` threads.
inline void in_parallel(int threads, const std::function<void(int)>& work) {
  scanrec::detail::run_workers(threads, work);
}

using line = scanrec::simd::pack<float, 16>;

/// Numbers of arrays of equal size that a kernel reads and writes.
struct traffic {
  int reads, writes;
};
/// The arrays of a copy baseline. Unused elements are null.
using read_arrays = std::array<const float*, 6>;
using written_arrays = std::array<float*, 4>;

/// Reads `Reads` arrays and writes `Writes` others, one cache line at a time. Each array has
/// `bytes` bytes. If nothing is written, `sink` receives sums, so that the reads are not optimised
/// away.
template <int Reads, int Writes>
void baseline(const read_arrays& in, const written_arrays& out, std::int64_t bytes, bool stream,
              int threads, float* sink) {
  using namespace scanrec::simd;
  const std::int64_t lines = bytes / 64;
  in_parallel(threads, [&](int worker) {
    const std::int64_t first = lines * worker / threads, last = lines * (worker + 1) / threads;
    line sum(0.0f), sum2(0.0f);
    for (std::int64_t i = first; i < last; ++i) {
      line value = load_unit<line>(in[0] + 16 * i);
      for (int r = 1; r < Reads; ++r) value = value + load_unit<line>(in[r] + 16 * i);
      if constexpr (Writes == 0) {
        sum2 = sum + value;
        std::swap(sum, sum2);
      }
      for (int w = 0; w < Writes; ++w)
        stream ? stream_unit(out[w] + 16 * i, value) : store_unit(out[w] + 16 * i, value);
    }
    if (stream) stream_fence();
    if (Writes == 0) sink[worker] = scanrec::simd::sum(sum + sum2);
  });
}

inline void run_baseline(traffic moved, const read_arrays& in, const written_arrays& out,
                         std::int64_t bytes, bool stream, int threads) {
  static std::vector<float> sink(1024);
  bool found = false;
  const auto run_if = [&]<int Reads, int Writes>(std::integer_sequence<int, Reads, Writes>) {
    if (moved.reads != Reads || moved.writes != Writes) return;
    found = true;
    baseline<Reads, Writes>(in, out, bytes, stream, threads, sink.data());
  };
  run_if(std::integer_sequence<int, 1, 1>{});
  run_if(std::integer_sequence<int, 2, 0>{});
  run_if(std::integer_sequence<int, 2, 1>{});
  run_if(std::integer_sequence<int, 3, 1>{});
  run_if(std::integer_sequence<int, 3, 2>{});
  run_if(std::integer_sequence<int, 4, 1>{});
  run_if(std::integer_sequence<int, 4, 2>{});
  run_if(std::integer_sequence<int, 4, 3>{});
  run_if(std::integer_sequence<int, 5, 3>{});
  run_if(std::integer_sequence<int, 5, 4>{});
  if (!found) throw std::logic_error("no copy baseline for these numbers of arrays");
}

/// Copies an array with memcpy, on `threads` threads.
inline void run_memcpy(const void* from, void* to, std::int64_t bytes, int threads) {
  in_parallel(threads, [&](int worker) {
    const std::int64_t first = bytes / 64 * worker / threads * 64;
    const std::int64_t last = bytes / 64 * (worker + 1) / threads * 64;
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<std::size_t>(last - first));
  });
}

}  // namespace bench
