// SPDX-License-Identifier: BSD-3-Clause
// The kernels of all backends and of the plain loop for one element type, BENCH_TYPE.
#include <tuple>

#include "plain_loop.cuh"
#include "variants.cuh"

namespace bench {
namespace {

template <class T, class Backend>
variant<T> make(const named<Backend>& backend) {
  variant<T> v;
  v.name = backend.name;
  v.workspace_bytes = [backend](call what, const arrays<T>& a) {
    const Backend on = backend.made();
    return what == call::forward
               ? workspace_bytes(on, linear_scan_problem(a.gate(), a.array(1), a.array(2)))
               : workspace_bytes(on, linear_scan_vjp_problem(
                                         a.gate(), a.array(1), a.array(2),
                                         {.gate_grad = a.gate_grad(), .input_grad = a.array(4)}));
  };
  v.run = [backend](call what, const arrays<T>& a, const cuda::workspace& w) {
    const Backend on = backend.working_in(w);
    if (what == call::forward)
      linear_scan(on, a.gate(), a.array(1), a.array(2));
    else
      linear_scan_vjp(on, a.gate(), a.array(1), a.array(2),
                      {.gate_grad = a.gate_grad(), .input_grad = a.array(4)});
  };
  return v;
}

template <class T>
variant<T> plain_loop() {
  variant<T> v;
  v.name = "plain_loop";
  v.workspace_bytes = [](call, const arrays<T>&) { return std::int64_t{0}; };
  v.run = [](call what, const arrays<T>& a, const cuda::workspace&) {
    const std::int64_t sequences = a.shape.batch * a.shape.channel;
    const auto blocks = static_cast<unsigned>((sequences + 127) / 128);
    const cudaStream_t stream = machine::here().stream;
    if (what == call::forward)
      kernels::plain_forward<<<blocks, 128, 0, stream>>>(a.gate(), a.array(1), a.array(2));
    else if (a.one_gate_per_channel)
      throw left_out("has no sums of gradients");
    else
      kernels::plain_vjp<<<blocks, 128, 0, stream>>>(a.gate(), a.array(1), a.array(2),
                                                     a.gate_grad(), a.array(4));
    check(cudaGetLastError(), "plain loop");
  };
  return v;
}

}  // namespace

template <>
std::vector<variant<BENCH_TYPE>> variants() {
  using T = BENCH_TYPE;
  auto all = std::apply(
      [](const auto&... each) { return std::vector<variant<T>>{make<T>(each)...}; }, backends);
  all.push_back(plain_loop<T>());
  return all;
}

}  // namespace bench
