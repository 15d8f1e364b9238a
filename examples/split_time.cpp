// SPDX-License-Identifier: BSD-3-Clause
// Exponential smoothing of one sequence of 2^26 steps, whose time is split over MPI processes.
//
//     mpirun -n 4 build/release/examples/split_time
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <scanrec/mpi.hpp>

// A number in [-1, 1) that depends only on the step, so that a process can compute it for any step.
static float noise(std::int64_t step) {
  const auto bits = static_cast<std::uint64_t>(step) * 0x9e3779b97f4a7c15u;
  return static_cast<float>((bits ^ (bits >> 29)) >> 40) * 0x1p-23f - 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr std::int64_t steps = std::int64_t{1} << 26;
  const std::int64_t begin = steps * rank / size, end = steps * (rank + 1) / size;
  const scanrec::extents shape{.time = end - begin};
  const float gate = 0.999f;
  std::vector<float> input(static_cast<std::size_t>(end - begin)), state(input.size());
  for (std::int64_t t = begin; t < end; ++t)
    input[static_cast<std::size_t>(t - begin)] = (1 - gate) * noise(t);

  double seconds = 1e9;
  for (int run = 0; run < 5; ++run) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    // [split_time]
    scanrec::mpi::linear_scan(MPI_COMM_WORLD, scanrec::tiled{.threads = 1},
                              scanrec::sequence_view(&gate, shape, scanrec::strides{}),
                              scanrec::sequence_view(input.data(), shape),
                              scanrec::sequence_view(state.data(), shape));
    // [/split_time]
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = std::fmin(seconds, MPI_Wtime() - start);
  }
  // Compare with a plain loop over the 2^16 steps before `end`. Earlier inputs have decayed.
  double alone = 0, off = 0, worst = 0;
  for (std::int64_t t = end > 65536 ? end - 65536 : 0; t < end; ++t)
    alone = static_cast<double>(gate) * alone + static_cast<double>((1 - gate) * noise(t));
  off = std::fabs(alone - static_cast<double>(state.back()));
  MPI_Reduce(&off, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("%d processes: %.1f ms, maps of %d bytes, last states off by %.1e: %s\n", size,
                seconds * 1e3, size > 1 ? 16 : 0, worst, worst < 1e-5 ? "right" : "wrong");
  MPI_Finalize();
  return rank == 0 && worst >= 1e-5 ? 1 : 0;
}
