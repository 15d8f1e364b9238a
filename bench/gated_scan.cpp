// SPDX-License-Identifier: BSD-3-Clause
// Times QRNN fo-pooling from a packed buffer against the copy baseline: forward and vjp under each
// memory policy, and the same calls with gates copied out of the buffer and gradients copied back.
// Also compares scans of logarithmic gates and inputs, whose exponentials are computed on loading,
// with linear scans of exponentials that are first written to arrays.
//
// Counters: those of measure.hpp; `kept`, the memory that a policy keeps between forward and vjp;
// and `workspace`, the size of the call's workspace. The last two are fractions of one
// (batch, time, channel) array.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>

#if __has_include(<scanrec/cells/log_space.hpp>)
#include <scanrec/cells/log_space.hpp>
#include <scanrec/linear_scan.hpp>
#define BENCH_LOG_SPACE 1
#endif

#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;

enum class call { inference, forward_store, forward_recompute, vjp_store, vjp_recompute };
constexpr const char* call_names[]{"inference", "forward_store", "forward_recompute", "vjp_store",
                                   "vjp_recompute"};
traffic traffic_of(call what) {
  switch (what) {
    case call::inference:
    case call::forward_recompute:
      return {3, 1};
    case call::forward_store:
      return {3, 2};
    case call::vjp_store:
      return {5, 3};
    case call::vjp_recompute:
      return {4, 3};
  }
  return {};
}

using cell = fo_pooling<>;

/// The arrays of a layer. The pre-activations are packed, and so are their gradients.
template <class T>
struct layer {
  using view = sequence_view<T>;
  using checkpoints_view = sequence_view<compute_t<T>>;
  extents shape;
  std::int64_t n = shape.batch * shape.time * shape.channel;
  std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T));
  T* pre = role(0, 3);
  T* states = role(1, 1);
  T* output_grad = role(2, 1);
  T* output = role(3, 1);
  T* pre_grad = role(4, 3);
  extents kept = memory::checkpoint_extents(shape);
  std::vector<compute_t<T>> checkpoints =
      std::vector<compute_t<T>>(static_cast<std::size_t>(kept.batch * kept.time * kept.channel));

  explicit layer(const extents& of) : shape(of) {
    // `false` gives values of both signs, as pre-activations have.
    fill(pre, 3 * n, false), fill(output_grad, n, false);
  }
  T* role(int i, int arrays) { return static_cast<T*>(bench::buffers.get(i, arrays * bytes)); }
  auto packed_arrays(T* all) const {
    extents wide = shape;
    wide.channel *= 3;
    return packed<cell>(view(all, wide));
  }
  view array(T* p) const { return {p, shape}; }
  checkpoints_view checkpoint() { return {checkpoints.data(), kept}; }
};

template <class T>
void run_call(call what, layer<T>& l, const cell::arrays<sequence_view<T>>& gates,
              const cell::arrays<sequence_view<T>>& grads, const tiled& backend) {
  switch (what) {
    case call::inference:
      return gated_scan(backend, cell{}, gates, l.array(l.output));
    case call::forward_store:
      return gated_scan(backend, cell{}, gates, l.array(l.output),
                        memory::store{l.array(l.states)});
    case call::forward_recompute:
      return gated_scan(backend, cell{}, gates, l.array(l.output),
                        memory::recompute{l.checkpoint()});
    case call::vjp_store:
      return gated_scan_vjp(backend, cell{}, gates, memory::store{l.array(l.states)},
                            l.array(l.output_grad), {.arrays = grads});
    case call::vjp_recompute:
      return gated_scan_vjp(backend, cell{}, gates, memory::recompute{l.checkpoint()},
                            l.array(l.output_grad), {.arrays = grads});
  }
}
template <class T>
std::int64_t workspace_of(call what, layer<T>& l, const cell::arrays<sequence_view<T>>& gates,
                          const cell::arrays<sequence_view<T>>& grads) {
  const tiled backend;
  switch (what) {
    case call::inference:
      return workspace_bytes(backend, gated_scan_problem(cell{}, gates, l.array(l.output)));
    case call::forward_store:
      return workspace_bytes(backend, gated_scan_problem(cell{}, gates, l.array(l.output),
                                                         memory::store{l.array(l.states)}));
    case call::forward_recompute:
      return workspace_bytes(backend, gated_scan_problem(cell{}, gates, l.array(l.output),
                                                         memory::recompute{l.checkpoint()}));
    case call::vjp_store:
      return workspace_bytes(backend,
                             gated_scan_vjp_problem(cell{}, gates, memory::store{l.array(l.states)},
                                                    l.array(l.output_grad), {.arrays = grads}));
    case call::vjp_recompute:
      return workspace_bytes(
          backend, gated_scan_vjp_problem(cell{}, gates, memory::recompute{l.checkpoint()},
                                          l.array(l.output_grad), {.arrays = grads}));
  }
  return 0;
}

