// SPDX-License-Identifier: BSD-3-Clause
// linear_scan, gated_scan and their derivatives with time split over the ranks of an MPI
// communicator.
//
// Every process passes views of its part of the sequence. The parts are in the order of the
// ranks, may have any length, and may be empty. For each group, batch and channel, a part is
// summarised by an affine map from the state before it to the state after it (split_time.hpp). By
// default, a single all-gather exchanges these maps. Each process folds the maps of the parts
// before its own, in the order of the scan, into the state before its part. It then runs its part
// from this state.
#pragma once

#include <scanrec/mpi/gated_scan.hpp>   // IWYU pragma: export
#include <scanrec/mpi/linear_scan.hpp>  // IWYU pragma: export
