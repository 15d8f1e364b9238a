// SPDX-License-Identifier: BSD-3-Clause
// scanrec: linear recurrences over long sequences, and their adjoints, at the speed of memory.
//
//     state[t] = gate[t] * state[t-1] + input[t]        element-wise, per batch and channel
//
//     linear_scan    (backend, gate, input, state, options)
//     linear_scan_vjp(backend, gate, state, state_grad, gradients, options)
//     linear_scan_jvp(backend, gate, state, gate_tangent, input_tangent, state_tangent, options)
//     describe(tiled{}, linear_scan_problem(gate, input, state, options))
//
// Arrays come as views (sequence_view, state_view) of any strides; a zero stride broadcasts, and
// its gradient is the sum. The backend comes first and may be left out: `tiled` is the default,
// `sequential` the plain loop. Wrong arguments throw argument_error before anything is written.
// Neither CUDA nor Eigen is needed here; scanrec/eigen.hpp makes views of Eigen::Map.
#pragma once

#include <scanrec/affine.hpp>
#include <scanrec/backends.hpp>
#include <scanrec/element.hpp>
#include <scanrec/error.hpp>
#include <scanrec/inclusive_scan.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/matrix.hpp>
#include <scanrec/operators.hpp>
#include <scanrec/options.hpp>
#include <scanrec/version.hpp>
#include <scanrec/views.hpp>
