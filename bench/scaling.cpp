// SPDX-License-Identifier: BSD-3-Clause
// Predicts how the tiled backend scales to more threads than this machine has cores.
//
// A call is planned for P threads, but one thread runs all its tasks, which take S_P seconds
// together. P workers would run them in ceil(tasks / P) rounds. If a memory bandwidth (ceiling) is
// given, the call takes at least the time of its memory traffic:
//
//     T_P = max(S_P ceil(tasks / P) / tasks, bytes / ceiling)
//     efficiency = max(T_1 / P, bytes / ceiling) / T_P
//
// The prediction ignores waits for carries and the start of threads. For up to as many threads as
// there are cores, the measured efficiency is printed beside the prediction.
//
// With --grid P no call runs. Calls of 2^24 elements and at least 64 steps are planned for P
// threads. Batch sizes and channel counts are powers of two up to 4096. The efficiency is computed
// from the plans.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/linear_scan.hpp>

#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;

/// A call on arrays in `buffers`, which the next workload overwrites.
struct workload {
  std::string name;
  std::int64_t bytes;  // least memory traffic
  std::function<problem()> poses;
  std::function<void(const tiled&)> run;
};

template <class T>
T* filled(int role, std::int64_t n, bool gate) {
  T* p = static_cast<T*>(buffers.get(role, n * static_cast<std::int64_t>(sizeof(T))));
  fill(p, n, gate);
  return p;
}
std::int64_t count(const extents& shape) { return shape.batch * shape.time * shape.channel; }

enum class call { forward, vjp, gate_grad };
enum class layout { channels_last, time_contiguous };

/// linear_scan, its adjoint, or only the gradient of one gate per channel.
template <class T>
workload linear(const std::string& name, const extents& shape, call what,
                layout lies = layout::channels_last) {
  const std::int64_t n = count(shape);
  scanrec::strides strides{
      .batch = shape.time * shape.channel, .time = shape.channel, .channel = 1};
  if (lies == layout::time_contiguous) strides.time = 1, strides.channel = shape.time;
  scanrec::strides of_gate = strides;
  if (what == call::gate_grad) of_gate = {.channel = 1};
  const sequence_view<T> gate(filled<T>(0, n, true), shape, of_gate);
  const sequence_view<T> input(filled<T>(1, n, false), shape, strides);
  const sequence_view<T> state(filled<T>(2, n, false), shape, strides);
  const sequence_view<T> grad(filled<T>(3, n, false), shape, of_gate);
  const sequence_view<T> input_grad(filled<T>(4, n, false), shape, strides);
  scan_gradients<T, T> gradients{.gate_grad = grad, .input_grad = input_grad};
  if (what == call::gate_grad) gradients.input_grad = {};
  const int arrays = what == call::forward ? 3 : what == call::vjp ? 5 : 2;
  return {name, arrays * n * static_cast<std::int64_t>(sizeof(T)),
          [=] {
            return what == call::forward ? linear_scan_problem(gate, input, state)
                                         : linear_scan_vjp_problem(gate, state, input, gradients);
          },
          [=](const tiled& backend) {
            if (what == call::forward)
              linear_scan(backend, gate, input, state);
            else
              linear_scan_vjp(backend, gate, state, input, gradients);
          }};
}

/// fo-pooling of a packed buffer, without stored states.
workload pooling(const std::string& name, const extents& shape) {
  extents wide = shape;
  wide.channel *= 3;
  const std::int64_t n = count(shape);
  const auto gates =
      packed<fo_pooling<>>(sequence_view<float>(filled<float>(0, 3 * n, false), wide));
  const sequence_view<float> output(filled<float>(1, n, false), shape);
  return {name, 4 * n * std::int64_t{sizeof(float)},
          [=] { return gated_scan_problem(fo_pooling<>{}, gates, output); },
          [=](const tiled& backend) { gated_scan(backend, fo_pooling<>{}, gates, output); }};
}

using maker = std::function<workload()>;  // only one workload at a time: they share buffers
std::vector<maker> workloads() {
  const extents rows{.batch = 8, .time = 8192, .channel = 256};
  const extents states{.batch = 16, .time = 4096, .channel = 64};
  const auto of = [](const char* name, const extents& shape, call what) -> maker {
    return [=] { return linear<float>(name, shape, what); };
  };
  using complex = std::complex<float>;
  return {
      of("(1, 2^19, 256)", {.time = 1 << 19, .channel = 256}, call::forward),
      of("(1, 2^19, 256) vjp", {.time = 1 << 19, .channel = 256}, call::vjp),
      of("(4, 2^16, 512)", {.batch = 4, .time = 1 << 16, .channel = 512}, call::forward),
      of("(8, 8192, 256)", rows, call::forward),
      of("(8, 8192, 256) vjp", rows, call::vjp),
      of("(64, 1024, 64)", {.batch = 64, .time = 1024, .channel = 64}, call::forward),
      of("(1, 65536, 64)", {.time = 65536, .channel = 64}, call::forward),
      of("(1, 2^24, 1)", {.time = 1 << 24}, call::forward),
      of("(32, 2048, 2048)", {.batch = 32, .time = 2048, .channel = 2048}, call::forward),
      of("(4, 65536, 32)", {.batch = 4, .time = 65536, .channel = 32}, call::forward),
      [=] { return linear<complex>("(16, 4096, 64) complex", states, call::forward); },
      [=] { return linear<complex>("(16, 4096, 64) lambda grad", states, call::gate_grad); },
      [=] {
        return linear<float>("(8, 8192, 256) along time", rows, call::forward,
                             layout::time_contiguous);
      },
      [=] { return linear<bfloat16>("(8, 8192, 256) bfloat16", rows, call::forward); },
      [=] { return pooling("(8, 8192, 3 x 256) fo-pooling", rows); },
  };
}

