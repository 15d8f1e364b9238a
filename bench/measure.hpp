// SPDX-License-Identifier: BSD-3-Clause
// Shared parts of the benchmarks: rows, buffers, the numbers in them, and the measurement of a row.
//
// A benchmark is a list of rows. Google Benchmark runs them (google.hpp). scripts/compare runs the
// rows of two commits side by side (compare_module.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "copy_baseline.hpp"

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

/// Interface that times the functions of a row and receives its figures.
class runner {
 public:
  virtual ~runner() = default;
  /// Calls the functions in turn, repeatedly. The first one is the kernel that the row measures.
  /// Returns the median seconds of one call of each function.
  virtual std::vector<double> medians(const std::vector<std::function<void()>>& functions) = 0;
  virtual void counter(const char* name, double value) = 0;
  virtual void label(const std::string& text) = 0;
};

/// One line of a benchmark's table.
struct row {
  std::string name;
  int iterations;
  std::function<void(runner&)> run;  ///< sets up arrays and measures calls on them
};

/// The rows of a benchmark. Each benchmark defines this function; `quick`: fewer and smaller rows.
std::vector<row> rows(bool quick);

/// One buffer per role, grown as needed and shared by all workloads.
struct arena {
  std::array<std::unique_ptr<buffer>, 10> roles;
  void* (*provider)(int role, std::size_t bytes) = nullptr;  // replaces `roles` if set
  void* get(int role, std::size_t bytes) {
    if (provider) return provider(role, bytes);
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
// Fills with values in (-1, 1) for inputs and (0.5, 1) for gates. They repeat with a short period,
// so that filling is fast.
template <class T>
void fill(T* p, std::int64_t n, bool gate) {
  std::minstd_rand engine(gate ? 1 : 2);
  std::uniform_real_distribution<float> uniform(gate ? 0.5f : -1.0f, 1.0f);
  constexpr std::int64_t period = 8191;
  for (std::int64_t i = 0; i < std::min(n, period); ++i) p[i] = element_of<T>(uniform(engine));
  for (std::int64_t i = period; i < n; i += period)
    std::copy(p, p + std::min(period, n - i), p + i);
}

/// Times `kernel` in turn with its copy baseline on the given arrays and with copies of one of
/// them. The kernel reads and writes `moved` arrays of `elements` elements each. Reports GB/s of
/// all three, fraction_of_baseline = median baseline time / median kernel time, ns/element, and
/// steps.
inline void measure(runner& by, const std::function<void()>& kernel, traffic moved,
                    const read_arrays& in, const written_arrays& out, std::int64_t elements,
                    std::int64_t element_bytes, std::int64_t steps, int threads = 0) {
  if (threads <= 0) threads = default_threads();
  const std::int64_t bytes = elements * element_bytes;
  const auto baseline = [&](bool stream) { run_baseline(moved, in, out, bytes, stream, threads); };
  const std::vector<double> seconds =
      by.medians({kernel, [&] { baseline(false); }, [&] { baseline(true); },
                  [&] { run_memcpy(in[0], buffers.get(9, bytes), bytes, threads); }});
  const double own = seconds[0], baseline_time = std::min(seconds[1], seconds[2]);
  const double gigabytes =
      static_cast<double>(moved.reads + moved.writes) * static_cast<double>(bytes) * 1e-9;
  by.counter("GB/s", gigabytes / own);
  by.counter("baseline_GB/s", gigabytes / baseline_time);
  by.counter("memcpy_GB/s", 2e-9 * static_cast<double>(bytes) / seconds[3]);
  by.counter("fraction_of_baseline", baseline_time / own);
  by.counter("steps", static_cast<double>(steps));
  by.counter("ns/element", own * 1e9 / static_cast<double>(elements));
}

}  // namespace bench
