// SPDX-License-Identifier: BSD-3-Clause
// Kernels for a diagonal state space on a GPU, besides the scan and the matrix products. They
// prepare parameters for products, compute gradients of parameters, and scale or sum rows.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/discretise.hpp>
#include <scanrec/views.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {

/// The parameters of a diagonal state space in device memory, or their gradients. There are P
/// states, H inputs and Q outputs, and matrices are stored row by row. R is float or double; it is
/// const for read-only systems.
template <class R>
struct s5_system {
  using real = std::remove_const_t<R>;
  using complex =
      std::conditional_t<std::is_const_v<R>, const std::complex<real>, std::complex<real>>;

  /// (P): eigenvalues per unit of time. For discretisation::ring: nu as real part, theta as
  /// imaginary part.
  complex* lambda = nullptr;
  complex* input = nullptr;   ///< (P, H): B
  complex* output = nullptr;  ///< (Q, P), or (Q, 2P) if bidirectional: C
  R* feedthrough = nullptr;   ///< (Q), with Q = H: D; null: absent
  R* log_step = nullptr;      ///< (P): logarithms of step sizes; ignored by discretisation::ring
  std::int64_t states = 0, inputs = 0, outputs = 0;  ///< P, H, Q
  bool bidirectional = false;                        ///< P more states run backwards in time
  discretisation method = discretisation::zero_order_hold;
  bool conjugate_symmetry = true;  ///< the P states stand for 2P in conjugate pairs: y = 2 Re(C x)

  /// The number of channels of the states of s5().
  [[nodiscard]] SCANREC_HD std::int64_t state_channels() const {
    return bidirectional ? 2 * states : states;
  }
  /// Converts to a read-only system.
  template <class C>
  requires(std::is_same_v<C, const R> && !std::is_const_v<R>) operator s5_system<C>()
      const {  // NOLINT(google-explicit-constructor)
    return {lambda, input,   output,        feedthrough, log_step,          states,
            inputs, outputs, bidirectional, method,      conjugate_symmetry};
  }
};

namespace detail {

template <class R>
using complex_of = simd::complex_lanes<R>;
template <class R>
SCANREC_HD complex_of<R> read(const std::complex<R>* p) {
  return simd::load_one<complex_of<R>>(p);
}
template <class R>
SCANREC_HD void write(std::complex<R>* p, complex_of<R> x) {
  simd::store_one(p, x);
}
template <class R>
SCANREC_HD complex_of<double> in_double(complex_of<R> x) {
  return {static_cast<double>(x.re), static_cast<double>(x.im)};
}

/// The matrices of a system as real matrices. Each complex state takes two columns of to_states,
/// and two rows of to_outputs, for its real and imaginary parts.
template <class R>
struct s5_matrices {
  std::complex<R>* gate = nullptr;  // P; if step sizes vary, gate is unused and B is not scaled
  R* to_states = nullptr;           // H x 2P: scale * B, transposed
  // 2P (bidirectional: 4P) x Q: C or 2 C, transposed, with imaginary parts negated
  R* to_outputs = nullptr;
};

/// Gate and scale of state p, computed in double. If step sizes vary, the scale is 1 and the gate
/// is not used.
template <class R>
SCANREC_HD scanrec::detail::discretised_lanes<double> discretised_state(const s5_system<const R>& s,
                                                                        bool varies,
                                                                        std::int64_t p) {
  if (varies) return {{0, 0}, {1, 0}};
  const bool steps = s.method != discretisation::ring;
  // The step size is computed in the type of the system, as in all other code.
  return scanrec::detail::discretise_lanes<double>(
      s.method, in_double(read(s.lambda + p)),
      steps ? scanrec::detail::step_size(s.log_step[p]) : R(0));
}

/// Computes the matrices, one thread per complex number.
template <class R>
struct make_s5_matrices {
  static constexpr int threads = 128, blocks_together = 4;
  static constexpr bool synchronises = false;
  s5_system<const R> s;
  bool varies;
  s5_matrices<R> into;

  [[nodiscard]] std::int64_t count() const {
    return s.states + s.states * s.inputs + s.state_channels() * s.outputs;
  }
  SCANREC_DEVICE void operator()() const {
    std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i < s.states) return make_gate(i);
    i -= s.states;
    if (i < s.states * s.inputs) return make_input(i % s.states, i / s.states);
    i -= s.states * s.inputs;
    if (i < s.state_channels() * s.outputs) make_output(i / s.outputs, i % s.outputs);
  }

