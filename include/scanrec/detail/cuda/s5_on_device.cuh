// SPDX-License-Identifier: BSD-3-Clause
// The common part of s5() and s5_vjp() on GPUs: the system and its matrices, the workspace, and
// matrix products over all rows.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/blas.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/s5_kernels.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/problem/s5.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A call of s5() or s5_vjp(), and the layout of its workspace. The first bytes belong to the
/// scans, which may rely on the contents that earlier calls left. The matrices of the system and
/// all other arrays from `reserve` follow.
template <class Backend, class R>
class s5_on_device : public scanrec::detail::s5_call<R> {
 public:
  using base = scanrec::detail::s5_call<R>;
  using complex = std::complex<R>;
  using base::check, base::states, base::inputs, base::outputs, base::varies, base::half;

  s5_on_device(const char* call, const Backend& backend, const s5_system<const R>& of,
               bool steps_vary)
      : base{.name = call,
             .varies = steps_vary,
             .ring = of.method == discretisation::ring,
             .bidirectional = of.bidirectional,
             .states = of.states,
             .inputs = of.inputs,
             .outputs = of.outputs},
        on(backend),
        s(of) {
    check("system", states >= 0 && inputs >= 0 && outputs >= 0, "sizes of 0 or more",
          scanrec::detail::text(states, " states, ", inputs, " inputs, ", outputs, " outputs"));
    check("feedthrough", !s.feedthrough || outputs == inputs, "none, or as many inputs as outputs",
          scanrec::detail::text(inputs, " inputs and ", outputs, " outputs"));
    check_pointers("system", s);
  }
  /// Checks the pointers of parameters or of gradients.
  template <class E>
  void check_pointers(const char* argument, const s5_system<E>& of) const {
    const auto there = [&](const char* what, const void* p, std::int64_t count) {
      check(argument, p || count == 0, scanrec::detail::text("a pointer to ", what),
            "a null pointer");
    };
    there("lambda", of.lambda, states);
    there("log_step", of.log_step, this->ring ? 0 : states);
    there("input", of.input, states * inputs);
    there("output", of.output, this->state_channels() * outputs);
    there("feedthrough", of.feedthrough, s.feedthrough ? outputs : 0);
  }

  /// Reserves memory for `count` elements. Returns its address, or null if there is no workspace
  /// yet.
  template <class E>
  E* reserve(std::int64_t count) {
    const std::int64_t first = reserve_bytes(bytes, count * static_cast<std::int64_t>(sizeof(E)));
    auto* const memory = static_cast<std::byte*>(on.workspace.data);
    return memory ? reinterpret_cast<E*>(memory + first) : nullptr;
  }
  void reserve_for_scan(const problem& p) {
    bytes = std::max(bytes, (workspace_bytes(on, p) + 15) / 16 * 16);
  }
  void reserve_matrices() {
    of_scans = bytes;
    m.gate = reserve<complex>(states);
    m.to_states = reserve<R>(2 * inputs * states);
    m.to_outputs = reserve<R>(2 * this->state_channels() * outputs);
  }
  /// The view of the gates of a scan. Before there is a workspace, the view only describes their
  /// layout.
  sequence_view<const complex> gate(const sequence_view<const complex>& of_steps,
                                    const extents& shape) const {
    static const complex somewhere{};
    return varies ? of_steps : this->broadcast(m.gate ? m.gate : &somewhere, shape);
  }
  void check_memory() const { check_workspace(this->name, on.workspace, bytes); }
  void make_matrices() const {
    const make_s5_matrices<R> kernel{s, varies, m};
    per_number(kernel, kernel.count(), on.stream);
  }
  /// Queues `into = from * matrix`, or `into += from * matrix` if `adds`. The matrix may be
  /// transposed. Each step of each batch row is one row of `from` and of `into`.
  template <class From, class Into>
  void map_rows(const products& of, const extents& shape, const sequence_view<From>& from,
                const R* matrix, bool transposed, bool adds,
                const sequence_view<Into>& into) const {
    const auto all = base::pieces_of(shape, from, into);
    const std::int64_t inner = columns(from), wide = columns(into);
    for (std::int64_t b = 0; b < all.pieces; ++b)
      of.multiply(all.rows, wide, inner, piece<const R>(from, b),
                  {matrix, transposed ? inner : wide, transposed}, adds, piece<R>(into, b));
  }
  /// Queues `into = x^T * y`. Each step of each batch row is one row of x and of y.
  template <class X, class Y>
  void sum_over_rows(const products& of, const extents& shape, const sequence_view<X>& x,
                     const sequence_view<Y>& y, R* into) const {
    const auto all = base::pieces_of(shape, x, y);
    const std::int64_t rows = columns(x), wide = columns(y);
    if (all.pieces == 0) clear(into, rows * wide * static_cast<std::int64_t>(sizeof(R)), on.stream);
    for (std::int64_t b = 0; b < all.pieces; ++b) {
      auto left = piece<const R>(x, b);
      left.transposed = true;
      of.multiply(rows, wide, all.rows, left, piece<const R>(y, b), b > 0,
                  matrix_ref<R>{into, wide});
    }
  }
  void leave() const { zero_used(on.workspace, of_scans, bytes, on.stream); }

  const Backend& on;
  s5_system<const R> s;
  s5_matrices<R> m;
  std::int64_t bytes = 0, of_scans = 0;

 private:
  template <class E>
  static constexpr std::int64_t parts = sizeof(E) / sizeof(R);
  template <class E>
  static std::int64_t columns(const sequence_view<E>& view) {
    return parts<E> * view.shape.channel;
  }
  // The rows of the view from batch row b on, as a matrix of real numbers.
  template <class Number, class E>
  static matrix_ref<Number> piece(const sequence_view<E>& view, std::int64_t b) {
    return {reinterpret_cast<Number*>(view.data + b * view.strides.batch),
            parts<E> * view.strides.time};
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
