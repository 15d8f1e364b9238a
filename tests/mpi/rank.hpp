// SPDX-License-Identifier: BSD-3-Clause
// The rank of a process, and the backend and both exchanges of the MPI tests.
#pragma once

#include <array>

#include <scanrec/backends.hpp>
#include <scanrec/mpi.hpp>

namespace tested {

struct process {
  int rank = 0, size = 1;
  process() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
};
inline const scanrec::tiled on{.threads = 1};
inline const std::array both{scanrec::mpi::exchange::gather, scanrec::mpi::exchange::scan};

}  // namespace tested