/// Copies rows of C elements with row stride `from_row` to rows with row stride `to_row`.
template <class T>
void copy_rows(const T* from, std::int64_t from_row, T* to, std::int64_t to_row, std::int64_t rows,
               std::int64_t C, int threads) {
  in_parallel(threads, [&](int worker) {
    for (std::int64_t r = rows * worker / threads; r < rows * (worker + 1) / threads; ++r)
      std::copy_n(from + r * from_row, C, to + r * to_row);
  });
}

template <class T>
void measure_layer(runner& by, const extents& shape, call what, bool copied, int threads) {
  layer<T> l(shape);
  const tiled backend{.threads = threads};
  auto gates = l.packed_arrays(l.pre), grads = l.packed_arrays(l.pre_grad);
  const int workers = threads > 0 ? threads : bench::default_threads();
  const std::int64_t rows = shape.batch * shape.time, C = shape.channel;
  T* own[6];
  std::function<void()> kernel = [&] { run_call(what, l, gates, grads, backend); };
  if (copied) {
    for (int i = 0; i < 6; ++i) own[i] = (i < 3 ? l.role(5, 3) : l.role(6, 3)) + i % 3 * l.n;
    gates = {l.array(own[0]), l.array(own[1]), l.array(own[2])};
    grads = {l.array(own[3]), l.array(own[4]), l.array(own[5])};
    const bool backward = what >= call::vjp_store;
    // A vjp reuses the gates that the forward call copied out, so it does not time these copies.
    for (int i = 0; i < 3; ++i) copy_rows(l.pre + i * C, 3 * C, own[i], C, rows, C, workers);
    kernel = [&, backward] {
      if (!backward)
        for (int i = 0; i < 3; ++i) copy_rows(l.pre + i * C, 3 * C, own[i], C, rows, C, workers);
      run_call(what, l, gates, grads, backend);
      if (backward)
        for (int i = 0; i < 3; ++i)
          copy_rows(own[3 + i], C, l.pre_grad + i * C, 3 * C, rows, C, workers);
    };
  }
  run_call(call::forward_store, l, gates, grads, backend);
  run_call(call::forward_recompute, l, gates, grads, backend);

  const auto at = [&](T* p, int i) { return reinterpret_cast<float*>(p + i * l.n); };
  const read_arrays in{at(l.pre, 0), at(l.pre, 1), at(l.pre, 2), at(l.output_grad, 0),
                       at(l.states, 0)};
  const written_arrays out =
      what >= call::vjp_store
          ? written_arrays{at(l.pre_grad, 0), at(l.pre_grad, 1), at(l.pre_grad, 2)}
          : written_arrays{at(l.pre_grad, 0), at(l.output, 0)};
  measure(by, kernel, traffic_of(what), in, out, l.n, sizeof(T), shape.time, threads);
  const bool stores = what == call::forward_store || what == call::vjp_store;
  const double kept = what == call::inference ? 0
                      : stores                ? static_cast<double>(l.bytes)
                               : static_cast<double>(l.checkpoints.size()) * sizeof(compute_t<T>);
  by.counter("kept", kept / static_cast<double>(l.bytes));
  by.counter("workspace", static_cast<double>(workspace_of(what, l, gates, grads)) /
                              static_cast<double>(l.bytes));
}

template <class T>
row make_row(const std::string& workload, const extents& shape, call what, bool copied = false,
             int threads = 0) {
  return {workload + "/" + call_names[static_cast<int>(what)], 9,
          [=](runner& by) { measure_layer<T>(by, shape, what, copied, threads); }};
}

#if defined(BENCH_LOG_SPACE)

enum class exponentials { in_the_load, written };

