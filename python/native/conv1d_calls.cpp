// SPDX-License-Identifier: BSD-3-Clause
// The kernels of causal convolutions that compute in one type, which the build defines as
// SCANREC_ELEMENT, for the instruction set that this unit is compiled for.
#include "conv1d_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_causal_conv1d<SCANREC_ELEMENT>(const conv1d_call&,
                                                 const scanrec_causal_conv1d_arrays&);
template void run_causal_conv1d_vjp<SCANREC_ELEMENT>(const conv1d_call&,
                                                     const scanrec_causal_conv1d_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
