// SPDX-License-Identifier: BSD-3-Clause
// The kernels of QRNN pooling for one element type, which the build defines as SCANREC_ELEMENT, for
// the instruction set, or the GPUs, that this unit is compiled for.
#include "gated_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_gated_scan<SCANREC_ELEMENT>(const call&, const scanrec_gated_arrays&);
template void run_gated_scan_vjp<SCANREC_ELEMENT>(const call&, const scanrec_gated_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
