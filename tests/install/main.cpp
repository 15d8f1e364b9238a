// SPDX-License-Identifier: BSD-3-Clause
// A consumer of an installed or fetched scanrec that checks the last state of one scan.
#include <cstdio>
#include <vector>

#include <scanrec/scan.hpp>
#ifdef CONSUMER_EIGEN
#include <scanrec/eigen.hpp>
#endif
#ifdef CONSUMER_MPI
#include <scanrec/mpi.hpp>
#endif

int main() {
  // Gates are 1/2 and inputs 1, so state[t] = 2 - 2^-t, which is exact in float.
  const scanrec::extents shape{.time = 16};
  std::vector<float> gate(16, 0.5f), input(16, 1.0f), state(16);
  using view = scanrec::sequence_view<float>;
  scanrec::linear_scan(view(gate, shape), view(input, shape), view(state, shape));
  bool right = state.back() == 2.0f - 1.0f / 32768.0f;
#ifdef CONSUMER_EIGEN
  Eigen::VectorXf column(16);
  scanrec::linear_scan(view(gate, shape), view(input, shape), scanrec::as_sequence(column));
  right = right && column[15] == state.back();
  std::puts("with Eigen");
#endif
  std::printf("last state %.9g, scanrec %d: %s\n", state.back(), SCANREC_VERSION,
              right ? "right" : "wrong");
  return right ? 0 : 1;
}
