// SPDX-License-Identifier: BSD-3-Clause
// Linear recurrences on GPUs: the calls of scan.hpp with device pointers in their views, and the
// backends that run them. For .cu files.
//
//     std::int64_t bytes = workspace_bytes(cuda::lanes{stream}, linear_scan_problem(a, u, x));
//     linear_scan(cuda::lanes{.stream = stream, .workspace = {memory, bytes}}, a, u, x);
//
// A call checks its arguments on the host and queues its kernels in the stream. It throws
// argument_error if an argument is invalid, and cuda::error if the runtime reports an error. It
// allocates nothing, does not synchronise, and can be captured in a CUDA graph.
#pragma once

#include <scanrec/detail/cuda/automatic.cuh>
#include <scanrec/detail/cuda/blelloch.cuh>
#include <scanrec/detail/cuda/describe.cuh>
#include <scanrec/detail/cuda/hillis_steele.cuh>
#include <scanrec/detail/cuda/lanes.cuh>
#include <scanrec/detail/cuda/look_back.cuh>
#include <scanrec/detail/cuda/triangular_matmul.cuh>
#include <scanrec/scan.hpp>
