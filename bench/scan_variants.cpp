// SPDX-License-Identifier: BSD-3-Clause
// Compares all backends for CPUs: forward, vjp and jvp on several shapes, layouts and kinds of
// gates, and forward on one sequence of 2^4 to 2^22 steps. The one sequence is also scanned by a
// plain loop and, if oneTBB is installed, by std::inclusive_scan and oneTBB's parallel_scan over
// (gate, input) pairs. The copy baseline and memcpy run alternately with every measurement.
//
// Counters: those of measure.hpp. The program prints a table of ns/element and
// fraction_of_baseline; --benchmark_out also writes a file. --quick takes under a minute.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if SCANREC_BENCH_TBB
#include <execution>
#include <numeric>

#include <tbb/blocked_range.h>
#include <tbb/parallel_scan.h>
#endif

#include "google.hpp"
#include "variants.hpp"

namespace {

using namespace bench;

/// Times a call on the arrays of `buffers`, alternating with the copy baseline, and reports.
void measure_call(runner& by, const std::function<void()>& kernel, traffic moved,
                  std::int64_t elements, std::int64_t element_bytes, std::int64_t steps) {
  const auto at = [](int i) { return static_cast<float*>(buffers.get(i, 0)); };
  read_arrays in{};
  written_arrays out{};
  for (int i = 0; i < moved.reads; ++i) in[i] = at(i);
  for (int i = 0; i < moved.writes; ++i) out[i] = at(4 - i);  // arrays that the call does not read
  measure(by, kernel, moved, in, out, elements, element_bytes, steps);
}

using table = std::vector<row>;

template <class T>
void add_variants(table& rows, const workload& w, call what, int iterations) {
  for (const variant<T>& v : variants<T>())
    rows.push_back({w.name + "/" + v.name + "/" + call_names[static_cast<int>(what)], iterations,
                    [=](runner& by) {
                      arrays<T> a(w);
                      measure_call(
                          by, [&] { v.run(what, a); }, traffic_of(what, w.gate), a.elements(),
                          sizeof(T), w.shape.time);
                    }});
}

// ---- other scans of one sequence of floats ------------------------------------------------------

[[gnu::noinline]] void plain_loop(const float* gate, const float* input, float* state,
                                  std::int64_t n) {
  float x = 0;
  for (std::int64_t t = 0; t < n; ++t) state[t] = x = gate[t] * x + input[t];
}

#if SCANREC_BENCH_TBB
using pair = affine<float>;

/// Adds a scan of (gate, input) pairs. Each result is also a pair, and its second element is the
/// state. So the scan writes two arrays, but its copy baseline writes one. Packing is not timed.
void add_pairs(table& rows, const workload& w, const char* variant, int iterations,
               const std::function<void(const pair*, pair*, std::int64_t)>& scan) {
  rows.push_back({w.name + "/" + variant + "/forward", iterations, [=](runner& by) {
                    arrays<float> a(w);
                    const std::int64_t n = a.elements();
                    std::vector<pair> in(static_cast<std::size_t>(n)), out(in.size());
                    for (std::int64_t t = 0; t < n; ++t) in[t] = {a.data[0][t], a.data[1][t]};
                    measure_call(
                        by, [&] { scan(in.data(), out.data(), n); },
                        traffic_of(call::forward, gates::own), n, sizeof(float), n);
                  }});
}
#endif

void add_others(table& rows, const workload& w, int iterations) {
  rows.push_back({w.name + "/plain_loop/forward", iterations, [=](runner& by) {
                    arrays<float> a(w);
                    measure_call(
                        by, [&] { plain_loop(a.data[0], a.data[1], a.data[2], a.elements()); },
                        traffic_of(call::forward, gates::own), a.elements(), sizeof(float),
                        w.shape.time);
                  }});
#if SCANREC_BENCH_TBB
  add_pairs(rows, w, "std_inclusive_scan", iterations,
            [](const pair* in, pair* out, std::int64_t n) {
              std::inclusive_scan(std::execution::par, in, in + n, out,
                                  [](const pair& x, const pair& y) { return combine(x, y); });
            });
  add_pairs(rows, w, "tbb_parallel_scan", iterations,
            [](const pair* in, pair* out, std::int64_t n) {
              tbb::parallel_scan(
                  tbb::blocked_range<std::int64_t>(0, n), pair::identity(),
                  [=](const tbb::blocked_range<std::int64_t>& r, pair before, bool is_final) {
                    for (std::int64_t t = r.begin(); t < r.end(); ++t) {
                      before = combine(before, in[t]);
                      if (is_final) out[t] = before;
                    }
                    return before;
                  },
                  [](const pair& x, const pair& y) { return combine(x, y); });
            });
#endif
}

/// A reporter that prints a line per run: name, ns per element, fraction of the copy baseline.
class printed_table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override {
    PrintBasicContext(&GetErrorStream(), context);
    std::printf("%-25s %-19s %-8s %12s %9s\n", "workload", "variant", "call", "ns/element",
                "of baseline");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      // "workload/variant/call"; the workload may itself contain a slash.
      const std::string& name = run.run_name.function_name;
      const std::size_t last = name.rfind('/'), middle = name.rfind('/', last - 1);
      std::printf("%-25s %-19s %-8s %12.3f %9.3f\n", name.substr(0, middle).c_str(),
                  name.substr(middle + 1, last - middle - 1).c_str(), name.substr(last + 1).c_str(),
                  run.counters.at("ns/element").value,
                  run.counters.at("fraction_of_baseline").value);
      std::fflush(stdout);
    }
  }
};

}  // namespace