 private:
  SCANREC_DEVICE static complex_of<R> rounded(complex_of<double> x) {
    return {static_cast<R>(x.re), static_cast<R>(x.im)};
  }
  SCANREC_DEVICE void make_gate(std::int64_t p) const {
    write(into.gate + p, rounded(discretised_state(s, varies, p).gate));
  }
  SCANREC_DEVICE void make_input(std::int64_t p, std::int64_t h) const {
    const complex_of<R> b =
        simd::mul(rounded(discretised_state(s, varies, p).scale), read(s.input + p * s.inputs + h));
    R* const to = into.to_states + (h * s.states + p) * 2;
    to[0] = b.re, to[1] = b.im;
  }
  SCANREC_DEVICE void make_output(std::int64_t p, std::int64_t q) const {
    const complex_of<R> c = read(s.output + q * s.state_channels() + p);
    const R twice = s.conjugate_symmetry ? R(2) : R(1);
    into.to_outputs[2 * p * s.outputs + q] = twice * c.re;
    into.to_outputs[(2 * p + 1) * s.outputs + q] = -twice * c.im;
  }
};

/// Gradients of the matrices.
template <class R>
struct s5_matrix_gradients {
  const std::complex<R>* gate = nullptr;  // P
  const R* to_states = nullptr;           // H x 2P
  const R* to_outputs = nullptr;          // 2P (bidirectional: 4P) x Q
};

/// Adds to the gradients of lambda, log_step, B and C, one thread per complex number. If step sizes
/// vary, steps_vjp computes the gradients of lambda and log_step, and this kernel does not.
template <class R>
struct add_s5_gradients {
  static constexpr int threads = 128, blocks_together = 4;
  static constexpr bool synchronises = false;
  s5_system<const R> s;
  bool varies;
  s5_matrix_gradients<R> from;
  s5_system<R> into;

  [[nodiscard]] std::int64_t count() const {
    return s.states + s.states * s.inputs + s.state_channels() * s.outputs;
  }
  SCANREC_DEVICE void operator()() const {
    std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i < s.states) return add_lambda(i);
    i -= s.states;
    if (i < s.states * s.inputs) return add_input(i / s.inputs, i % s.inputs);
    i -= s.states * s.inputs;
    if (i < s.state_channels() * s.outputs)
      add_output(i / s.state_channels(), i % s.state_channels());
  }

 private:
  SCANREC_DEVICE static void add(std::complex<R>* to, complex_of<double> more) {
    const complex_of<R> before = read(to);
    write(to,
          complex_of<R>(before.re + static_cast<R>(more.re), before.im + static_cast<R>(more.im)));
  }
  SCANREC_DEVICE complex_of<double> of_input(std::int64_t p, std::int64_t h) const {
    const R* const parts = from.to_states + (h * s.states + p) * 2;
    return {static_cast<double>(parts[0]), static_cast<double>(parts[1])};
  }
  SCANREC_DEVICE void add_lambda(std::int64_t p) const {
    if (varies) return;
    complex_of<double> of_scale(0, 0);
    for (std::int64_t h = 0; h < s.inputs; ++h)
      of_scale = simd::fma(scanrec::detail::conjugate(in_double(read(s.input + p * s.inputs + h))),
                           of_input(p, h), of_scale);
    const bool steps = s.method != discretisation::ring;
    const R step = steps ? scanrec::detail::step_size(s.log_step[p]) : R(0);
    const auto d = scanrec::detail::discretise_lanes_vjp<double>(
        s.method, in_double(read(s.lambda + p)), step, in_double(read(from.gate + p)), of_scale);
    add(into.lambda + p, d.lambda);
    if (steps) into.log_step[p] += static_cast<R>(simd::mul(static_cast<double>(step), d.step));
  }
  SCANREC_DEVICE void add_input(std::int64_t p, std::int64_t h) const {
    const auto scale = discretised_state(s, varies, p).scale;
    add(into.input + p * s.inputs + h,
        simd::mul(scanrec::detail::conjugate(scale), of_input(p, h)));
  }
  SCANREC_DEVICE void add_output(std::int64_t q, std::int64_t p) const {
    const double twice = s.conjugate_symmetry ? 2 : 1;
    const R* const parts = from.to_outputs + 2 * p * s.outputs + q;
    add(into.output + q * s.state_channels() + p,
        {twice * static_cast<double>(parts[0]), -twice * static_cast<double>(parts[s.outputs])});
  }
};

/// Rows of an array over (batch, time), each with contiguous channels.
template <class E>
struct rows_ref {
  E* data = nullptr;
  std::int64_t batch = 0, time = 0;  // strides

