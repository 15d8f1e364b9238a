// SPDX-License-Identifier: BSD-3-Clause
// Times selective scans of Mamba's sizes on a GPU. The copy baseline of a forward call reads u,
// delta and z, and writes the output. The copy baseline of an adjoint also reads the gradient of
// the output, and writes only the gradients of u, delta and z. Results are not compared here; the
// tests on the emulator check the error bounds.
#include <cstdint>
#include <string>

#include <scanrec/cuda/selective_scan.cuh>

#include "measure.cuh"

namespace bench {
namespace {

using namespace scanrec;

enum class selective_call { forward, checkpoints, vjp };
constexpr const char* selective_call_names[]{"forward", "checkpoints", "vjp"};

/// The arrays of a layer with 16 states per channel.
template <class T>
struct layer {
  static constexpr std::int64_t states = 16;
  extents shape;
  std::int64_t n = shape.batch * shape.time * shape.channel;
  std::int64_t mixed = shape.batch * shape.time * states, own = shape.channel * states;
  std::int64_t kept = memory::checkpoint_extents(shape).time * shape.batch * own;
  T *u = role<T>(0, n), *delta = role<T>(1, n), *z = role<T>(2, n), *out_grad = role<T>(3, n);
  T *out = role<T>(4, n), *gradients = role<T>(5, 3 * n);
  T* bc = role<T>(6, 4 * mixed);                           // B, C, their gradients
  float* a_values = role<float>(7, 2 * own);               // A, its gradient
  float* per_channel = role<float>(8, 4 * shape.channel);  // D, bias, their gradients
  float* states_kept = role<float>(9, kept);

  explicit layer(const extents& of) : shape(of) {}
  [[nodiscard]] sequence_view<T> array(T* p) const { return {p, shape}; }
  [[nodiscard]] sequence_view<T> bc_array(int i) const {
    const extents of{.batch = shape.batch, .time = shape.time, .channel = 1, .group = states};
    return {bc + i * mixed, of, states_last(of)};
  }
  [[nodiscard]] state_view<float> rate_array(int i) const {
    return {a_values + i * own,
            {.channel = shape.channel, .group = states},
            {.channel = states, .group = 1}};
  }
  [[nodiscard]] state_view<float> channel_array(int i) const {
    return {per_channel + i * shape.channel, {.channel = shape.channel}, {.channel = 1}};
  }
  [[nodiscard]] sequence_view<float> checkpoints() const {
    extents of = memory::checkpoint_extents(shape);
    of.group = states;
    return {states_kept, of, states_last(of)};
  }
  [[nodiscard]] selective_arrays<float> arrays() const {
    return {.u = array(u),
            .delta = array(delta),
            .a = rate_array(0),
            .b = bc_array(0),
            .c = bc_array(1),
            .d = channel_array(0),
            .z = array(z),
            .delta_bias = channel_array(1),
            .softplus = true};
  }
  [[nodiscard]] selective_gradients<float> all_gradients() const {
    return {.u = array(gradients),
            .delta = array(gradients + n),
            .a = rate_array(1),
            .b = bc_array(2),
            .c = bc_array(3),
            .d = channel_array(2),
            .z = array(gradients + 2 * n),
            .delta_bias = channel_array(3)};
  }
  void run(const cuda::workspace& w, selective_call what) const {
    const cuda::automatic on{.stream = machine::here().stream, .workspace = w};
    if (what == selective_call::vjp)
      return cuda::selective_scan_vjp<float>(on, arrays(), array(out_grad), all_gradients(),
                                             {.checkpoints = checkpoints()});
    selective_options<float> options;
    if (what == selective_call::checkpoints) options.checkpoints = checkpoints();
    cuda::selective_scan<float>(on, arrays(), array(out), options);
  }

 private:
  template <class E>
  static E* role(int i, std::int64_t count) {
    return static_cast<E*>(
        machine::here().get(first_array + i, count * static_cast<std::int64_t>(sizeof(E))));
  }
};

template <class T>
subject make_subject(const std::string& workload, const extents& shape, selective_call what) {
  const layer<T> l(shape);
  subject s;
  s.inputs = workload + "/" + selective_call_names[static_cast<int>(what)];
  s.fill = [=] {
    const machine& gpu = machine::here();
    gpu.fill(l.u, l.n, -1.0f, 1.0f, 0), gpu.fill(l.delta, l.n, -1.0f, 1.0f, 1);
    gpu.fill(l.z, l.n, -1.0f, 1.0f, 2), gpu.fill(l.out_grad, l.n, -1.0f, 1.0f, 3);
    gpu.fill(l.bc, 2 * l.mixed, -1.0f, 1.0f, 4), gpu.fill(l.a_values, l.own, -16.0f, -1.0f, 5);
    // D, and a bias that makes step sizes of about 0.01, as in newly initialised layers.
    gpu.fill(l.per_channel, l.shape.channel, 0.5f, 1.5f, 6);
    gpu.fill(l.per_channel + l.shape.channel, l.shape.channel, -5.0f, -4.0f, 7);
    if (what == selective_call::vjp) l.run({}, selective_call::checkpoints);
  };
  s.elements = l.n, s.element_bytes = sizeof(T), s.steps = shape.time;
  if (what == selective_call::vjp) {
    const cuda::automatic on{.stream = machine::here().stream};
    s.workspace_bytes = cuda::selective_scan_vjp_workspace_bytes<float>(
        on, l.arrays(), l.array(l.out_grad), l.all_gradients(), {.checkpoints = l.checkpoints()});
    s.moved = {4, 3};
    s.out = {l.gradients, l.gradients + l.n, l.gradients + 2 * l.n};
  } else {
    s.moved = {3, 1}, s.out = {l.out};
  }
  s.in = {l.u, l.delta, l.z, l.out_grad};
  s.call = [=](const cuda::workspace& w) { l.run(w, what); };
  return s;
}

template <class T>
void add_workload(const std::string& name, const extents& shape) {
  for (const auto what :
       {selective_call::forward, selective_call::checkpoints, selective_call::vjp}) {
    const std::string call_name = selective_call_names[static_cast<int>(what)];
    const auto make = [=] { return make_subject<T>(name, shape, what); };
    if (what == selective_call::forward) add_roof(name + "/device_copy/copy", make, true);
    add_roof(name + "/copy_baseline/" + call_name, make, false);
    add_row(name + "/automatic/" + call_name, make);
  }
}

void add_all(bool quick) {
  const extents few{.batch = 2, .time = quick ? 512 : 4096, .channel = 1536};
  const extents many{.batch = 8, .time = quick ? 512 : 2048, .channel = 2048};
  add_workload<float>("selective_few", few), add_workload<bfloat16>("selective_few_bfloat16", few);
  add_workload<float>("selective_many", many);
  add_workload<bfloat16>("selective_many_bfloat16", many);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv, bench::add_all); }
