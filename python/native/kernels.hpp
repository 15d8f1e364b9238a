// SPDX-License-Identifier: BSD-3-Clause
// What the library asks of the units that are compiled per instruction set, or for GPUs: a table of
// calls over arrays with the four axes of the C++ interface. Nothing here names an instruction set.
#pragma once

#include <cstdint>

#include <scanrec/c/scanrec_cuda.h>
#include <scanrec/executor.hpp>
#include <scanrec/views.hpp>

namespace scanrec::native {

/// An array of a call over (group, batch, time, channel). Without `given` there is none.
struct array {
  void* data = nullptr;
  scanrec::strides strides{};
  bool given = false;
  bool one_step_more = false;  // than the problem, of marks
};

/// A stream of a GPU, and memory there that the calls of one request work in, one after the other.
struct gpu_queue {
  scanrec_cuda_queue given;
  void* memory = nullptr;
  std::int64_t bytes = 0;
};

/// What all arrays of a call have in common.
struct call {
  extents shape;
  bool reverse = false;
  bool plain = false;                 // adjoints do not conjugate
  bool accumulate = false;            // gradients are added to
  bool check_only = false;            // arguments are checked, and that is all
  int threads = 0;                    // on a CPU,
  const executor* workers = nullptr;  // who runs them
  gpu_queue* queue = nullptr;         // on a GPU
};

struct scan_arrays {
  array gate, input, initial_state, resets, state, final_state;
};
struct vjp_arrays {
  array gate, state, initial_state, resets, state_grad, final_grad;
  array gate_grad, input_grad, initial_grad;
};
struct jvp_arrays {
  array gate, state, initial_state, resets, gate_tangent, input_tangent, initial_tangent;
  array state_tangent, final_tangent;
};
struct pool_arrays {
  array candidate, forget_gate, output_gate, input_gate, initial_state, resets, zoneout;
  array output, state, final_state;
};
struct pool_vjp_arrays {
  array candidate, forget_gate, output_gate, input_gate, state, initial_state, resets, zoneout;
  array output_grad, final_grad;
  array candidate_grad, forget_gate_grad, output_gate_grad, input_gate_grad, initial_grad;
};

/// Number of element types, in the order of scanrec_dtype.
inline constexpr int dtypes = 6;

/// The calls of one instruction set, or of GPUs, by element type; null where there is none for a
/// type. They throw as the C++ calls do.
struct kernels {
  void (*linear_scan[dtypes])(const call&, const scan_arrays&);
  void (*linear_scan_vjp[dtypes])(const call&, const vjp_arrays&);
  void (*linear_scan_jvp[dtypes])(const call&, const jvp_arrays&);
  void (*qrnn_pool[dtypes])(const call&, const pool_arrays&);
  void (*qrnn_pool_vjp[dtypes])(const call&, const pool_vjp_arrays&);
};

}  // namespace scanrec::native