/// to[i] = by(x[i], y[i]), with as many threads as a scan.
template <class By>
void write_products(float* to, const float* x, const float* y, std::int64_t n, By by) {
  const int workers = bench::default_threads();
  in_parallel(workers, [&](int worker) {
    const std::int64_t lines = n / 16;
    for (std::int64_t i = lines * worker / workers; i < lines * (worker + 1) / workers; ++i) {
      const auto at = [i](const float* p) { return simd::load_unit<line>(p + 16 * i); };
      simd::store_unit(to + 16 * i, by(at(x), at(y)));
    }
  });
}

void measure_logarithms(runner& by, const extents& shape, bool backward, exponentials where) {
  const std::int64_t n = shape.batch * shape.time * shape.channel;
  const auto role = [&](int i, int arrays) {
    return static_cast<float*>(bench::buffers.get(i, arrays * n * sizeof(float)));
  };
  const auto view = [&](float* p) { return sequence_view(p, shape); };
  float *const gate = role(0, 2), *const input = gate + n, *const states = role(1, 1);
  float *const state_grad = role(2, 1), *const gate_grad = role(4, 2), *const written = role(5, 2);
  fill(gate, 2 * n, false), fill(state_grad, n, false);
  for (std::int64_t i = 0; i < n; ++i) gate[i] = -std::abs(gate[i]);
  using cell = log_space<>;
  const cell::arrays<sequence_view<float>> logarithms{view(gate), view(input)};
  const auto exp = [](line x, line) { return simd::exp_of_any(x); };
  const auto product = [](line x, line y) { return simd::mul(x, y); };
  const auto write = [&] {
    write_products(written, gate, gate, n, exp);
    write_products(written + n, input, input, n, exp);
  };
  gated_scan(cell{}, logarithms, view(states)), write();

  const auto a = view(written), u = view(written + n), da = view(gate_grad),
             du = view(gate_grad + n);
  std::function<void()> kernel;
  if (where == exponentials::in_the_load && !backward)
    kernel = [=] { gated_scan(cell{}, logarithms, view(states)); };
  else if (where == exponentials::in_the_load)
    kernel = [=] {
      gated_scan_vjp(cell{}, logarithms, memory::store{view(states)}, view(state_grad),
                     {.arrays = {da, du}});
    };
  else if (!backward)
    kernel = [=] { write(), linear_scan(a, u, view(states)); };
  else  // reads the exponentials that the forward call wrote
    kernel = [=] {
      linear_scan_vjp(a, view(states), view(state_grad), {.gate_grad = da, .input_grad = du});
      write_products(da.data, da.data, a.data, n, product);
      write_products(du.data, du.data, u.data, n, product);
    };
  const traffic moved = backward ? traffic{4, 2} : traffic{2, 1};
  measure(by, kernel, moved, {gate, input, states, state_grad}, {gate_grad, gate_grad + n}, n,
          sizeof(float), shape.time, 0);
}

#endif

}  // namespace

std::vector<row> bench::rows(bool quick) {
  const extents long_rows{.batch = 8, .time = 8192, .channel = 256};
  const extents few_channels{.batch = 4, .time = 65536, .channel = 32};
  const extents small{.batch = 1, .time = 512, .channel = 64};
  std::vector<row> all;
  for (const call what : {call::inference, call::forward_store, call::forward_recompute,
                          call::vjp_store, call::vjp_recompute}) {
    all.push_back(make_row<float>("packed", long_rows, what));
    all.push_back(make_row<float>("copied", long_rows, what, true));
    all.push_back(make_row<float>("few_channels", few_channels, what));
    all.push_back(make_row<float>("in_cache", small, what, false, 1));
    if (quick) continue;
    all.push_back(make_row<float>("one_thread", long_rows, what, false, 1));
    all.push_back(make_row<bfloat16>("bfloat16", long_rows, what));
  }
#if defined(BENCH_LOG_SPACE)
  for (const bool backward : {false, true})
    for (const exponentials where : {exponentials::in_the_load, exponentials::written}) {
      const char* const name = where == exponentials::written ? "logarithms_written" : "logarithms";
      all.push_back({std::string(name) + (backward ? "/vjp" : "/forward"), 9,
                     [=](runner& by) { measure_logarithms(by, long_rows, backward, where); }});
    }
#endif
  return all;
}
