// SPDX-License-Identifier: BSD-3-Clause
// scanrec: linear recurrences over long sequences and their adjoints, at memory bandwidth.
//
//     state[t] = gate[t] * state[t-1] + input[t]        element-wise, per batch and channel
//
//     linear_scan    (backend, gate, input, state, options)
//     linear_scan_vjp(backend, gate, state, state_grad, gradients, options)
//     linear_scan_jvp(backend, gate, state, gate_tangent, input_tangent, state_tangent, options)
//     describe(tiled{}, linear_scan_problem(gate, input, state, options))
//
// Arrays are passed as views (sequence_view, state_view) with any strides. A zero stride broadcasts
// a gate or an input along an axis; a gradient with a zero stride receives the sum over that axis.
// The scans take a backend as their first argument, which may be omitted: `tiled` is the default,
// `sequential` is a scalar loop. An invalid argument throws argument_error before anything is
// written. This header needs neither CUDA nor Eigen; scanrec/eigen.hpp makes views of Eigen
// matrices.
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
