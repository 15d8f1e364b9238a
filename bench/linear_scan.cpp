// SPDX-License-Identifier: BSD-3-Clause
// Times linear_scan and its vjp in alternation with the copy baseline.
//
// Counters: GB/s of ideal traffic (every array once) of the kernel, the copy baseline and memcpy,
// and fraction_of_baseline = median baseline time / median kernel time.
#include <algorithm>
#include <complex>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure.hpp"

#if __has_include(<scanrec/planned.hpp>)  // not in the headers of earlier commits
#include <scanrec/planned.hpp>
#endif

namespace {

using namespace bench;
using scanrec::extents;

enum class layout { channels_last, time_contiguous };
// lambda: one gate per channel. shared: one gate for all channels of a step.
enum class call {
  forward,
  planned,
  vjp,
  final_state,
  lambda_forward,
  lambda_vjp,
  lambda_grad,
  shared_forward,
  shared_vjp,
};

struct workload {
  std::string name;
  call what;
  extents shape;
  layout order = layout::channels_last;
  int threads = 0;
};

traffic traffic_of(call what) {
  switch (what) {
    case call::forward:
    case call::planned:
      return {2, 1};
    case call::vjp:
      return {3, 2};
    case call::final_state:
      return {2, 0};
    case call::lambda_forward:
    case call::shared_forward:
      return {1, 1};
    case call::lambda_vjp:
    case call::shared_vjp:
      return {2, 1};
    case call::lambda_grad:
      return {2, 0};
  }
  return {};
}

template <class T>
void run(runner& by, const workload& w) {
  using namespace scanrec;
  const std::int64_t n = w.shape.batch * w.shape.time * w.shape.channel;
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T));
  // scripts/compare also compiles this file with the headers of earlier commits, which may define
  // another type of strides.
  using strides_type = decltype(channels_last(w.shape));
  const strides_type strides =
      w.order == layout::channels_last ? channels_last(w.shape) : time_contiguous(w.shape);
  const bool broadcast = w.what >= call::lambda_forward, shared = w.what >= call::shared_forward;
  strides_type once{.batch = 0, .time = 0, .channel = 1, .group = 0};
  if (shared) once = {.batch = w.shape.time, .time = 1, .channel = 0, .group = 0};
  const traffic moved = traffic_of(w.what);

  T* arrays[5];
  for (int i = 0; i < std::max(3, moved.reads + moved.writes); ++i) {
    arrays[i] = static_cast<T*>(buffers.get(i, bytes));
    fill(arrays[i], n, i == 0);
  }
  const std::int64_t gates = shared ? w.shape.batch * w.shape.time : w.shape.channel;
  std::vector<T> few(gates, element_of<T>(0.75f)), few_grad(gates);
  std::vector<compute_t<T>> last(w.shape.batch * w.shape.channel);

  using view = sequence_view<T>;
  const view gate = broadcast ? view(few.data(), w.shape, once) : view(arrays[0], w.shape, strides);
  const view few_gate_grad(few_grad.data(), w.shape, once);
  const auto array = [&](int i) { return view(arrays[i], w.shape, strides); };
  const tiled backend{.threads = w.threads};

  std::function<void()> kernel;
  switch (w.what) {
    case call::forward:
      kernel = [=] { linear_scan(backend, gate, array(1), array(2)); };
      break;
    case call::planned: {
#if __has_include(<scanrec/planned.hpp>)
      using planned = decltype(plan_linear_scan(backend, gate, array(1), array(2)));
      const auto plan =
          std::make_shared<planned>(plan_linear_scan(backend, gate, array(1), array(2)));
      const T *const a = gate.data, *const u = arrays[1];
      T* const x = arrays[2];
      kernel = [=] { (*plan)({.gate = a, .input = u, .state = x}); };
#endif
      break;
    }
    case call::vjp:
      kernel = [=] {
        linear_scan_vjp(backend, gate, array(1), array(2),
                        {.gate_grad = array(3), .input_grad = array(4)});
      };
      break;
    case call::final_state:
      kernel = [=, &last] {
        linear_scan(backend, gate, array(1), none,
                    {.final_state = state_view(last.data(), w.shape)});
      };
      break;
    case call::lambda_forward:
    case call::shared_forward:
      kernel = [=] { linear_scan(backend, gate, array(1), array(2)); };
      break;
    case call::lambda_vjp:
    case call::shared_vjp:
      kernel = [=] {
        linear_scan_vjp(backend, gate, array(0), array(1),
                        {.gate_grad = few_gate_grad, .input_grad = array(2)});
      };
      break;
    case call::lambda_grad:
      kernel = [=] {
        linear_scan_vjp(backend, gate, array(0), array(1), {.gate_grad = few_gate_grad});
      };
      break;
  }

  read_arrays in{};
  written_arrays out{};
  for (int i = 0; i < moved.reads; ++i) in[i] = reinterpret_cast<const float*>(arrays[i]);
  for (int i = 0; i < moved.writes; ++i) out[i] = reinterpret_cast<float*>(arrays[moved.reads + i]);
  measure(by, kernel, moved, in, out, n, sizeof(T), w.shape.time, w.threads);
  by.label("baseline " + std::to_string(moved.reads) + "R+" + std::to_string(moved.writes) + "W");
}

