// SPDX-License-Identifier: BSD-3-Clause
// The main function of the MPI tests.
#define CATCH_CONFIG_RUNNER
#include <scanrec/mpi.hpp>

#include "catch.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int result = Catch::Session().run(argc, argv);
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return result;
}
