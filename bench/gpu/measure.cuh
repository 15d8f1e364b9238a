// SPDX-License-Identifier: BSD-3-Clause
// Measures one row: a call, a copy of one array, or a copy baseline. The results of a call are
// compared with a reference before and after it is timed. The call, its copy baseline and device
// copies are timed in turn, each after a flush of the L2 cache.
//
// Counters: GB/s of ideal traffic (every array once) of the call, of the copy baseline and of a
// copy of one array; fraction_of_copy, GB/s of the call / GB/s of the copy of one array;
// fraction_of_baseline (the README's fraction of a copy), median baseline time / median time of the
// call; spread, the interquartile range of the time as a fraction of the median; nodes, the kernels
// and memsets of a call; largest_difference from the reference, |x - y| / (1 + |y|). Short calls
// also have microseconds per call: queued_us of many calls queued one after the other, and graph_us
// of calls replayed as a graph.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "copy_baseline.cuh"
#include "device.cuh"

namespace bench {

/// The commit of the build. It is defined in commit.cpp, so that a new commit recompiles no kernel.
extern const char* const commit;

/// The reason why a row is left out although nothing failed.
struct left_out : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Indices of the buffers of `machine`.
enum role { first_array = 0, first_reference = 10, copy_of_array = 20 };

/// An array that a call writes, and how it is compared.
struct result {
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::function<double(const void* got, const void* want)> largest_difference;
  double tolerance = 0;
};
template <class T>
result result_of(T* data, std::int64_t n) {
  // The tolerance is loose: 1e-4 is many roundings of a float, and 2^-6, for 16-bit types, is more
  // than two roundings to bfloat16.
  return {data, n * static_cast<std::int64_t>(sizeof(T)),
          [n](const void* got, const void* want) {
            return machine::here().largest_difference(static_cast<const T*>(got),
                                                      static_cast<const T*>(want), n);
          },
          sizeof(T) == 2 ? 0x1p-6 : 1e-4};
}

/// The call of a row, its arrays and its traffic.
struct subject {
  using queue = std::function<void(const scanrec::cuda::workspace&)>;
  std::string inputs;                // names workload and call; equal names share a reference
  std::int64_t workspace_bytes = 0;  // of device memory for the call
  queue call;                        // queues the call
  queue before{}, after{};           // not timed: prepare inputs, finish results
  queue short_call{};                // the call on the first 256th of its steps
  std::function<void()> fill{}, reference{};  // fill the inputs; compute the results independently
  std::vector<result> results{};              // empty: nothing is compared
  traffic moved{};
  read_arrays in{};
  written_arrays out{};
  std::int64_t elements = 0, element_bytes = 0, steps = 0;
};

/// Numbers of samples and time limits.
struct patience {
  int samples = 20, few_samples = 3;  // few_samples if a call takes longer than `long_call`
  double long_call = 0.05;            // seconds
  double longest_call = 1;            // seconds; longer calls are left out
  double warm = 0.02;                 // seconds of warm-up, by the host's clock
  double long_row = 3;                // seconds of sampling, after which few_samples are enough
  bool timed = true;                  // false: results are only compared
  static patience& of_this_run() {
    static patience one;
    return one;
  }
};

/// Number of rows with wrong results or failed calls.
inline int& failures() {
  static int count = 0;
  return count;
}

namespace detail {

/// Seconds on the host's clock.
class stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(clock::now() - begun_).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point begun_ = clock::now();
};

inline double quantile(std::vector<double> v, double part) {
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(v.size() - 1) + 0.5);
  std::nth_element(v.begin(), v.begin() + at, v.end());
  return v[static_cast<std::size_t>(at)];
}

inline void poison(const subject& s) {
  for (const result& r : s.results)
    check(cudaMemsetAsync(r.data, 0xff, static_cast<std::size_t>(r.bytes), machine::here().stream),
          "cudaMemsetAsync");
}
/// Computes the reference into separate buffers, unless they already hold it.
inline void make_reference(const subject& s) {
  static std::string made_for;
  if (made_for == s.inputs) return;
  made_for.clear();
  machine& gpu = machine::here();
  poison(s);
  s.reference();
  for (std::size_t i = 0; i < s.results.size(); ++i)
    check(cudaMemcpyAsync(gpu.get(first_reference + static_cast<int>(i), s.results[i].bytes),
                          s.results[i].data, static_cast<std::size_t>(s.results[i].bytes),
                          cudaMemcpyDeviceToDevice, gpu.stream),
          "cudaMemcpyAsync");
  gpu.wait();
  made_for = s.inputs;
}
/// The largest difference from the reference, after a call. Throws if it is too large.
inline double verified(const subject& s) {
  machine& gpu = machine::here();
  double largest = 0;
  for (std::size_t i = 0; i < s.results.size(); ++i) {
    const void* const want = gpu.get(first_reference + static_cast<int>(i), 0);
    const double one = s.results[i].largest_difference(s.results[i].data, want);
    if (!(one <= s.results[i].tolerance))
      throw std::runtime_error("wrong: differs from the reference by " + std::to_string(one));
    largest = std::max(largest, one);
  }
  return largest;
}

