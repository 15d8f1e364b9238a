// SPDX-License-Identifier: BSD-3-Clause
// Instantiates QRNN pooling and linear scans of logarithms for one element type, SCANREC_ELEMENT.
// The build defines the type, and compiles this file once per instruction set and once for GPUs.
#include "gated_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_log_scan<SCANREC_ELEMENT>(const call&, const scanrec_scan_arrays&);
template void run_log_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_vjp_arrays&);
template void run_gated_scan<SCANREC_ELEMENT>(const call&, const scanrec_gated_arrays&);
template void run_gated_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_gated_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
