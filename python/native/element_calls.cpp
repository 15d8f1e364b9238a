// SPDX-License-Identifier: BSD-3-Clause
// The kernels of one element type, which the build defines as SCANREC_ELEMENT, for the instruction
// set, or the GPUs, that this unit is compiled for.
#include "element_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_linear_scan<SCANREC_ELEMENT>(const call&, const scanrec_scan_arrays&);
template void run_linear_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_vjp_arrays&);
template void run_linear_scan_jvp<SCANREC_ELEMENT>(const call&, const scanrec_jvp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
