// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks share: time, medians, buffers and what is in them.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <benchmark/benchmark.h>

#include "streaming_twin.hpp"

namespace bench {

inline double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

/// One buffer per role, grown as needed and shared by all workloads.
struct arena {
  std::array<std::unique_ptr<buffer>, 10> roles;
  void* get(int role, std::size_t bytes) {
    auto& slot = roles[role];
    if (!slot || slot->bytes() < bytes) {
      slot.reset();
      slot = std::make_unique<buffer>(bytes);
    }
    return slot->as<void>();
  }
};
inline arena buffers;

template <class T>
T element_of(float x) {
  if constexpr (scanrec::detail::is_complex<T>)
    return T(0.9f * x, 0.3f * x);
  else
    return static_cast<T>(x);
}
// A short period keeps the fill fast; values in (-1, 1) for inputs, (0.5, 1) for gates.
template <class T>
void fill(T* p, std::int64_t n, bool gate) {
  std::minstd_rand engine(gate ? 1 : 2);
  std::uniform_real_distribution<float> uniform(gate ? 0.5f : -1.0f, 1.0f);
  constexpr std::int64_t period = 8191;
  for (std::int64_t i = 0; i < std::min(n, period); ++i) p[i] = element_of<T>(uniform(engine));
  for (std::int64_t i = period; i < n; i += period)
    std::copy(p, p + std::min(period, n - i), p + i);
}

/// Times `kernel`, which moves arrays of `elements` elements each, between runs of its twin over
/// the given arrays and copies of one of them, and reports: GB/s of all three, fraction_of_twin =
/// median twin time / median time of the kernel, ns/element, steps.
inline void measure(benchmark::State& state, const std::function<void()>& kernel, traffic moved,
                    const read_arrays& in, const written_arrays& out, std::int64_t elements,
                    std::int64_t element_bytes, std::int64_t steps, int threads = 0) {
  if (threads <= 0) threads = default_threads();
  const std::int64_t bytes = elements * element_bytes;
  void* const copy_of_first = buffers.get(9, bytes);
  const auto twin = [&](bool stream) { run_twin(moved, in, out, bytes, stream, threads); };
  // Short calls are timed in runs of them.
  const double once = (kernel(), seconds_of(kernel));
  const int repeat = static_cast<int>(std::clamp(5e-3 / once, 1.0, 1e5));
  const auto repeated = [&](const std::function<void()>& f) {
    return seconds_of([&] {
             for (int i = 0; i < repeat; ++i) f();
           }) /
           repeat;
  };
  std::vector<double> own, plain, stream, copy;
  twin(false), twin(true);
  for (auto _ : state) {
    own.push_back(repeated(kernel));
    plain.push_back(repeated([&] { twin(false); }));
    stream.push_back(repeated([&] { twin(true); }));
    copy.push_back(repeated([&] { run_memcpy(in[0], copy_of_first, bytes, threads); }));
    state.SetIterationTime(own.back());
  }
  const double gigabytes =
      static_cast<double>(moved.reads + moved.writes) * static_cast<double>(bytes) * 1e-9;
  const double twin_time = std::min(median(plain), median(stream));
  state.counters["GB/s"] = gigabytes / median(own);
  state.counters["twin_GB/s"] = gigabytes / twin_time;
  state.counters["memcpy_GB/s"] = 2e-9 * static_cast<double>(bytes) / median(copy);
  state.counters["fraction_of_twin"] = twin_time / median(own);
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["ns/element"] = median(own) * 1e9 / static_cast<double>(elements);
}

/// Lets the allocator keep what it was given, as those of frameworks do: with glibc's defaults the
/// workspaces of the backends that write maps down would be new pages in every call.
inline void keep_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

/// The rest of a main: takes --quick from the arguments, lets `add` register the benchmarks, runs
/// them, and says in the results what made them.
inline int run_benchmarks(int argc, char** argv, const std::function<void(bool quick)>& add,
                          benchmark::BenchmarkReporter* display = nullptr) {
  const auto is_quick = [](const char* argument) {
    return std::string_view(argument) == "--quick";
  };
  char** const end = std::remove_if(argv + 1, argv + argc, is_quick);
  keep_memory();
  add(end != argv + argc);
  argc = static_cast<int>(end - argv);
  benchmark::AddCustomContext("scanrec_threads", std::to_string(default_threads()));
  benchmark::AddCustomContext("commit", SCANREC_COMMIT);
  benchmark::AddCustomContext("compiler", __VERSION__);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks(display);
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
