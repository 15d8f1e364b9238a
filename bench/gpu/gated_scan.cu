// SPDX-License-Identifier: BSD-3-Clause
// Times QRNN fo-pooling from a packed buffer of bfloat16 on a GPU: every backend, and a plain loop
// over the same buffer. Calls have the names of bench/gated_scan.cpp.
#include <cstdint>
#include <functional>
#include <string>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>

#include "plain_loop.cuh"
#include "variants.cuh"

namespace bench {
namespace kernels {

/// The plain loop: one thread per sequence. Sigmoids use the hardware's approximate exponential.
__global__ void plain_fo_pooling(const bfloat16* pre, bfloat16* output, bfloat16* states,
                                 extents shape) {
  const std::int64_t sequence = thread_number(), C = shape.channel;
  if (sequence >= shape.batch * C) return;
  const auto sigmoid = [](float x) { return 1 / (1 + __expf(-x)); };
  float x = 0;
  for (std::int64_t t = 0; t < shape.time; ++t) {
    const std::int64_t row = sequence / C * shape.time + t, c = sequence % C;
    const bfloat16* const gates = pre + row * 3 * C + c;
    const float z = tanhf(static_cast<float>(gates[0]));
    const float f = sigmoid(static_cast<float>(gates[C]));
    const float o = sigmoid(static_cast<float>(gates[2 * C]));
    x = fmaf(f, x, (1 - f) * z);
    if (states) states[row * C + c] = static_cast<bfloat16>(x);
    output[row * C + c] = static_cast<bfloat16>(o * x);
  }
}

}  // namespace kernels

namespace {

using T = bfloat16;
using view = sequence_view<T>;
using cell = fo_pooling<>;

enum class layer_call { inference, forward_store, vjp_store };
constexpr const char* layer_call_names[]{"inference", "forward_store", "vjp_store"};

/// The arrays of a layer. The pre-activations are packed, and so are their gradients.
struct layer {
  extents shape;
  std::int64_t n = shape.batch * shape.time * shape.channel;
  T* pre = role(0, 3);
  T* states = role(1, 1);
  T* output_grad = role(2, 1);
  T* output = role(3, 1);
  T* pre_grad = role(4, 3);

  explicit layer(const extents& of) : shape(of) {}
  [[nodiscard]] view array(T* p) const { return {p, shape}; }
  [[nodiscard]] cell::arrays<view> gates(T* all) const {
    extents wide = shape;
    wide.channel *= 3;
    return packed<cell>(view(all, wide));
  }

 private:
  [[nodiscard]] T* role(int i, int arrays) const {
    return static_cast<T*>(
        machine::here().get(first_array + i, arrays * n * static_cast<std::int64_t>(sizeof(T))));
  }
};

template <class Backend>
void run(const Backend& on, layer_call what, const layer& l) {
  const auto gates = l.gates(l.pre);
  const gated_gradients<cell, T> gradients{.arrays = l.gates(l.pre_grad)};
  switch (what) {
    case layer_call::inference:
      return gated_scan(on, cell{}, gates, l.array(l.output));
    case layer_call::forward_store:
      return gated_scan(on, cell{}, gates, l.array(l.output), memory::store{l.array(l.states)});
    case layer_call::vjp_store:
      return gated_scan_vjp(on, cell{}, gates, memory::store{l.array(l.states)},
                            l.array(l.output_grad), gradients);
  }
}
template <class Backend>
std::int64_t workspace_of(const Backend& on, layer_call what, const layer& l) {
  const auto gates = l.gates(l.pre);
  const memory::store states{l.array(l.states)};
  const gated_gradients<cell, T> gradients{.arrays = l.gates(l.pre_grad)};
  switch (what) {
    case layer_call::inference:
      return workspace_bytes(on, gated_scan_problem(cell{}, gates, l.array(l.output)));
    case layer_call::forward_store:
      return workspace_bytes(on, gated_scan_problem(cell{}, gates, l.array(l.output), states));
    case layer_call::vjp_store:
      return workspace_bytes(
          on, gated_scan_vjp_problem(cell{}, gates, states, l.array(l.output_grad), gradients));
  }
  return 0;
}
void run_plain(layer_call what, const layer& l) {
  if (what == layer_call::vjp_store) throw left_out("forward only");
  const auto blocks = static_cast<unsigned>((l.shape.batch * l.shape.channel + 127) / 128);
  kernels::plain_fo_pooling<<<blocks, 128, 0, machine::here().stream>>>(
      l.pre, l.output, what == layer_call::forward_store ? l.states : nullptr, l.shape);
  check(cudaGetLastError(), "plain_fo_pooling");
}

/// A subject without its call, which the caller sets.
subject make_subject(const extents& shape, layer_call what) {
  const layer l(shape);
  const cuda::lanes lanes{.stream = machine::here().stream};
  subject s;
  s.inputs = std::string("qrnn_packed/") + layer_call_names[static_cast<int>(what)];
  s.fill = [=] {
    machine::here().fill(l.pre, 3 * l.n, -1.0f, 1.0f, 0);
    machine::here().fill(l.output_grad, l.n, -1.0f, 1.0f, 1);
    if (what == layer_call::vjp_store) run(lanes, layer_call::forward_store, l);
  };
  s.reference = [=] { run(lanes, what, l); };
  s.elements = l.n, s.element_bytes = sizeof(T), s.steps = shape.time;
  const std::int64_t n = l.n;
  switch (what) {
    case layer_call::inference:
      s.moved = {3, 1}, s.results = {result_of(l.output, n)};
      break;
    case layer_call::forward_store:
      s.moved = {3, 2}, s.results = {result_of(l.output, n), result_of(l.states, n)};
      break;
    case layer_call::vjp_store:
      s.moved = {5, 3}, s.results = {result_of(l.pre_grad, 3 * n)};
      break;
  }
  s.in = {l.pre, l.pre + n, l.pre + 2 * n, l.output_grad, l.states};
  s.out = what == layer_call::vjp_store
              ? written_arrays{l.pre_grad, l.pre_grad + n, l.pre_grad + 2 * n}
              : written_arrays{l.output, l.states};
  return s;
}

template <class Backend>
void add_backend(const named<Backend>& backend, const extents& shape, layer_call what) {
  const char* const call_name = layer_call_names[static_cast<int>(what)];
  add_row(std::string("qrnn_packed/") + backend.name + "/" + call_name, [=] {
    const layer l(shape);
    subject s = make_subject(shape, what);
    s.workspace_bytes = workspace_of(backend.made(), what, l);
    s.call = [=](const cuda::workspace& w) { run(backend.working_in(w), what, l); };
    return s;
  });
}

void add_all(bool quick) {
  const extents shape{.batch = 32, .time = quick ? 1024 : 4096, .channel = 1024};
  for (const auto what :
       {layer_call::inference, layer_call::forward_store, layer_call::vjp_store}) {
    const std::string call_name = layer_call_names[static_cast<int>(what)];
    const auto roof = [=] { return make_subject(shape, what); };
    if (what == layer_call::inference) add_roof("qrnn_packed/device_copy/copy", roof, true);
    add_roof("qrnn_packed/copy_baseline/" + call_name, roof, false);
    std::apply([=](const auto&... each) { (add_backend(each, shape, what), ...); }, backends);
    add_row("qrnn_packed/plain_loop/" + call_name, [=] {
      subject s = make_subject(shape, what);
      s.call = [=, l = layer(shape)](const auto&) { run_plain(what, l); };
      return s;
    });
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv, bench::add_all); }