inline device_buffer workspace_of(const subject& s) {
  const std::int64_t free = machine::free_bytes();
  if (s.workspace_bytes > free)
    throw left_out("left out: needs a workspace of " + std::to_string(s.workspace_bytes >> 20) +
                   " MiB, but only " + std::to_string(free >> 20) + " MiB are free");
  device_buffer memory(s.workspace_bytes);
  if (s.workspace_bytes > 0)
    check(cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(s.workspace_bytes),
                          machine::here().stream),
          "cudaMemsetAsync");
  return memory;
}

inline void refuse_what_takes_long(const subject& s, const scanrec::cuda::workspace& w) {
  if (!s.short_call) return;
  const auto call = [&] { s.short_call(w); };
  machine::here().seconds_of(call);
  const double seconds = 256 * machine::here().seconds_of(call);
  if (seconds > patience::of_this_run().longest_call)
    throw left_out("left out: about " + std::to_string(seconds).substr(0, 4) +
                   " s a call, judged by a 256th of the steps");
}

inline void measure(benchmark::State& state, const subject& s) {
  machine& gpu = machine::here();
  const patience& p = patience::of_this_run();
  if (s.fill) s.fill();
  const device_buffer memory = workspace_of(s);
  const scanrec::cuda::workspace w{.data = memory.data(),
                                   .bytes = memory.bytes(),
                                   .content = scanrec::cuda::workspace_content::kept};
  const std::function<void()> call = [&] { s.call(w); };
  const auto run_once = [&](const subject::queue& extra) {
    if (extra) extra(w);
  };

  if (!s.results.empty()) {
    make_reference(s);
    poison(s);
  }
  refuse_what_takes_long(s, w);
  run_once(s.before);
  double once = gpu.seconds_of(call);
  run_once(s.after);
  double difference = verified(s);
  if (!s.results.empty()) state.counters["largest_difference"] = difference;
  if (!p.timed) {
    for (auto _ : state) state.SetIterationTime(once);
    return;
  }
  if (once > p.longest_call)
    throw left_out("left out: " + std::to_string(once).substr(0, 4) + " s a call");
  run_once(s.before);

  const std::int64_t bytes = s.elements * s.element_bytes;
  void* const copied = gpu.get(copy_of_array, bytes);
  const copy_baseline baseline(s.moved, s.in, s.out, bytes);
  const std::function<void()> run_baseline = [&] { baseline.run(); };
  const std::function<void()> copy = [&] {
    check(cudaMemcpyAsync(copied, s.in[0], static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToDevice, gpu.stream),
          "cudaMemcpyAsync");
  };
  // Warm up: first the copy baseline, so that the GPU raises its clocks, and then the call.
  for (const stopwatch spent; spent.seconds() < p.warm;) gpu.seconds_of(run_baseline);
  for (int i = 0; i < 3 && once < p.long_call; ++i) once = gpu.seconds_of(call);
  const int samples = once < p.long_call ? p.samples : std::min(p.samples, p.few_samples);

  std::vector<double> own, baselines, copies;
  const stopwatch spent;
  for (int i = 0; i < samples && (i < p.few_samples || spent.seconds() < p.long_row); ++i) {
    own.push_back(gpu.seconds_of(call));
    baselines.push_back(gpu.seconds_of(run_baseline));
    copies.push_back(gpu.seconds_of(copy));
  }
  const double seconds = quantile(own, 0.5), baseline_seconds = quantile(baselines, 0.5);
  const double gigabytes = 1e-9 * (s.moved.reads + s.moved.writes) * static_cast<double>(bytes);
  auto& c = state.counters;
  c["GB/s"] = gigabytes / seconds;
  c["baseline_GB/s"] = gigabytes / baseline_seconds;
  c["copy_GB/s"] = 2e-9 * static_cast<double>(bytes) / quantile(copies, 0.5);
  c["fraction_of_copy"] = c["GB/s"] / c["copy_GB/s"];
  c["fraction_of_baseline"] = baseline_seconds / seconds;
  c["ns/element"] = 1e9 * seconds / static_cast<double>(s.elements);
  c["spread"] = (quantile(own, 0.75) - quantile(own, 0.25)) / seconds;
  c["samples"] = static_cast<double>(own.size());
  c["steps"] = static_cast<double>(s.steps);
  c["elements"] = static_cast<double>(s.elements);
  c["nodes"] = static_cast<double>(captured_calls(call, 1).nodes());
  if (seconds < 1e-4) {
    constexpr int many = 64, replays = 16;
    gpu.seconds_of(call, many);
    c["queued_us"] = 1e6 * gpu.seconds_of(call, many * replays) / (many * replays);
    const captured_calls graph(call, many);
    const std::function<void()> replay = [&] { graph.replay(); };
    gpu.seconds_of(replay, replays);
    c["graph_us"] = 1e6 * gpu.seconds_of(replay, replays) / (many * replays);
  }
  // The copy baseline has overwritten the results. So call once more, in the workspace of all
  // earlier calls, and compare again.
  if (!s.results.empty()) {
    poison(s);
    run_once(s.before), s.call(w), run_once(s.after);
    difference = std::max(difference, verified(s));
    c["largest_difference"] = difference;
  }
  state.SetLabel(baseline.text());
  for (auto _ : state) state.SetIterationTime(seconds);
}

}  // namespace detail

