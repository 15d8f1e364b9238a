// SPDX-License-Identifier: BSD-3-Clause
// Declares the calls as templates over a type. The build compiles them once per instruction set and
// once for GPUs. SCANREC_LEVEL, the name of the namespace, is different each time.
#pragma once

#include "kernels.hpp"

namespace scanrec::native::SCANREC_LEVEL {

// T is the element type.
template <class T>
void run_linear_scan(const call& c, const scanrec_scan_arrays& a);
template <class T>
void run_linear_scan_vjp(const call& c, const scanrec_vjp_arrays& a);
template <class T>
void run_linear_scan_jvp(const call& c, const scanrec_jvp_arrays& a);

// Linear scans of logarithms, and QRNN pooling. For real types only.
template <class T>
void run_log_scan(const call& c, const scanrec_scan_arrays& a);
template <class T>
void run_log_scan_vjp(const call& c, const scanrec_vjp_arrays& a);
template <class T>
void run_gated_scan(const call& c, const scanrec_gated_arrays& a);
template <class T>
void run_gated_scan_vjp(const call& c, const scanrec_gated_vjp_arrays& a);

// V is the state type.
template <class V>
void run_selective_scan(const selective_call& c, const scanrec_selective_arrays& a);
template <class V>
void run_selective_scan_vjp(const selective_call& c, const scanrec_selective_vjp_arrays& a);

// V is the compute type. For CPUs only.
template <class V>
void run_causal_conv1d(const conv1d_call& c, const scanrec_causal_conv1d_arrays& a);
template <class V>
void run_causal_conv1d_vjp(const conv1d_call& c, const scanrec_causal_conv1d_vjp_arrays& a);

}  // namespace scanrec::native::SCANREC_LEVEL
