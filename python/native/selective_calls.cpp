// SPDX-License-Identifier: BSD-3-Clause
// The kernels of selective scans that compute in one type, which the build defines as
// SCANREC_ELEMENT, for the instruction set that this unit is compiled for.
#include "selective_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_selective_scan<SCANREC_ELEMENT>(const selective_call&,
                                                  const scanrec_selective_arrays&);
template void run_selective_scan_vjp<SCANREC_ELEMENT>(const selective_call&,
                                                      const scanrec_selective_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
