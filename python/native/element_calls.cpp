// SPDX-License-Identifier: BSD-3-Clause
// Instantiates linear scans for one element type, SCANREC_ELEMENT. The build defines the type, and
// compiles this file once per instruction set and once for GPUs.
#include "element_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_linear_scan<SCANREC_ELEMENT>(const call&, const scanrec_scan_arrays&);
template void run_linear_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_vjp_arrays&);
template void run_linear_scan_jvp<SCANREC_ELEMENT>(const call&, const scanrec_jvp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
