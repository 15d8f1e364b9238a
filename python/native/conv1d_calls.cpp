// SPDX-License-Identifier: BSD-3-Clause
// Instantiates causal convolutions for one compute type, SCANREC_ELEMENT. The build defines the
// type, and compiles this file once per instruction set.
#include "conv1d_calls.hpp"

namespace scanrec::native::SCANREC_LEVEL {

template void run_causal_conv1d<SCANREC_ELEMENT>(const conv1d_call&,
                                                 const scanrec_causal_conv1d_arrays&);
template void run_causal_conv1d_vjp<SCANREC_ELEMENT>(const conv1d_call&,
                                                     const scanrec_causal_conv1d_vjp_arrays&);

}  // namespace scanrec::native::SCANREC_LEVEL
