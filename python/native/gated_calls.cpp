// SPDX-License-Identifier: BSD-3-Clause
// The kernels of QRNN pooling and of linear scans of logarithms for one element type, which the
// build defines as SCANREC_ELEMENT, for the instruction set, or the GPUs, of this unit.
#include "gated_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_log_scan<SCANREC_ELEMENT>(const call&, const scanrec_scan_arrays&);
template void run_log_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_vjp_arrays&);
template void run_gated_scan<SCANREC_ELEMENT>(const call&, const scanrec_gated_arrays&);
template void run_gated_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_gated_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
