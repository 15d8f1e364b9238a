// SPDX-License-Identifier: BSD-3-Clause
// Diagonal state spaces, as in S5 and LRU: projections by Eigen around a linear scan whose gate is
// one complex number per state.
//
//     x[t] = lambda_bar * x[t-1] + B_bar u[t],      y[t] = Re(C x[t]) + D u[t]
//
// lambda_bar and B_bar are the discretised lambda and B (discretise.hpp). With conjugate symmetry
// (the default), y contains 2 Re(C x[t]); bidirectional systems add a scan backward in time.
// s5_init.hpp computes initial parameters; layers/s5.hpp is a layer with parameters.
#pragma once

#include <array>
#include <complex>

#include <Eigen/Core>

#include <scanrec/detail/cpu/s5_intervals.hpp>
#include <scanrec/detail/cpu/s5_products.hpp>
#include <scanrec/detail/view_parameter.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/s5_system.hpp>

namespace scanrec::detail {

/// An array of s5(). Its element type is deduced from the system, not from the argument.
template <class T>
using s5_array = std::type_identity_t<view_parameter<sequence_view<T>>>;

}  // namespace scanrec::detail

namespace scanrec::inline SCANREC_ABI {

/// Runs a diagonal state space over sequences. lambda_bar is one value per state, or one per state
/// and step if options.intervals is present.
///
/// Shapes   u: (batch, time, H); y: (batch, time, Q); states: (batch, time, state_channels()),
///          which s5_vjp() reads. Channels are contiguous. initial_state, final_state: (batch, P).
///          With varying step sizes, intervals: (batch, time, 1), gates: (batch, time, P).
/// Aliasing final_state may be initial_state; no other arrays may overlap if one of them is
///          written.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     two matrix products and an in-place scan (bidirectional: two). With intervals and
///          zero_order_hold, also two exponentials and two sines per state and step.
/// Source   Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 2-3.
template <backend Backend, class R>
void s5(const Backend& on, const s5_system<R>& system, const detail::s5_array<const R>& u,
        const detail::s5_array<std::complex<R>>& states, const detail::s5_array<R>& y,
        const std::type_identity_t<s5_options<R>>& options = {}) {
  const detail::s5_products<R> p("s5", system, !options.intervals.absent());
  p.check_forward(u, states, y, options);

  const auto first = p.half(states, 0);
  const sequence_view<const std::complex<R>> gate =
      p.varies ? sequence_view<const std::complex<R>>(options.gates)
               : p.broadcast(p.gate.data(), u.shape);
  const scan_options<std::complex<R>> scan{.initial_state = options.initial_state,
                                           .final_state = options.final_state,
                                           .resets = options.resets};
  detail::make_linear_scan("s5", gate, first, first, scan, [](const auto&, const problem&) {});

  p.for_rows(
      u.shape, [&](const auto& inputs, auto into) { into.noalias() = inputs * p.to_states; }, u,
      first);
  if (p.varies) detail::discretise_steps(on, p, options.intervals, options.gates, first);
  if (system.bidirectional())
    linear_scan(on, gate, first, p.half(states, 1),
                {.order = direction::reverse, .resets = options.resets});
  linear_scan(on, gate, first, first, scan);
  p.for_rows(
      u.shape,
      [&](const auto& x, const auto& inputs, auto into) {
        into.noalias() = x * p.to_outputs;
        if (system.feedthrough.size() > 0)
          into.array() += inputs.array().rowwise() * system.feedthrough.transpose().array();
      },
      states, u, y);
}
template <class R>
void s5(const s5_system<R>& system, const detail::s5_array<const R>& u,
        const detail::s5_array<std::complex<R>>& states, const detail::s5_array<R>& y,
        const std::type_identity_t<s5_options<R>>& options = {}) {
  s5(tiled{}, system, u, states, y, options);
}

/// The adjoint of s5(): adds to the gradients of all parameters and writes the gradient of u.
///
/// Shapes   u, u_grad: (batch, time, H); y_grad: (batch, time, Q); states: as written by s5();
///          scratch: as states, overwritten. u_grad may be absent. With varying step sizes,
///          intervals and gates: those of s5(); intervals_grad: (batch, time, 1), or absent.
/// Aliasing u_grad may be u, and initial_grad may be final_grad: same pointer and strides.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated.
/// Cost     four matrix products and an in-place scan (bidirectional: two). Without intervals, the
///          scan also sums the gradient of lambda_bar. With intervals, each direction needs one
///          more product and the additional cost of s5(); with zero_order_hold, also a power series
///          per state and step.
/// Source   docs/s5.md.
template <backend Backend, class R>
void s5_vjp(const Backend& on, const s5_system<R>& system, const detail::s5_array<const R>& u,
            const detail::s5_array<const std::complex<R>>& states,
            const detail::s5_array<const R>& y_grad,
            const detail::s5_array<std::complex<R>>& scratch,
            s5_system<std::type_identity_t<R>>& gradients, const detail::s5_array<R>& u_grad,
            const std::type_identity_t<s5_vjp_options<R>>& options = {}) {
  using complex = std::complex<R>;
  const detail::s5_products<R> p("s5_vjp", system, !options.intervals.absent());
  p.check_vjp(u, states, y_grad, scratch, u_grad, options);
  const auto same = [](const auto& x, const auto& y) {
    return x.rows() == y.rows() && x.cols() == y.cols();
  };
  p.check("gradients",
          same(gradients.lambda, system.lambda) && same(gradients.input, system.input) &&
              same(gradients.output, system.output) &&
              same(gradients.feedthrough, system.feedthrough) &&
              same(gradients.log_step, system.log_step),
          "matrices and vectors of the system's sizes, such as zeros()", "other sizes");

  // The scan computes the gradients of lambda_bar and of its inputs; the latter overwrite the
  // gradients of x in `scratch`.
  typename s5_system<R>::template vector<complex> of_gate = decltype(of_gate)::Zero(p.states);
  const sequence_view<const complex> gate =
      p.varies ? sequence_view<const std::complex<R>>(options.gates)
               : p.broadcast(p.gate.data(), u.shape);
  // With varying step sizes, every step has its own gate. steps_vjp below computes the gradients of
  // these gates, and from them those of lambda and of the step sizes.
  const auto gate_grad = p.varies ? sequence_view<complex>() : p.broadcast(of_gate.data(), u.shape);
  const auto first = p.half(scratch, 0);
  const scan_gradients<complex> wanted{
      .gate_grad = gate_grad, .input_grad = first, .initial_grad = options.initial_grad};
  const vjp_options<complex> scan{.initial_state = options.initial_state,
                                  .final_grad = options.final_grad,
                                  .resets = options.resets};
  detail::make_linear_scan_vjp("s5_vjp", gate, p.half(states, 0), first, wanted, scan,
                               [](const auto&, const problem&) {});

  using matrix = typename detail::s5_products<R>::matrix;
  matrix of_states = matrix::Zero(p.inputs, 2 * p.states);
  matrix of_outputs = matrix::Zero(p.to_outputs.rows(), p.outputs);
  typename s5_system<R>::template vector<R> of_feedthrough =
      decltype(of_feedthrough)::Zero(system.feedthrough.size());
  p.for_rows(
      u.shape,
      [&](const auto& x, const auto& inputs, const auto& dy, auto dx) {
        of_outputs.noalias() += x.transpose() * dy;
        if (of_feedthrough.size() > 0)
          of_feedthrough += (dy.array() * inputs.array()).colwise().sum().matrix().transpose();
        dx.noalias() = dy * p.to_outputs.transpose();
      },
      states, u, y_grad, scratch);

  linear_scan_vjp(on, gate, p.half(states, 0), first, wanted, scan);
  detail::step_sums<R> of_steps(p.states);
  if (p.varies) detail::steps_vjp(on, p, options, u, states, scratch, 0, of_steps);
  if (system.bidirectional() && !p.varies)
    linear_scan_vjp(on, gate, p.half(states, 1), p.half(scratch, 1),
                    {.gate_grad = gate_grad, .input_grad = first, .update = update::accumulate},
                    {.order = direction::reverse, .resets = options.resets});
  if (system.bidirectional() && p.varies) {
    const auto second = p.half(scratch, 1);
    linear_scan_vjp(on, gate, p.half(states, 1), second, {.input_grad = second},
                    {.order = direction::reverse, .resets = options.resets});
    detail::steps_vjp(on, p, options, u, states, scratch, 1, of_steps);
    p.for_rows(
        u.shape, [](const auto& more, auto into) { into += more; }, second, first);
  }

  p.for_rows(
      u.shape,
      [&](const auto& dv, const auto& inputs) { of_states.noalias() += inputs.transpose() * dv; },
      first, u);
  if (!u_grad.absent())
    p.for_rows(
        u.shape,
        [&](const auto& dv, const auto& dy, auto du) {
          du.noalias() = dv * p.to_states.transpose();
          if (of_feedthrough.size() > 0)
            du.array() += dy.array().rowwise() * system.feedthrough.transpose().array();
        },
        first, y_grad, u_grad);

  for (Eigen::Index i = 0; i < p.states; ++i) {
    complex of_scale = 0;
    for (Eigen::Index h = 0; h < p.inputs; ++h) {
      const complex b(of_states(h, 2 * i), of_states(h, 2 * i + 1));
      gradients.input(i, h) = simd::fma(std::conj(p.scale[i]), b, gradients.input(i, h));
      of_scale = simd::fma(std::conj(system.input(i, h)), b, of_scale);
    }
    if (p.varies) {
      gradients.lambda[i] += of_steps.lambda[i];
      gradients.log_step[i] += of_steps.log_step[i];
      continue;
    }
    const R step = detail::step_size(system.log_step[i]);
    const auto d = discretise_vjp<R>(system.method, system.lambda[i], step, of_gate[i], of_scale);
    gradients.lambda[i] += d.lambda;
    if (system.method != discretisation::ring)
      gradients.log_step[i] = simd::fma(step, d.step, gradients.log_step[i]);
  }
  for (Eigen::Index i = 0; i < system.output.cols(); ++i)
    for (Eigen::Index q = 0; q < p.outputs; ++q)
      gradients.output(q, i) +=
          p.twice() * complex(of_outputs(2 * i, q), -of_outputs(2 * i + 1, q));
  gradients.feedthrough += of_feedthrough;
}
template <class R>
void s5_vjp(const s5_system<R>& system, const detail::s5_array<const R>& u,
            const detail::s5_array<const std::complex<R>>& states,
            const detail::s5_array<const R>& y_grad,
            const detail::s5_array<std::complex<R>>& scratch,
            s5_system<std::type_identity_t<R>>& gradients, const detail::s5_array<R>& u_grad,
            const std::type_identity_t<s5_vjp_options<R>>& options = {}) {
  s5_vjp(tiled{}, system, u, states, y_grad, scratch, gradients, u_grad, options);
}

}  // namespace scanrec::inline SCANREC_ABI
