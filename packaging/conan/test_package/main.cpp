// SPDX-License-Identifier: BSD-3-Clause
// A consumer of the package: checks the last state of a scan and the gradient of the first input.
#include <cstdio>
#include <vector>

#include <scanrec/scan.hpp>
#ifdef CONSUMER_EIGEN
#include <scanrec/eigen.hpp>
#endif

int main() {
  // With gates of 1/2 and inputs of 1, state[t] = 2 - 2^-t exactly. The gradient of the sum of the
  // states, with respect to the inputs, has the same values in reverse order.
  const scanrec::extents shape{.time = 16};
  std::vector<float> gate(16, 0.5f), one(16, 1.0f), state(16), grad(16);
  using view = scanrec::sequence_view<float>;
  const view a(gate, shape), ones(one, shape), h(state, shape), du(grad, shape);
  scanrec::linear_scan(a, ones, h);
  scanrec::linear_scan_vjp(a, h, ones, {.input_grad = du});
  const float last = 2.0f - 1.0f / 32768.0f;
  bool right = state.back() == last && grad.front() == last;
#ifdef CONSUMER_EIGEN
  Eigen::VectorXf column(16);
  scanrec::linear_scan(a, ones, scanrec::as_sequence(column));
  right = right && column[15] == last;
  std::puts("with Eigen");
#endif
  std::printf("scanrec %d: %s\n", SCANREC_VERSION, right ? "right" : "wrong");
  return right ? 0 : 1;
}
