// SPDX-License-Identifier: BSD-3-Clause
// The C++ blocks about GPUs in the documents. They are compiled for GPUs;
// tests/cuda_on_host/snippets_test.cpp runs them on the emulator.

// [gpu]
#include <scanrec/cuda/scan.cuh>

using gpu_view = scanrec::sequence_view<float>;

// The caller owns the arrays in device memory, the stream and the workspace.
void on_gpu(scanrec::cuda::stream_t stream, const scanrec::cuda::workspace& memory,
            const gpu_view& gate, const gpu_view& input, const gpu_view& state,
            const gpu_view& state_grad, const gpu_view& gate_grad, const gpu_view& input_grad) {
  const scanrec::cuda::automatic gpu{.stream = stream, .workspace = memory};
  scanrec::linear_scan(gpu, gate, input, state);
  scanrec::linear_scan_vjp(gpu, gate, state, state_grad,
                           {.gate_grad = gate_grad, .input_grad = input_grad});
}
// [/gpu]

void one_call(scanrec::cuda::stream_t stream, const scanrec::cuda::workspace& memory,
              const gpu_view& gate, const gpu_view& input, const gpu_view& state) {
  // [gpu_call]
  const scanrec::cuda::automatic gpu{.stream = stream, .workspace = memory};
  scanrec::linear_scan(gpu, gate, input, state);  // queued in the stream; allocates nothing
  // [/gpu_call]
}
