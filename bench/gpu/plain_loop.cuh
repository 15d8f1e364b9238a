// SPDX-License-Identifier: BSD-3-Clause
// The simplest kernels: one thread per sequence, and a loop over time.
#pragma once

#include <complex>
#include <cstdint>

#include <scanrec/element.hpp>
#include <scanrec/views.hpp>

namespace bench::kernels {

using scanrec::compute_t;
using scanrec::sequence_view;

__device__ inline float multiply_add(float a, float x, float u) { return fmaf(a, x, u); }
__device__ inline std::complex<float> multiply_add(const std::complex<float>& a,
                                                   const std::complex<float>& x,
                                                   const std::complex<float>& u) {
  return {fmaf(-a.imag(), x.imag(), fmaf(a.real(), x.real(), u.real())),
          fmaf(a.imag(), x.real(), fmaf(a.real(), x.imag(), u.imag()))};
}

/// One sequence of an array.
template <class T>
struct sequence_of {
  T* data;
  std::int64_t stride;
  __device__ sequence_of(const sequence_view<T>& v, std::int64_t sequence)
      : data(v.data + sequence / v.shape.channel * v.strides.batch +
             sequence % v.shape.channel * v.strides.channel),
        stride(v.strides.time) {}
  __device__ compute_t<T> load(std::int64_t t) const {
    return static_cast<compute_t<T>>(data[t * stride]);
  }
  __device__ void store(std::int64_t t, const compute_t<T>& x) const {
    data[t * stride] = static_cast<T>(x);
  }
};
__device__ inline std::int64_t thread_number() {
  return blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
}

template <class T>
__global__ void plain_forward(sequence_view<T> gate, sequence_view<T> input,
                              sequence_view<T> state) {
  const std::int64_t sequence = thread_number();
  if (sequence >= gate.shape.batch * gate.shape.channel) return;
  const sequence_of a(gate, sequence), u(input, sequence), x(state, sequence);
  compute_t<T> carry{};
  for (std::int64_t t = 0; t < gate.shape.time; ++t) {
    carry = multiply_add(a.load(t), carry, u.load(t));
    x.store(t, carry);
  }
}

template <class T>
__global__ void plain_vjp(sequence_view<T> gate, sequence_view<T> state,
                          sequence_view<T> state_grad, sequence_view<T> gate_grad,
                          sequence_view<T> input_grad) {
  const std::int64_t sequence = thread_number();
  if (sequence >= gate.shape.batch * gate.shape.channel) return;
  const sequence_of a(gate, sequence), x(state, sequence), g(state_grad, sequence);
  const sequence_of da(gate_grad, sequence), du(input_grad, sequence);
  compute_t<T> carry{}, later_gate{};
  for (std::int64_t t = gate.shape.time - 1; t >= 0; --t) {
    carry = multiply_add(later_gate, carry, g.load(t));
    later_gate = a.load(t);
    du.store(t, carry);
    da.store(t, t > 0 ? multiply_add(carry, x.load(t - 1), compute_t<T>{}) : compute_t<T>{});
  }
}

}  // namespace bench::kernels