/// Registers a row, "workload/variant/call". An exception becomes the row's error.
inline void add_row(const std::string& name, const std::function<subject()>& make) {
  const auto body = [=](benchmark::State& state) {
    try {
      detail::measure(state, make());
      auto& c = state.counters;
      if (patience::of_this_run().timed)
        std::printf("%-50s %10.4f ms %7.0f GB/s %6.3f of a copy %6.3f of the baseline\n",
                    name.c_str(), 1e-6 * c["ns/element"] * c["elements"],
                    static_cast<double>(c["GB/s"]), static_cast<double>(c["fraction_of_copy"]),
                    static_cast<double>(c["fraction_of_baseline"]));
      else
        std::printf("%-58s differs by %.1e\n", name.c_str(),
                    static_cast<double>(c["largest_difference"]));
    } catch (const std::exception& e) {
      cudaGetLastError();  // clears errors that are not sticky
      if (!dynamic_cast<const left_out*>(&e)) ++failures();
      std::printf("%-58s %s\n", name.c_str(), e.what());
      state.SkipWithError(e.what());
    }
    std::fflush(stdout);
  };
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1);
}

/// Registers a row without a scan: a copy of one array, or the copy baseline of a call. Reports
/// show these rows first in a workload.
inline void add_roof(const std::string& name, const std::function<subject()>& make, bool copy) {
  add_row(name, [=] {
    subject s = make();
    s.results.clear(), s.short_call = s.before = s.after = nullptr;
    s.workspace_bytes = 0;
    const std::int64_t bytes = s.elements * s.element_bytes;
    if (copy) {
      s.moved = {1, 1};
      s.call = [=](const auto&) {
        check(cudaMemcpyAsync(s.out[0], s.in[0], static_cast<std::size_t>(bytes),
                              cudaMemcpyDeviceToDevice, machine::here().stream),
              "cudaMemcpyAsync");
      };
    } else {
      s.call = [baseline = copy_baseline(s.moved, s.in, s.out, bytes)](const auto&) {
        baseline.run();
      };
    }
    return s;
  });
}

/// Adds the GPU, the driver, the compiler and the commit to the results. Throws without a GPU.
inline void add_context(bool quick) {
  const cudaDeviceProp& gpu = machine::here().properties;
  benchmark::AddCustomContext("gpu", gpu.name);
  benchmark::AddCustomContext("multiprocessors", std::to_string(gpu.multiProcessorCount));
  benchmark::AddCustomContext("l2_bytes", std::to_string(gpu.l2CacheSize));
  benchmark::AddCustomContext("memory_bytes", std::to_string(gpu.totalGlobalMem));
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  benchmark::AddCustomContext("driver_cuda", std::to_string(driver));
  benchmark::AddCustomContext("commit", commit);
  benchmark::AddCustomContext("compiler", "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
                                              std::to_string(__CUDACC_VER_MINOR__));
  benchmark::AddCustomContext("quick", quick ? "yes" : "no");
}

/// The body of a main function: takes --quick (shorter sequences, fewer samples) and --check
/// (results are compared, nothing is timed) from the arguments, lets `add` register the rows, and
/// runs them. With --benchmark_list_tests, lists the rows instead, which needs no GPU. Returns 1 if
/// a row failed.
inline int run_benchmarks(int argc, char** argv, const std::function<void(bool quick)>& add) {
  class silent : public benchmark::BenchmarkReporter {
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
  };
  const auto take = [&](std::string_view option) {
    char** const end = std::remove_if(argv + 1, argv + argc,
                                      [=](const char* argument) { return argument == option; });
    const bool found = end != argv + argc;
    argc = static_cast<int>(end - argv);
    return found;
  };
  const bool quick = take("--quick"), check_only = take("--check");
  const bool list = std::any_of(argv + 1, argv + argc, [](std::string_view argument) {
    return argument == "--benchmark_list_tests" || argument == "--benchmark_list_tests=true";
  });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (!list) try {
      add_context(quick);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "no GPU: %s\n", e.what());
      return 1;
    }
  patience& p = patience::of_this_run();
  if (quick) p.samples = 5, p.few_samples = 1;
  p.timed = !check_only;
  add(quick);
  silent display;
  benchmark::RunSpecifiedBenchmarks(&display);
  benchmark::Shutdown();
  return failures() > 0 ? 1 : 0;
}

}  // namespace bench
