// SPDX-License-Identifier: BSD-3-Clause
// What the library asks of the units that are compiled per instruction set, or for GPUs: a table of
// calls over arrays with the four axes of the C++ interface. Nothing here names an instruction set.
#pragma once

#include <cstdint>

#include <scanrec/c/scanrec_cuda.h>
#include <scanrec/executor.hpp>
#include <scanrec/views.hpp>

namespace scanrec::native {

/// A stream of a GPU, and memory there that the calls of one request work in, one after the other.
struct gpu_queue {
  scanrec_cuda_queue given;
  void* memory = nullptr;
  std::int64_t bytes = 0;
};

/// What all arrays of a call have in common. Kernels take them as the struct of the C interface,
/// whose strides are then those of four axes: time, channel, batch, group.
struct call {
  extents shape;
  bool more_resets = false;  // resets have one step more
  bool reverse = false;
  bool no_conjugate = false;          // adjoints do not conjugate
  std::int32_t logarithms = 0;        // of linear scans, enum scanrec_logarithms
  double forget_bias = 0;             // of gated scans
  bool accumulate = false;            // gradients are added to
  bool check_only = false;            // arguments are checked, and that is all
  int threads = 0;                    // on a CPU,
  const executor* workers = nullptr;  // who runs them
  gpu_queue* queue = nullptr;         // on a GPU
};

/// A selective scan, and who works on it.
struct selective_call {
  scanrec_selective_problem problem;
  int threads = 0;                    // on a CPU,
  const executor* workers = nullptr;  // who runs them
  gpu_queue* queue = nullptr;         // on a GPU
};

/// A causal convolution, and who works on it.
struct conv1d_call {
  scanrec_causal_conv1d_problem problem;
  int threads = 0;
  const executor* workers = nullptr;
};

/// Number of element types, in the order of scanrec_dtype.
inline constexpr int dtypes = 6;

/// The calls of one instruction set, or of GPUs, by element type; null for types without a
/// kernel. They throw as the C++ calls do.
struct kernels {
  void (*linear_scan[dtypes])(const call&, const scanrec_scan_arrays&);
  void (*linear_scan_vjp[dtypes])(const call&, const scanrec_vjp_arrays&);
  void (*linear_scan_jvp[dtypes])(const call&, const scanrec_jvp_arrays&);
  void (*log_scan[dtypes])(const call&, const scanrec_scan_arrays&);  // linear, of logarithms
  void (*log_scan_vjp[dtypes])(const call&, const scanrec_vjp_arrays&);
  void (*gated_scan[dtypes])(const call&, const scanrec_gated_arrays&);
  void (*gated_scan_vjp[dtypes])(const call&, const scanrec_gated_vjp_arrays&);
  // By the type that is computed in.
  void (*selective_scan[dtypes])(const selective_call&, const scanrec_selective_arrays&);
  void (*selective_scan_vjp[dtypes])(const selective_call&, const scanrec_selective_vjp_arrays&);
  // The same, on CPUs.
  void (*causal_conv1d[dtypes])(const conv1d_call&, const scanrec_causal_conv1d_arrays&);
  void (*causal_conv1d_vjp[dtypes])(const conv1d_call&, const scanrec_causal_conv1d_vjp_arrays&);
};

}  // namespace scanrec::native
