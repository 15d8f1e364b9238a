// SPDX-License-Identifier: BSD-3-Clause
// Instantiates selective scans for one state type, SCANREC_ELEMENT. The build defines the type, and
// compiles this file once per instruction set and once for GPUs.
#include "selective_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_selective_scan<SCANREC_ELEMENT>(const selective_call&,
                                                  const scanrec_selective_arrays&);
template void run_selective_scan_vjp<SCANREC_ELEMENT>(const selective_call&,
                                                      const scanrec_selective_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
