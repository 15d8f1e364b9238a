// SPDX-License-Identifier: BSD-3-Clause
// Declares the table of calls that is compiled once per instruction set and once for GPUs. Its
// functions take arrays with the four axes of the C++ interface. This header does not depend on the
// instruction set.
#pragma once

#include <cstdint>

#include <scanrec/c/scanrec_cuda.h>
#include <scanrec/executor.hpp>
#include <scanrec/views.hpp>

namespace scanrec::native {

/// A stream of a GPU, and a workspace. An entry point of the C interface may make several calls,
/// which use the workspace one after the other.
struct gpu_queue {
  scanrec_cuda_queue given;
  void* memory = nullptr;
  std::int64_t bytes = 0;
};

/// The shape and the options of a call. Kernels take its arrays in the struct of the C interface,
/// but with the strides of four axes: time, channel, batch, group.
struct call {
  extents shape;
  bool more_resets = false;  // `resets` has one step more than `shape`
  bool reverse = false;
  bool no_conjugate = false;          // adjoints do not conjugate
  std::int32_t logarithms = 0;        // for linear scans: bits of scanrec_logarithms
  double forget_bias = 0;             // for gated scans
  bool accumulate = false;            // add to the gradients
  bool check_only = false;            // check the arguments and do nothing else
  int threads = 0;                    // for CPUs
  const executor* workers = nullptr;  // for CPUs
  gpu_queue* queue = nullptr;         // for GPUs
};

/// A selective scan, and the threads or the stream that run it.
struct selective_call {
  scanrec_selective_problem problem;
  int threads = 0;                    // for CPUs
  const executor* workers = nullptr;  // for CPUs
  gpu_queue* queue = nullptr;         // for GPUs
};

/// A causal convolution, and the threads that run it.
struct conv1d_call {
  scanrec_causal_conv1d_problem problem;
  int threads = 0;
  const executor* workers = nullptr;
};

/// Number of element types, in the order of scanrec_dtype.
inline constexpr int dtypes = 6;

/// The functions of each call for one instruction set, or for GPUs. They are indexed by element
/// type unless a comment names another type. The pointer is null for a type without a kernel. The
/// functions throw the exceptions of the C++ calls.
struct kernels {
  void (*linear_scan[dtypes])(const call&, const scanrec_scan_arrays&);
  void (*linear_scan_vjp[dtypes])(const call&, const scanrec_vjp_arrays&);
  void (*linear_scan_jvp[dtypes])(const call&, const scanrec_jvp_arrays&);
  void (*log_scan[dtypes])(const call&, const scanrec_scan_arrays&);  // linear scans of logarithms
  void (*log_scan_vjp[dtypes])(const call&, const scanrec_vjp_arrays&);
  void (*gated_scan[dtypes])(const call&, const scanrec_gated_arrays&);
  void (*gated_scan_vjp[dtypes])(const call&, const scanrec_gated_vjp_arrays&);
  // Indexed by state type.
  void (*selective_scan[dtypes])(const selective_call&, const scanrec_selective_arrays&);
  void (*selective_scan_vjp[dtypes])(const selective_call&, const scanrec_selective_vjp_arrays&);
  // Indexed by compute type. CPUs only.
  void (*causal_conv1d[dtypes])(const conv1d_call&, const scanrec_causal_conv1d_arrays&);
  void (*causal_conv1d_vjp[dtypes])(const conv1d_call&, const scanrec_causal_conv1d_vjp_arrays&);
};

}  // namespace scanrec::native
