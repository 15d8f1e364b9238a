// SPDX-License-Identifier: BSD-3-Clause
// Diagonal state spaces on GPUs: linear scans of complex states between matrix products by cuBLAS.
// Requires cuBLAS (CUDA::cublas), so scanrec/cuda/scan.cuh does not include this file.
// scanrec/s5.hpp has the formulas.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/cuda/blas.cuh>
#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/s5_intervals.cuh>
#include <scanrec/detail/cuda/s5_kernels.cuh>
#include <scanrec/detail/cuda/s5_on_device.cuh>
#include <scanrec/linear_scan.hpp>
#include <scanrec/options.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A call of s5(), checked and planned.
template <class Backend, class R>
struct s5_forward : s5_on_device<Backend, R> {
  using base = s5_on_device<Backend, R>;
  sequence_view<const R> u;
  sequence_view<std::complex<R>> x;
  sequence_view<R> y;
  const s5_options<R>& options;

  s5_forward(const Backend& on, const s5_system<const R>& system, const sequence_view<const R>& in,
             const sequence_view<std::complex<R>>& of_states, const sequence_view<R>& out,
             const s5_options<R>& with)
      : base("s5", on, system, !with.intervals.absent()),
        u(in),
        x(of_states),
        y(out),
        options(with) {
    this->check_forward(u, x, y, options);
    const auto first = this->half(x, 0);
    const auto plan = [&](const auto&, const problem& p) { this->reserve_for_scan(p); };
    const auto gate = this->gate(options.gates, u.shape);
    scanrec::detail::make_linear_scan("s5", gate, first, first, scan(), plan);
    if (this->bidirectional) {
      const auto second = this->half(x, 1);
      scanrec::detail::make_linear_scan("s5", gate, first, second, backward_scan(), plan);
    }
    this->reserve_matrices();
  }
  [[nodiscard]] scan_options<std::complex<R>> scan() const {
    return {.initial_state = options.initial_state,
            .final_state = options.final_state,
            .resets = options.resets};
  }
  [[nodiscard]] scan_options<std::complex<R>> backward_scan() const {
    return {.order = direction::reverse, .resets = options.resets};
  }
  void run(const products& of) const {
    const auto first = this->half(x, 0);
    const auto gate = this->gate(options.gates, u.shape);
    this->make_matrices();
    this->map_rows(of, u.shape, u, this->m.to_states, false, false, first);
    if (this->varies)
      in_rows(first.shape,
              discretise_rows<R>{this->s, rows_ref<const R>(options.intervals),
                                 rows_ref(options.gates), rows_ref(first)},
              this->on.stream);
    if (this->bidirectional) linear_scan(this->on, gate, first, this->half(x, 1), backward_scan());
    linear_scan(this->on, gate, first, first, scan());
    const bool through = this->s.feedthrough != nullptr;
    if (through)
      in_rows(y.shape, scale_rows<R>{rows_ref(u), this->s.feedthrough, rows_ref(y)},
              this->on.stream);
    this->map_rows(of, u.shape, x, this->m.to_outputs, false, through, y);
    this->leave();
  }
};

/// A call of s5_vjp(), checked and planned.
template <class Backend, class R>
struct s5_backward : s5_on_device<Backend, R> {
  using base = s5_on_device<Backend, R>;
  using complex = std::complex<R>;
  sequence_view<const R> u;
  sequence_view<const complex> x;
  sequence_view<const R> y_grad;
  sequence_view<complex> scratch;
  s5_system<R> gradients;
  sequence_view<R> u_grad;
  const s5_vjp_options<R>& options;
  std::int64_t chunks;
  complex* of_gate = nullptr;
  R *of_states = nullptr, *of_outputs = nullptr, *of_feedthrough = nullptr;
  complex* by_lambda = nullptr;
  R* by_log_step = nullptr;
  sequence_view<complex> projected;  // B u