std::vector<row> bench::rows(bool quick) {
  table rows;
  const int iterations = quick ? 11 : 7;
  const auto all_calls = {call::forward, call::vjp, call::jvp};
  std::vector<workload> floats{{"in_cache", {.batch = 4, .time = 1024, .channel = 64}}};
  if (quick) {
    floats.push_back({"time_contiguous", {.batch = 4, .time = 4096, .channel = 64}, true});
  } else {
    floats.push_back({"channels_last", {.batch = 8, .time = 8192, .channel = 256}});
    floats.push_back({"time_contiguous", {.batch = 8, .time = 8192, .channel = 256}, true});
    floats.push_back({"few_channels", {.batch = 4, .time = 262144, .channel = 16}});
    floats.push_back({"one_sequence", {.batch = 1, .time = 1 << 24, .channel = 1}});
  }
  const extents state_space{.batch = 16, .time = 4096, .channel = 64};
  floats.push_back({"lambda", state_space, false, gates::one_per_channel});
  if (!quick) {
    floats.push_back({"lambda_time_contiguous", state_space, true, gates::one_per_channel});
    floats.push_back({"head", state_space, false, gates::one_for_channels});
    floats.push_back({"head_time_contiguous", state_space, true, gates::one_for_channels});
    floats.push_back({"own_gates", state_space});
    floats.push_back({"own_gates_time_contiguous", state_space, true});
  }
  for (const call what : all_calls) {
    for (const workload& w : floats) add_variants<float>(rows, w, what, iterations);
#if SCANREC_BENCH_ALL_TYPES
    if (quick) continue;
    add_variants<std::complex<float>>(
        rows, {"complex_lambda", state_space, false, gates::one_per_channel}, what, iterations);
    add_variants<bfloat16>(rows, {"bfloat16", {.batch = 8, .time = 8192, .channel = 256}}, what,
                           iterations);
#endif
  }
  for (int log = 4; log <= (quick ? 20 : 22); log += 2) {
    const workload w{"sweep/T=2^" + std::to_string(log),
                     {.batch = 1, .time = std::int64_t{1} << log, .channel = 1}};
    add_variants<float>(rows, w, call::forward, iterations);
    add_others(rows, w, iterations);
  }
  return rows;
}

int main(int argc, char** argv) {
  printed_table console;
  return run_benchmarks(argc, argv, benchmark::kMicrosecond, &console);
}
