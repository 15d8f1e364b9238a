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
  std::array<std::unique_ptr<buffer>, 5> roles;
  void* get(int role, std::size_t bytes) {
    auto& slot = roles[role];
    if (!slot || slot->bytes() < bytes) {
      slot.reset();
      slot = std::make_unique<buffer>(bytes);
    }
    return slot->as<void>();
  }
};
inline arena memory;

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