using table = std::vector<row>;

template <class T>
void add(table& rows, const workload& w, int iterations = 9) {
  rows.push_back({w.name, iterations, [w](runner& by) { run<T>(by, w); }});
}

constexpr extents long_rows{.batch = 8, .time = 8192, .channel = 256};
constexpr extents few_channels{.batch = 4, .time = 262144, .channel = 16};
constexpr extents odd_channels{.batch = 8, .time = 8192, .channel = 250};
constexpr extents five_channels{.batch = 4, .time = 524288, .channel = 5};
constexpr extents one_sequence{.batch = 1, .time = 1 << 24, .channel = 1};
constexpr extents two_million{.batch = 1, .time = 1 << 21, .channel = 256};
constexpr extents state_space{.batch = 16, .time = 4096, .channel = 64};
constexpr extents small{.batch = 1, .time = 512, .channel = 64};
constexpr extents one_step{.batch = 1, .time = 1, .channel = 64};

void add_table(table& rows, bool quick) {
  using complex = std::complex<float>;
  const auto time_contiguous = layout::time_contiguous;
  add<float>(rows, {"channels_last/forward", call::forward, long_rows});
  add<float>(rows, {"channels_last/vjp", call::vjp, long_rows});
  add<float>(rows, {"few_channels/forward", call::forward, few_channels});
  add<float>(rows, {"few_channels/vjp", call::vjp, few_channels});
  add<float>(rows, {"odd_channels/forward", call::forward, odd_channels});
  add<float>(rows, {"odd_channels/vjp", call::vjp, odd_channels});
  add<float>(rows, {"five_channels/forward", call::forward, five_channels});
  add<float>(rows, {"five_channels/vjp", call::vjp, five_channels});
  add<float>(rows, {"time_contiguous/forward", call::forward, long_rows, time_contiguous});
  add<float>(rows, {"time_contiguous/vjp", call::vjp, long_rows, time_contiguous});
  add<float>(rows, {"one_sequence/forward", call::forward, one_sequence});
  add<float>(rows, {"one_sequence/vjp", call::vjp, one_sequence});
  if (!quick) {
    add<float>(rows, {"two_million_steps/forward", call::forward, two_million}, 5);
    add<float>(rows, {"two_million_steps/vjp", call::vjp, two_million}, 5);
  }
  add<complex>(rows, {"complex_lambda/forward", call::lambda_forward, state_space}, 15);
  add<complex>(rows, {"complex_lambda/vjp", call::lambda_vjp, state_space}, 15);
  add<complex>(rows, {"complex_lambda/lambda_grad", call::lambda_grad, state_space}, 15);
  add<float>(rows, {"shared_gate/forward", call::shared_forward, long_rows});
  add<float>(rows, {"shared_gate/vjp", call::shared_vjp, long_rows});
  add<float>(rows, {"time_contiguous/lambda", call::lambda_forward, long_rows, time_contiguous});
  add<float>(rows, {"final_state_only/forward", call::final_state, long_rows});
  add<scanrec::bfloat16>(rows, {"bfloat16/forward", call::forward, long_rows});
  add<scanrec::bfloat16>(rows, {"bfloat16/vjp", call::vjp, long_rows});
  add<float>(rows, {"in_cache/forward", call::forward, small, layout::channels_last, 1}, 25);
  add<float>(rows, {"in_cache/vjp", call::vjp, small, layout::channels_last, 1}, 25);
  add<float>(rows, {"one_step/forward", call::forward, one_step, layout::channels_last, 1}, 25);
#if __has_include(<scanrec/planned.hpp>)
  add<float>(rows, {"one_step/planned", call::planned, one_step, layout::channels_last, 1}, 25);
#endif
}

void add_sweep(table& rows, int most) {
  for (int log = 10; log <= most; log += 2) {
    const extents one{.batch = 1, .time = std::int64_t{1} << log, .channel = 1};
    const extents wide{.batch = 1, .time = std::int64_t{1} << log, .channel = 16};
    const std::string name = "sweep/T=2^" + std::to_string(log);
    add<float>(rows, {name + "/channel=1", call::forward, one});
    add<float>(rows, {name + "/channel=16", call::forward, wide});
  }
}

}  // namespace

// `quick` leaves out the largest rows and shortens the sweep: a run takes under half a minute.
std::vector<row> bench::rows(bool quick) {
  table all;
  add_table(all, quick);
  add_sweep(all, quick ? 20 : 24);
  return all;
}
