// SPDX-License-Identifier: BSD-3-Clause
// Times linear_scan and its vjp on a GPU: every backend on every workload, and peers (other
// libraries) on two workloads. --quick shortens the sequences.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "variants.cuh"

namespace bench {
namespace {

/// Runs the call on host copies of the arrays.
void run_on_host(call what, const arrays<float>& a) {
  const auto n = static_cast<std::size_t>(a.elements());
  const std::size_t bytes = n * sizeof(float);
  const int reads = what == call::forward ? 2 : 3, all = what == call::forward ? 3 : 5;
  machine::here().wait();
  std::vector<float> host[5];
  for (int i = 0; i < all; ++i) {
    host[i].resize(n);
    if (i < reads)
      check(cudaMemcpy(host[i].data(), a.data[i], bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  const auto array = [&](int i) {
    return sequence_view<float>(host[i].data(), a.shape, a.strides);
  };
  if (what == call::forward)
    linear_scan(sequential{}, array(0), array(1), array(2));
  else
    linear_scan_vjp(sequential{}, array(0), array(1), array(2),
                    {.gate_grad = array(3), .input_grad = array(4)});
  for (int i = reads; i < all; ++i)
    check(cudaMemcpy(a.data[i], host[i].data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  // A copy from pageable memory may return before it is complete, and the stream of the benchmarks
  // would not wait for it.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// Computes the reference with `lanes`, whose results have the same bits as those of `sequential`,
/// except for sums over sequences. For few long sequences of floats `lanes` would take minutes, so
/// `sequential` runs on the host instead.
template <class T>
void make_results(call what, const arrays<T>& a) {
  if constexpr (std::is_same_v<T, float>)
    if (a.shape.batch * a.shape.channel < 64 && a.shape.time > 65536) return run_on_host(what, a);
  for (const variant<T>& v : variants<T>()) {
    if (v.name != "lanes") continue;
    const device_buffer memory(v.workspace_bytes(what, a));
    v.run(what, a, {.data = memory.data(), .bytes = memory.bytes()});
    machine::here().wait();
  }
}

template <class T>
subject make_subject(const workload& w, const variant<T>& v, call what) {
  const arrays<T> a(w);
  subject s;
  s.inputs = w.name + "/" + call_names[static_cast<int>(what)];
  s.workspace_bytes = v.workspace_bytes(what, a);
  s.fill = [=] { a.fill(); };
  const auto queue = [=](const typename variant<T>::queue& f, const arrays<T>& on) {
    subject::queue result;
    if (f) result = [=](const cuda::workspace& memory) { f(what, on, memory); };
    return result;
  };
  s.call = queue(v.run, a);
  s.before = queue(v.before, a), s.after = queue(v.after, a);
  if (a.shape.time >= 1 << 20) {
    arrays<T> part = a;
    part.shape.time /= 256;
    s.short_call = queue(v.run, part);
  }
  s.reference = [=] { make_results(what, a); };
  const std::int64_t n = a.elements();
  s.moved = traffic_of(what, w);
  s.elements = n, s.element_bytes = sizeof(T), s.steps = w.shape.time;
  const bool one_gate = w.one_gate_per_channel;
  if (what == call::forward) {
    s.results = {result_of(a.data[2], n)};
    s.in = one_gate ? read_arrays{a.data[1]} : read_arrays{a.data[0], a.data[1]};
    s.out = {a.data[2]};
  } else {
    s.results = {one_gate ? result_of(a.few_grad, w.shape.channel) : result_of(a.data[3], n),
                 result_of(a.data[4], n)};
    s.in =
        one_gate ? read_arrays{a.data[1], a.data[2]} : read_arrays{a.data[0], a.data[1], a.data[2]};
    s.out = one_gate ? written_arrays{a.data[4]} : written_arrays{a.data[3], a.data[4]};
  }
  return s;
}

template <class T>
void add_workload(const workload& w, const std::vector<variant<T>>& peers = {}) {
  std::vector<variant<T>> all = variants<T>();
  for (const call what : {call::forward, call::vjp}) {
    const auto roof = [=, v = all.front()] { return make_subject(w, v, what); };
    if (what == call::forward) add_roof(w.name + "/device_copy/copy", roof, true);
    add_roof(w.name + "/copy_baseline/" + call_names[static_cast<int>(what)], roof, false);
  }
  all.insert(all.end(), peers.begin(), peers.end());
  // Ordered by call, since a reference is kept only until the inputs or the call change.
  for (const call what : {call::forward, call::vjp})
    for (const variant<T>& v : all)
      add_row(w.name + "/" + v.name + "/" + call_names[static_cast<int>(what)],
              [=] { return make_subject(w, v, what); });
}

void add_all(bool quick) {
  const auto steps = [=](std::int64_t all) {
    return quick ? std::max<std::int64_t>(all / 64, 1024) : all;
  };
  const auto of = [=](std::string name, std::int64_t B, std::int64_t T, std::int64_t C) {
    return workload{std::move(name), {.batch = B, .time = steps(T), .channel = C}};
  };
  workload time_contiguous = of("time_contiguous", 8, 65536, 1536);
  time_contiguous.time_last = true;
  workload complex_lambda = of("complex_lambda", 64, 4096, 256);
  complex_lambda.one_gate_per_channel = true;

  add_workload<float>(of("small", 1, 1024, 64));
  add_workload<float>(of("channels_last", 32, 4096, 1024));
  add_workload<float>(time_contiguous, peers());
  add_workload<float>(of("two_million_steps", 1, 1 << 21, 256));
  add_workload<float>(of("one_sequence", 1, 1 << 28, 1), peers());
  add_workload<bfloat16>(of("bfloat16", 32, 4096, 2048));
  add_workload<std::complex<float>>(complex_lambda);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv, bench::add_all); }
