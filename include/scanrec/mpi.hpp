// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, gated_scan and their derivatives with time split over the ranks of an MPI
// communicator.
//
// Every process passes views of its part of the sequence. The parts are in the order of the
// ranks, may have any length, and may be empty. By default, a single all-gather exchanges one map
// per part and sequence (split_time.hpp). Each process folds the maps of the parts before its own,
// in the order of the scan, into the state before its part. It then runs its part from this state.
#pragma once

#include <scanrec/mpi/gated_scan.hpp>   // IWYU pragma: export
#include <scanrec/mpi/linear_scan.hpp>  // IWYU pragma: export
