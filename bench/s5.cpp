// SPDX-License-Identifier: BSD-3-Clause
// Times S5 at (16, 4096, 64 states): the whole call and its adjoint, for samples at regular and at
// irregular times. Also times the scan of S5 alone, and its adjoint with and without the gradient
// of the gate, against copy baselines.
//
// Counters: those of measure.hpp for the scans. Whole calls report ns/state and, with regular
// samples, share_of_scan, the scan's share of their time.
#include <complex>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <scanrec/s5.hpp>
#include <scanrec/s5_init.hpp>

#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;
using complex = std::complex<float>;

enum class call { forward, vjp, input_grad };
constexpr const char* call_names[]{"forward", "vjp", "input_grad"};

struct problem_arrays {
  static constexpr std::int64_t batch = 16, time = 4096, states = 64, channels = 64;
  std::mt19937 random{1};
  // 128 real dimensions are 64 complex states.
  s5_system<float> system = make_s5<float>({.channels = channels, .states = 2 * states}, random);
  s5_system<float> gradients = system.zeros();
  extents shape{.batch = batch, .time = time, .channel = channels};
  extents wide{.batch = batch, .time = time, .channel = states};
  std::int64_t n = batch * time * states;
  complex* x = role<complex>(0);
  complex* scratch = role<complex>(1);
  float* u = role<float>(2);
  float* y = role<float>(3);
  float* y_grad = role<float>(4);
  float* u_grad = role<float>(5);
  std::vector<complex> gate = std::vector<complex>(states), gate_grad = gate;
  std::vector<float> intervals = std::vector<float>(batch * time, 1.0f);
  std::vector<float> intervals_grad = intervals;

  problem_arrays() {
    fill(u, n, false), fill(y_grad, n, false), fill(x, n, false), fill(scratch, n, false);
    for (std::int64_t p = 0; p < states; ++p)
      gate[p] =
          discretise<float>(system.method, system.lambda[p], std::exp(system.log_step[p])).gate;
  }
  template <class T>
  T* role(int i) {
    return static_cast<T*>(buffers.get(i, n * static_cast<std::int64_t>(sizeof(T))));
  }
  template <class T>
  sequence_view<T> of(T* p) const {
    return {p, shape};
  }
  sequence_view<complex> states_of(complex* p) const { return {p, wide}; }
  sequence_view<complex> once(std::vector<complex>& v) const {
    return {v.data(), wide, {.batch = 0, .time = 0, .channel = 1}};
  }

  void scan(call what) {
    switch (what) {
      case call::forward:
        return linear_scan(once(gate), states_of(x), states_of(x));
      case call::vjp:
        return linear_scan_vjp(once(gate), states_of(x), states_of(scratch),
                               {.gate_grad = once(gate_grad), .input_grad = states_of(scratch)});
      case call::input_grad:
        return linear_scan_vjp(once(gate), none, states_of(scratch),
                               {.input_grad = states_of(scratch)});
    }
  }
  void whole(call what, bool irregular) {
    s5_options<float> options;
    s5_vjp_options<float> vjp_options;
    if (irregular) {
      vjp_options.intervals = options.intervals = {intervals.data(), {batch, time, 1}};
      vjp_options.gates = options.gates = states_of(role<complex>(6));
      vjp_options.intervals_grad = {intervals_grad.data(), {batch, time, 1}};
    }
    if (what == call::forward) return s5(system, of(u), states_of(x), of(y), options);
    s5_vjp(system, of(u), states_of(x), of(y_grad), states_of(scratch), gradients, of(u_grad),
           vjp_options);
  }
};

void measure_scan(runner& by, call what) {
  problem_arrays a;
  const auto as_floats = [](complex* p) { return reinterpret_cast<float*>(p); };
  const read_arrays in = what == call::forward ? read_arrays{as_floats(a.x)}
                                               : read_arrays{as_floats(a.scratch), as_floats(a.x)};
  // In place, as in s5().
  const written_arrays out{as_floats(what == call::forward ? a.x : a.scratch)};
  measure(
      by, [&] { a.scan(what); }, what == call::vjp ? traffic{2, 1} : traffic{1, 1}, in, out, a.n,
      sizeof(complex), a.time);
}

void measure_whole(runner& by, call what, bool irregular) {
  problem_arrays a;
  a.whole(call::forward, irregular);
  std::vector<std::function<void()>> calls{[&] { a.whole(what, irregular); }};
  if (!irregular) calls.push_back([&] { a.scan(what); });
  const std::vector<double> seconds = by.medians(calls);
  by.counter("ns/state", seconds[0] * 1e9 / static_cast<double>(a.n));
  if (!irregular) by.counter("share_of_scan", seconds[1] / seconds[0]);
}

}  // namespace

std::vector<row> bench::rows(bool) {
  std::vector<row> all;
  for (const call what : {call::forward, call::vjp, call::input_grad})
    all.push_back({std::string("scan/") + call_names[static_cast<int>(what)], 15,
                   [=](runner& by) { measure_scan(by, what); }});
  for (const bool irregular : {false, true})
    for (const call what : {call::forward, call::vjp})
      all.push_back(
          {std::string(irregular ? "s5_irregular/" : "s5/") + call_names[static_cast<int>(what)], 9,
           [=](runner& by) { measure_whole(by, what, irregular); }});
  return all;
}