  s5_backward(const Backend& on, const s5_system<const R>& system, const sequence_view<const R>& in,
              const sequence_view<const complex>& of_x, const sequence_view<const R>& out_grad,
              const sequence_view<complex>& room, const s5_system<R>& of_parameters,
              const sequence_view<R>& in_grad, const s5_vjp_options<R>& with)
      : base("s5_vjp", on, system, !with.intervals.absent()),
        u(in),
        x(of_x),
        y_grad(out_grad),
        scratch(room),
        gradients(of_parameters),
        u_grad(in_grad),
        options(with),
        chunks(row_chunks(in.shape)) {
    this->check_vjp(u, x, y_grad, scratch, u_grad, options);
    const s5_system<R>& g = gradients;
    this->check("gradients",
                g.states == system.states && g.inputs == system.inputs &&
                    g.outputs == system.outputs && g.bidirectional == system.bidirectional,
                "the system's sizes", "other sizes");
    this->check_pointers("gradients", g);
    const auto plan = [&](const auto&, const problem& p) { this->reserve_for_scan(p); };
    for_scans([&](const auto&... arguments) {
      scanrec::detail::make_linear_scan_vjp("s5_vjp", arguments..., plan);
    });

    this->reserve_matrices();
    of_gate = this->template reserve<complex>(this->states);
    of_states = this->template reserve<R>(2 * this->inputs * this->states);
    of_outputs = this->template reserve<R>(2 * this->state_channels() * this->outputs);
    if (this->s.feedthrough) of_feedthrough = this->template reserve<R>(chunks * this->outputs);
    if (!this->varies) return;
    by_lambda = this->template reserve<complex>(chunks * this->states);
    by_log_step = this->template reserve<R>(chunks * this->states);
    extents shape = u.shape;
    shape.channel = this->states;
    projected = {this->template reserve<complex>(shape.batch * shape.time * shape.channel), shape};
  }
  void run(const products& of) const {
    const stream_t stream = this->on.stream;
    this->make_matrices();
    if (this->s.feedthrough) {
      dot_rows<R> dots{rows_ref(y_grad), rows_ref(u), u.shape, chunks, of_feedthrough};
      launch(dots, chunks, stream);
      per_number(add_chunks<R>{of_feedthrough, this->outputs, chunks, gradients.feedthrough},
                 this->outputs, stream);
    }
    this->sum_over_rows(of, u.shape, x, y_grad, of_outputs);
    this->map_rows(of, u.shape, y_grad, this->m.to_outputs, true, false, scratch);
    if (this->varies) this->map_rows(of, u.shape, u, this->m.to_states, false, false, projected);

    const auto first = this->half(scratch, 0), second = this->half(scratch, 1);
    int direction = 0;
    for_scans([&](const auto&... arguments) {
      linear_scan_vjp(this->on, arguments...);
      if (this->varies) take_steps_further(direction);
      ++direction;
    });
    if (this->varies && this->bidirectional)
      in_rows(first.shape, add_rows<R>{rows_ref(second), rows_ref(first)}, stream);

    this->sum_over_rows(of, u.shape, u, first, of_states);
    if (!u_grad.absent()) {
      const bool through = this->s.feedthrough != nullptr;
      if (through)
        in_rows(u.shape, scale_rows<R>{rows_ref(y_grad), this->s.feedthrough, rows_ref(u_grad)},
                stream);
      this->map_rows(of, u.shape, first, this->m.to_states, true, through, u_grad);
    }
    const add_s5_gradients<R> kernel{
        this->s, this->varies, {of_gate, of_states, of_outputs}, gradients};
    per_number(kernel, kernel.count(), stream);
    this->leave();
  }

 private:
  // Calls f with the arguments of linear_scan_vjp, once for each direction of the system.
  template <class F>
  void for_scans(F f) const {
    static complex somewhere{};
    const auto gate = this->gate(options.gates, u.shape);
    const auto first = this->half(scratch, 0);
    // If step sizes vary, steps_vjp computes the gradients of the gates and passes them on to
    // lambda, log_step and the intervals.
    const auto gate_grad = this->varies ? sequence_view<complex>()
                                        : this->broadcast(of_gate ? of_gate : &somewhere, u.shape);
    f(gate, this->half(x, 0), first,
      scan_gradients<complex>{
          .gate_grad = gate_grad, .input_grad = first, .initial_grad = options.initial_grad},
      vjp_options<complex>{.initial_state = options.initial_state,
                           .final_grad = options.final_grad,
                           .resets = options.resets});
    if (!this->bidirectional) return;
    const auto second = this->half(scratch, 1);
    const vjp_options<complex> backward{.order = direction::reverse, .resets = options.resets};
    if (this->varies)
      f(gate, this->half(x, 1), second, scan_gradients<complex>{.input_grad = second}, backward);
    else
      f(gate, this->half(x, 1), second,
        scan_gradients<complex>{
            .gate_grad = gate_grad, .input_grad = first, .update = update::accumulate},
        backward);
  }
  void take_steps_further(int direction) const {
    const rows_ref<const complex> rows(this->half(x, direction));
    const states_before<R> before{rows, options.initial_state, options.resets, u.shape.time,
                                  direction};
    launch(steps_vjp<R>{this->s, rows_ref<const R>(options.intervals),
                        rows_ref(sequence_view<const complex>(projected)), before,
                        rows_ref(this->half(scratch, direction)), rows_ref(options.intervals_grad),
                        u.shape, chunks, by_lambda, by_log_step},
           chunks, this->on.stream);
    const std::int64_t numbers = this->states;
    per_number(add_chunks<R>{reinterpret_cast<const R*>(by_lambda), 2 * numbers, chunks,
                             reinterpret_cast<R*>(gradients.lambda)},
               2 * numbers, this->on.stream);
    per_number(add_chunks<R>{by_log_step, numbers, chunks, gradients.log_step}, numbers,
               this->on.stream);
  }
};

}  // namespace detail

