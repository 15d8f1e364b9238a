// SPDX-License-Identifier: BSD-3-Clause
// Runs the rows of a benchmark with Google Benchmark.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <benchmark/benchmark.h>

#include "measure.hpp"

namespace bench {

/// Reports to a state of Google Benchmark. An iteration calls every function once, or many times if
/// a call is short.
class google_runner : public runner {
 public:
  explicit google_runner(benchmark::State& state) : state_(state) {}

  std::vector<double> medians(const std::vector<std::function<void()>>& functions) override {
    for (const auto& f : functions) f();
    const double once = seconds_of(functions[0]);
    const int repeat = static_cast<int>(std::clamp(5e-3 / once, 1.0, 1e5));
    std::vector<std::vector<double>> seconds(functions.size());
    for (auto _ : state_) {
      for (std::size_t i = 0; i < functions.size(); ++i)
        seconds[i].push_back(seconds_of([&] {
                               for (int r = 0; r < repeat; ++r) functions[i]();
                             }) /
                             repeat);
      state_.SetIterationTime(seconds[0].back());
    }
    std::vector<double> result;
    for (const auto& of_one : seconds) result.push_back(median(of_one));
    return result;
  }
  void counter(const char* name, double value) override { state_.counters[name] = value; }
  void label(const std::string& text) override { state_.SetLabel(text); }

 private:
  benchmark::State& state_;
};

/// Lets the allocator keep freed memory, as the allocators of frameworks do. With glibc's defaults,
/// large workspaces would be allocated on new pages in every call.
inline void keep_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

/// The body of a main function: takes --quick from the arguments, runs rows(quick), and records the
/// commit, the compiler and the number of threads in the results.
inline int run_benchmarks(int argc, char** argv, benchmark::TimeUnit unit = benchmark::kMillisecond,
                          benchmark::BenchmarkReporter* display = nullptr) {
  const auto is_quick = [](const char* argument) {
    return std::string_view(argument) == "--quick";
  };
  char** const end = std::remove_if(argv + 1, argv + argc, is_quick);
  keep_memory();
  for (const row& r : rows(end != argv + argc))
    benchmark::RegisterBenchmark(r.name.c_str(),
                                 [r](benchmark::State& state) {
                                   google_runner by(state);
                                   r.run(by);
                                 })
        ->UseManualTime()
        ->Unit(unit)
        ->Iterations(r.iterations);
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