  explicit rows_ref(const sequence_view<E>& view)
      : data(view.data), batch(view.strides.batch), time(view.strides.time) {}
  SCANREC_HD E* at(std::int64_t b, std::int64_t t) const { return data + b * batch + t * time; }
};

/// Calls op(b, t, channel) for all elements, one warp per row.
template <class Op>
struct for_each_in_rows {
  static constexpr int threads = 256, blocks_together = 4;
  static constexpr bool synchronises = false;
  Op op;
  extents shape;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t row =
        device::block_index() * rows_of_block + device::thread_index() / device::warp_size;
    if (row >= shape.batch * shape.time) return;
    const std::int64_t b = row / shape.time, t = row % shape.time;
    for (std::int64_t c = device::thread_index() % device::warp_size; c < shape.channel;
         c += device::warp_size)
      op(b, t, c);
  }
  static constexpr std::int64_t rows_of_block = threads / device::warp_size;
};
template <class Op>
void in_rows(const extents& shape, const Op& op, stream_t stream) {
  using kernel = for_each_in_rows<Op>;
  const std::int64_t rows = shape.channel > 0 ? shape.batch * shape.time : 0;
  launch(kernel{op, shape}, (rows + kernel::rows_of_block - 1) / kernel::rows_of_block, stream);
}
/// into = from * factors, with a factor per channel.
template <class R>
struct scale_rows {
  rows_ref<const R> from;
  const R* factors;
  rows_ref<R> into;
  SCANREC_DEVICE void operator()(std::int64_t b, std::int64_t t, std::int64_t c) const {
    into.at(b, t)[c] = factors[c] * from.at(b, t)[c];
  }
};
/// into += from.
template <class R>
struct add_rows {
  rows_ref<std::complex<R>> from, into;
  SCANREC_DEVICE void operator()(std::int64_t b, std::int64_t t, std::int64_t c) const {
    std::complex<R>* const to = into.at(b, t) + c;
    write(to, read(to) + read(from.at(b, t) + c));
  }
};

// Sums over rows are computed in chunks of consecutive rows, and the sums of chunks are added in
// order. The chunks depend only on the shape.

inline constexpr std::int64_t chunk_rows = 64;
inline std::int64_t row_chunks(const extents& shape) {
  constexpr std::int64_t most = 4096;
  return std::min(most, (shape.batch * shape.time + chunk_rows - 1) / chunk_rows);
}
/// The rows of a chunk.
struct row_range {
  std::int64_t first, last;
  SCANREC_HD row_range(std::int64_t chunk, std::int64_t chunks, std::int64_t rows)
      : first(rows / chunks * chunk + least(chunk, rows % chunks)),
        last(rows / chunks * (chunk + 1) + least(chunk + 1, rows % chunks)) {}

 private:
  SCANREC_HD static std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

/// Sums the element-wise product of two arrays over the rows of each chunk, per channel. A block
/// processes one chunk.
template <class R>
struct dot_rows {
  static constexpr int threads = 128, blocks_together = 4;
  static constexpr bool synchronises = false;
  rows_ref<const R> x, y;
  extents shape;
  std::int64_t chunks;
  R* partial;  // (chunks, channels)

  SCANREC_DEVICE void operator()() const {
    const std::int64_t chunk = device::block_index();
    const row_range rows(chunk, chunks, shape.batch * shape.time);
    for (std::int64_t c = device::thread_index(); c < shape.channel; c += threads) {
      R sum = 0;
      SCANREC_UNROLL_BY_4
      for (std::int64_t row = rows.first; row < rows.last; ++row) {
        const std::int64_t b = row / shape.time, t = row % shape.time;
        sum = simd::fma(x.at(b, t)[c], y.at(b, t)[c], sum);
      }
      partial[chunk * shape.channel + c] = sum;
    }
  }
};
/// Adds the sums of all chunks to `into`, one thread per number.
template <class R>
struct add_chunks {
  static constexpr int threads = 128, blocks_together = 8;
  static constexpr bool synchronises = false;
  const R* partial;  // (chunks, numbers)
  std::int64_t numbers, chunks;
  R* into;

  SCANREC_DEVICE void operator()() const {
    const std::int64_t i = device::block_index() * threads + device::thread_index();
    if (i >= numbers) return;
    double sum = 0;
    for (std::int64_t k = 0; k < chunks; ++k) sum += static_cast<double>(partial[k * numbers + i]);
    into[i] += static_cast<R>(sum);
  }
};
/// Launches a kernel with one thread per number.
template <class Kernel>
void per_number(const Kernel& kernel, std::int64_t count, stream_t stream) {
  launch(kernel, (count + Kernel::threads - 1) / Kernel::threads, stream);
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
