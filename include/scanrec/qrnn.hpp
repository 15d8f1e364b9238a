// SPDX-License-Identifier: BSD-3-Clause
// QRNN pooling: gated_scan with the cells f_pooling, fo_pooling, ifo_pooling, gated_accumulation.
//
//     const auto gates = packed<fo_pooling<>>(sequence_view(pre, {.batch, .time, .channel = 3 *
//     C})); gated_scan(fo_pooling{}, gates, output, memory::store{states});
//     gated_scan_vjp(fo_pooling{}, gates, memory::store{states}, output_grad,
//                    {.arrays = packed<fo_pooling<>>(pre_grad)});
#pragma once

#include <scanrec/gated_scan.hpp>
#include <scanrec/recurrence/qrnn.hpp>
