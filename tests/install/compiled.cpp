// SPDX-License-Identifier: BSD-3-Clause
// A consumer of an installed scanrec::compiled: a scan and its derivatives for two element types.
#include <complex>
#include <cstdio>
#include <vector>

#include <scanrec/scan.hpp>

namespace {

// Gates are 1/2 and inputs 1. So state[t] = 2 - 2^-t, and the gradient of the sum of all states
// with respect to input[t] is 2 - 2^(t - 15). Both are exact.
template <class T>
bool right() {
  const scanrec::extents shape{.time = 16};
  std::vector<T> gate(16, T(0.5f)), one(16, T(1)), state(16), grad(16), tangent(16);
  using view = scanrec::sequence_view<T>;
  using scanrec::none;
  const view a(gate, shape), ones(one, shape), h(state, shape), du(grad, shape), dh(tangent, shape);
  scanrec::linear_scan(a, ones, h);
  scanrec::linear_scan_vjp(a, h, ones, {.input_grad = du});
  scanrec::linear_scan_jvp(a, h, view{}, ones, dh);
  const T last = T(2) - T(1) / T(32768);
  return state.back() == last && grad.front() == last && tangent == state;
}

}  // namespace

int main() {
  const bool ok = right<float>() && right<std::complex<double>>();
  std::printf("compiled separately: %s\n", ok ? "right" : "wrong");
  return ok ? 0 : 1;
}