/// Bytes of device memory that an s5() call with these arguments needs.
template <backend Backend, class R>
std::int64_t s5_workspace_bytes(const Backend& on, const s5_system<R>& system,
                                const sequence_view<const std::remove_const_t<R>>& u,
                                const sequence_view<std::complex<std::remove_const_t<R>>>& states,
                                const sequence_view<std::remove_const_t<R>>& y,
                                const s5_options<std::remove_const_t<R>>& options = {}) {
  using forward = detail::s5_forward<Backend, std::remove_const_t<R>>;
  return forward(on, system, u, states, y, options).bytes;
}

/// s5() on a GPU. Parameters, arrays and workspace are in device memory.
///
/// Shapes, aliasing  those of s5() on CPUs.
/// Memory   s5_workspace_bytes() for the same arguments: the workspace of the scan and the system's
///          matrices. The call allocates nothing.
/// Stream   queues its kernels in the stream of the backend. Does not synchronise.
/// Throws   argument_error, before anything is queued; cuda::error for errors of the runtime or
///          cuBLAS. After a cuda::error, clear a workspace whose content is `kept`.
/// Bits     depend on cuBLAS, whose products may differ between GPUs and versions.
/// Source   docs/s5.md.
template <backend Backend, class R>
void s5(const Backend& on, blas_handle blas, const s5_system<R>& system,
        const sequence_view<const std::remove_const_t<R>>& u,
        const sequence_view<std::complex<std::remove_const_t<R>>>& states,
        const sequence_view<std::remove_const_t<R>>& y,
        const s5_options<std::remove_const_t<R>>& options = {}) {
  const detail::s5_forward<Backend, std::remove_const_t<R>> call(on, system, u, states, y, options);
  call.check_memory();
  call.run(detail::products(blas, on.stream));
}

/// Bytes of device memory that an s5_vjp() call with these arguments needs.
template <backend Backend, class R, class E>
std::int64_t s5_vjp_workspace_bytes(
    const Backend& on, const s5_system<E>& system,
    const sequence_view<const std::type_identity_t<R>>& u,
    const sequence_view<const std::complex<std::type_identity_t<R>>>& states,
    const sequence_view<const std::type_identity_t<R>>& y_grad,
    const sequence_view<std::complex<std::type_identity_t<R>>>& scratch,
    const s5_system<R>& gradients, const sequence_view<std::type_identity_t<R>>& u_grad,
    const s5_vjp_options<std::type_identity_t<R>>& options = {}) {
  return detail::s5_backward<Backend, R>(on, system, u, states, y_grad, scratch, gradients, u_grad,
                                         options)
      .bytes;
}

/// s5_vjp() on a GPU: adds to the gradients of all parameters. Writes the gradients of u, the
/// initial state and the intervals, each unless its array is absent.
///
/// Memory   s5_vjp_workspace_bytes() for the same arguments: the workspace of the scans, the
///          system's matrices, their gradients and partial sums; if step sizes vary, also B u of
///          every step.
/// Stream, throws  as s5() on a GPU.
template <backend Backend, class R, class E>
void s5_vjp(const Backend& on, blas_handle blas, const s5_system<E>& system,
            const sequence_view<const std::type_identity_t<R>>& u,
            const sequence_view<const std::complex<std::type_identity_t<R>>>& states,
            const sequence_view<const std::type_identity_t<R>>& y_grad,
            const sequence_view<std::complex<std::type_identity_t<R>>>& scratch,
            const s5_system<R>& gradients, const sequence_view<std::type_identity_t<R>>& u_grad,
            const s5_vjp_options<std::type_identity_t<R>>& options = {}) {
  const detail::s5_backward<Backend, R> call(on, system, u, states, y_grad, scratch, gradients,
                                             u_grad, options);
  call.check_memory();
  call.run(detail::products(blas, on.stream));
}

}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
