// SPDX-License-Identifier: BSD-3-Clause
// One sequence over many processes: linear_scan, gated_scan and their derivatives, with time split
// over the ranks of an MPI communicator.
//
// Every process calls with the views of its own part; parts follow each other as the ranks do, are
// as long as they like, and may be empty. A process tells the others one map per sequence
// (split_time.hpp), in one all-gather; each folds those before its own from left to right, and
// processes its part from there.
#pragma once

#include <scanrec/mpi/gated_scan.hpp>   // IWYU pragma: export
#include <scanrec/mpi/linear_scan.hpp>  // IWYU pragma: export