/// The median time of several calls.
double seconds(const workload& of, const tiled& backend) {
  std::vector<double> all;
  of.run(backend);
  for (int i = 0; i < 5; ++i) all.push_back(seconds_of([&] { of.run(backend); }));
  return median(all);
}

/// The predicted efficiency. The cost of a task is the number of its packs, over all its batch
/// entries, times its steps. If tasks are tiles and there are fewer work items than threads, tiles
/// are read twice, which adds a third to the time.
double predicted_share(const problem& p, const tile_plan& plan, int threads) {
  const std::int64_t pack = plan.lanes.along == recurrence::lane_axis::time ? 1 : p.pack_lanes;
  const auto packs = [&](std::int64_t channels) { return (channels + pack - 1) / pack; };
  const extents& s = plan.shape;
  const std::int64_t steps = plan.items_whole ? s.time : std::min(plan.tile_steps, s.time);
  const auto task =
      static_cast<double>(plan.batch_span * packs(std::min(plan.strip, s.channel)) * steps);
  const auto share = static_cast<double>(s.batch * packs(s.channel) * s.time) / threads;
  const auto rounds = static_cast<double>((plan.tasks + threads - 1) / threads);
  const double reread = plan.items_whole || plan.items >= threads ? 1 : 4.0 / 3;
  return share / (std::min(rounds * task, share + task) * reread);
}
void print_grid(int threads) {
  const auto n = std::int64_t{1} << 24;
  std::printf("# threads: %d\nlayout\tcall\tbatch\tchannel\tefficiency\ttasks\n", threads);
  for (const layout lies : {layout::channels_last, layout::time_contiguous})
    for (std::int64_t batch = 1; batch <= 4096; batch *= 2)
      for (std::int64_t channel = 1; channel <= 4096 && batch * channel * 64 <= n; channel *= 2) {
        const extents shape{.batch = batch, .time = n / batch / channel, .channel = channel};
        const bool along_time = lies == layout::time_contiguous;
        const scanrec::strides strides = along_time ? time_contiguous(shape) : channels_last(shape);
        // Planning reads no elements, so the addresses need not be valid.
        const auto array = [&](std::uintptr_t i) {
          return sequence_view<float>(reinterpret_cast<float*>(i << 40), shape, strides);
        };
        const auto print = [&](const char* what, const problem& p) {
          const tile_plan plan = describe(tiled{.threads = threads}, p);
          std::printf("%s\t%s\t%lld\t%lld\t%.3f\t%lld\n",
                      along_time ? "time_contiguous" : "channels_last", what,
                      static_cast<long long>(batch), static_cast<long long>(channel),
                      predicted_share(p, plan, threads), static_cast<long long>(plan.tasks));
        };
        print("forward", linear_scan_problem(array(1), array(2), array(3)));
        print("vjp", linear_scan_vjp_problem(array(1), array(2), array(3),
                                             {.gate_grad = array(4), .input_grad = array(5)}));
      }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Predicts how scans scale to more threads than this machine has cores.");
  double ceiling = std::numeric_limits<double>::infinity();
  app.add_option("--bandwidth", ceiling,
                 "memory bandwidth of all threads in GB/s; default: no limit");
  int grid = 0;
  app.add_option("--grid", grid,
                 "print the predicted efficiency of calls of 2^24 elements on this many threads");
  CLI11_PARSE(app, argc, argv);
  if (grid > 0) return print_grid(grid), 0;

  const std::vector<int> threads{1, 2, 4, 8, 16, 32, 64, 128};
  const executor alone = [](int workers, const work_ref& work) {
    for (int worker = 0; worker < workers; ++worker) work(worker);
  };
  std::printf("predicted efficiency (and measured, up to as many threads as cores); tasks\n");
  std::printf("%-30s %10s", "threads", "1: ms");
  for (std::size_t i = 1; i < threads.size(); ++i) std::printf(" %18d", threads[i]);
  std::puts("");
  for (const maker& make : workloads()) {
    const workload load = make();
    const double one = seconds(load, {.threads = 1});
    std::printf("%-30s %10.3g", load.name.c_str(), one * 1e3);
    for (std::size_t i = 1; i < threads.size(); ++i) {
      const int P = threads[i];
      const tile_plan plan = describe(tiled{.threads = P}, load.poses());
      const double together = seconds(load, {.threads = P, .executor = alone});
      const std::int64_t rounds = (plan.tasks + P - 1) / P;
      const double share = static_cast<double>(rounds) / static_cast<double>(plan.tasks);
      const double least = static_cast<double>(load.bytes) / (ceiling * 1e9);
      const double best = std::max(one / P, least);
      const double predicted = best / std::max(together * share, least);
      char text[64];
      if (P <= default_threads())
        std::snprintf(text, sizeof text, "%.2f (%.2f) %lld", predicted,
                      best / seconds(load, {.threads = P}), static_cast<long long>(plan.tasks));
      else
        std::snprintf(text, sizeof text, "%.2f %lld", predicted,
                      static_cast<long long>(plan.tasks));
      std::printf(" %18s", text);
      std::fflush(stdout);
    }
    std::puts("");
  }
  return 0;
}
