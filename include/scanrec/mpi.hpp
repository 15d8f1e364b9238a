// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, gated_scan and their derivatives with time split over the ranks of an MPI
// communicator.
//
// Every process passes views of its part of the sequence. The parts are in the order of the
// ranks, may have any length, and may be empty. The processes exchange one map per part and
// sequence (split_time.hpp) in a single all-gather. Each process folds the maps of the earlier
// parts from left to right. This gives the state before its own part, which it then runs.
#pragma once

#include <scanrec/mpi/gated_scan.hpp>   // IWYU pragma: export
#include <scanrec/mpi/linear_scan.hpp>  // IWYU pragma: export
