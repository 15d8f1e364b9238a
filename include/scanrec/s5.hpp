// SPDX-License-Identifier: BSD-3-Clause
// Diagonal state spaces, as S5 and LRU have them: projections by Eigen around a linear scan whose
// gate is one complex number per state.
//
//     x[t] = lambda_bar * x[t-1] + B_bar u[t],      y[t] = Re(C x[t]) + D u[t]
//
// Start values are in s5_init.hpp, a layer with parameters in layer/s5_layer.hpp.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <Eigen/Core>

#include <scanrec/discretise.hpp>
#include <scanrec/error.hpp>
#include <scanrec/linear_scan.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The parameters of a diagonal state space, or their gradients: P states, H inputs, Q outputs.
template <class R>
struct s5_system {
  using complex = std::complex<R>;
  template <class E>
  using matrix = Eigen::Matrix<E, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  template <class E>
  using vector = Eigen::Matrix<E, Eigen::Dynamic, 1>;

  vector<complex> lambda;  ///< P; per unit of time, or (nu, theta) of the ring
  matrix<complex> input;   ///< B, P x H
  matrix<complex> output;  ///< C, Q x P; Q x 2P: as many states again run from the end of time
  vector<R> feedthrough;   ///< D, Q = H of them; empty: none
  vector<R> log_step;      ///< P: logarithms of the steps; of no meaning to the ring
  discretisation method = discretisation::zero_order_hold;
  bool conjugate_symmetry = true;  ///< the P states stand for 2P in conjugate pairs: y = 2 Re(C x)

  [[nodiscard]] bool bidirectional() const { return output.cols() == 2 * lambda.size(); }
  /// Channels of the states of s5().
  [[nodiscard]] std::int64_t state_channels() const { return output.cols(); }
  /// All zero, of the same sizes: gradients to add to.
  [[nodiscard]] s5_system zeros() const {
    s5_system z = *this;
    z.lambda.setZero(), z.input.setZero(), z.output.setZero();
    z.feedthrough.setZero(), z.log_step.setZero();
    return z;
  }
};

/// Options of s5(); of systems that run both ways there are no states to start from.
template <class R>
struct s5_options {
  state_view<const std::complex<R>> initial_state{};  ///< (batch, P); absent: 0
  state_view<std::complex<R>> final_state{};
  sequence_view<const bool> resets{};  ///< (batch, time, 1 or P): a sequence starts here
};
/// Options of s5_vjp(); `resets` and `initial_state` are those of the forward call.
template <class R>
struct s5_vjp_options {
  state_view<const std::complex<R>> initial_state{};
  state_view<const std::complex<R>> final_grad{};
  state_view<std::complex<R>> initial_grad{};  ///< receives the gradient of the initial state
  sequence_view<const bool> resets{};
};

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// A system made ready for real matrix products: complex arrays are real ones with two columns
/// each.
template <class R>
struct s5_products {
  using complex = std::complex<R>;
  using system = s5_system<R>;
  using matrix = typename system::template matrix<R>;

  const char* name;
  const system& s;
  Eigen::Index states = s.lambda.size(), inputs = s.input.cols(), outputs = s.output.rows();
  typename system::template vector<complex> gate, scale;
  matrix to_states;   // H x 2P: B_bar, transposed
  matrix to_outputs;  // 2P (4P) x Q: C, transposed

  s5_products(const char* call, const system& of) : name(call), s(of) {
    check("input", s.input.rows() == states, "one row per state: " + std::to_string(states),
          std::to_string(s.input.rows()));
    check("output", s.output.cols() == states || s.bidirectional(),
          std::to_string(states) + " columns, or twice as many", std::to_string(s.output.cols()));
    check("log_step", s.log_step.size() == states, std::to_string(states) + " of them",
          std::to_string(s.log_step.size()));
    check("feedthrough",
          s.feedthrough.size() == 0 || (s.feedthrough.size() == outputs && outputs == inputs),
          "none, or as many as there are inputs and outputs", std::to_string(s.feedthrough.size()));
    gate.resize(states), scale.resize(states);
    to_states.resize(inputs, 2 * states);
    for (Eigen::Index p = 0; p < states; ++p) {
      const auto d = discretise<R>(s.method, s.lambda[p], std::exp(s.log_step[p]));
      gate[p] = d.gate, scale[p] = d.scale;
      for (Eigen::Index h = 0; h < inputs; ++h) {
        const complex b = d.scale * s.input(p, h);
        to_states(h, 2 * p) = b.real(), to_states(h, 2 * p + 1) = b.imag();
      }
    }
    to_outputs.resize(2 * s.output.cols(), outputs);
    for (Eigen::Index p = 0; p < s.output.cols(); ++p)
      for (Eigen::Index q = 0; q < outputs; ++q) {
        to_outputs(2 * p, q) = twice() * s.output(q, p).real();
        to_outputs(2 * p + 1, q) = -twice() * s.output(q, p).imag();
      }
  }
  [[nodiscard]] R twice() const { return s.conjugate_symmetry ? R(2) : R(1); }

  void check(const char* argument, bool good, const std::string& expected,
             const std::string& got) const {
    if (!good) throw argument_error(name, argument, expected, got);
  }
  /// Checks an array that takes part in products: channels side by side, rows in one direction.
  template <class E>
  void check_rows(const char* argument, const sequence_view<E>& view, const extents& shape) const {
    check(argument, view.shape == shape, "shape " + to_string(shape), to_string(view.shape));
    check(argument,
          element_count(shape) == 0 ||
              (view.data != nullptr && (shape.channel <= 1 || view.strides.channel == 1) &&
               (shape.time <= 1 || view.strides.time >= shape.channel) && view.shape.group == 1),
          "an array of one group whose channels are contiguous", to_string(view.strides));
  }
  /// The same for an array that is written: every row has a place of its own.
  template <class E>
  void check_written(const char* argument, const sequence_view<E>& view,
                     const extents& shape) const {
    check_rows(argument, view, shape);
    const bool apart = shape.batch <= 1 || std::abs(view.strides.batch) >=
                                               (shape.time - 1) * view.strides.time + shape.channel;
    check(argument, element_count(shape) == 0 || apart, "rows apart from each other",
          to_string(view.strides));
  }
  /// Refuses memory that two arrays share.
  template <class E, class F>
  void check_apart(const char* argument, const sequence_view<E>& view, const char* other,
                   const sequence_view<F>& that) const {
    const auto use = [](const auto& v) {
      array_use array;
      array.data = reinterpret_cast<const std::byte*>(v.data);
      array.shape = v.shape, array.strides = v.strides;
      array.element_bytes = sizeof(*v.data);
      return array;
    };
    const bool empty = element_count(view.shape) == 0 || element_count(that.shape) == 0;
    check(argument, empty || !overlap(use(view), use(that)),
          std::string("memory apart from '") + other + "'", "memory that overlaps it");
  }
  /// Calls f(rows of the arrays...) for as many rows at a time as all arrays have in one piece.
  template <class F, class... Views>
  static void for_rows(const extents& shape, F f, const Views&... views) {
    const bool one_piece =
        shape.batch == 1 || ((views.strides.batch == shape.time * views.strides.time) && ...);
    const std::int64_t pieces = one_piece ? 1 : shape.batch;
    const std::int64_t steps = one_piece ? shape.batch * shape.time : shape.time;
    if (steps > 0)
      for (std::int64_t b = 0; b < pieces; ++b) f(rows_of(views, b, steps)...);
  }
  template <class E>
  static auto rows_of(const sequence_view<E>& view, std::int64_t batch, std::int64_t steps) {
    using stored = std::remove_const_t<E>;
    constexpr std::int64_t parts = std::is_same_v<stored, complex> ? 2 : 1;
    using element = std::conditional_t<std::is_const_v<E>, const R, R>;
    using map = Eigen::Map<std::conditional_t<std::is_const_v<E>, const matrix, matrix>, 0,
                           Eigen::OuterStride<>>;
    return map(reinterpret_cast<element*>(view.data + batch * view.strides.batch), steps,
               parts * view.shape.channel, Eigen::OuterStride<>(parts * view.strides.time));
  }
  /// The states of one direction.
  template <class E>
  sequence_view<E> half(sequence_view<E> states_of, int i) const {
    states_of.shape.channel = states;
    if (states_of.data) states_of.data += i * states;
    return states_of;
  }
  template <class E>
  sequence_view<E> broadcast(E* data, const extents& shape) const {
    extents of = shape;
    of.channel = states;
    return {data, of, extents{.batch = 0, .time = 0, .channel = 1, .group = 0}};
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// A diagonal state space over sequences. lambda_bar is read as one value per state, never spread
/// over time.
///
/// Shapes   u: (batch, time, H); y: (batch, time, Q); states: (batch, time, state_channels()), for
///          s5_vjp(). Channels are contiguous. initial_state, final_state: (batch, P).
/// Aliasing none, final_state and initial_state apart, which may be one.
/// Throws   argument_error before anything is written; std::bad_alloc from workspaces.
/// Cost     two matrix products and a scan in place.
/// Source   Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 2-3.
template <backend Backend, class R>
void s5(const Backend& on, const s5_system<R>& system,
        const sequence_view<const std::type_identity_t<R>>& u,
        const sequence_view<std::complex<std::type_identity_t<R>>>& states,
        const sequence_view<std::type_identity_t<R>>& y,
        const std::type_identity_t<s5_options<R>>& options = {}) {
  const detail::s5_products<R> p("s5", system);
  extents shape = u.shape;
  shape.channel = p.inputs;
  p.check_rows("u", u, shape);
  shape.channel = system.state_channels();
  p.check_written("states", states, shape);
  shape.channel = p.outputs;
  p.check_written("y", y, shape);
  p.check_apart("states", states, "u", u);
  p.check_apart("y", y, "u", u);
  p.check_apart("y", y, "states", states);
  p.check(
      "initial_state",
      !system.bidirectional() || (options.initial_state.absent() && options.final_state.absent()),
      "no states to start from or to end with where states run both ways", "one");

  const auto first = p.half(states, 0);
  const auto gate = p.broadcast(p.gate.data(), u.shape);
  const scan_options<std::complex<R>> scan{.initial_state = options.initial_state,
                                           .final_state = options.final_state,
                                           .resets = options.resets};
  detail::make_linear_scan("s5", gate, first, first, scan, [](const auto&, const problem&) {});

  p.for_rows(
      u.shape, [&](const auto& inputs, auto into) { into.noalias() = inputs * p.to_states; }, u,
      first);
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
void s5(const s5_system<R>& system, const sequence_view<const std::type_identity_t<R>>& u,
        const sequence_view<std::complex<std::type_identity_t<R>>>& states,
        const sequence_view<std::type_identity_t<R>>& y,
        const std::type_identity_t<s5_options<R>>& options = {}) {
  s5(tiled{}, system, u, states, y, options);
}

/// The adjoint of s5(): adds to the gradients of all parameters, and writes that of u.
///
/// Shapes   u, u_grad: (batch, time, H); y_grad: (batch, time, Q); states: those that s5() wrote;
///          scratch: as states, overwritten. u_grad may be absent.
/// Aliasing u_grad may be u, initial_grad may be final_grad: same pointer and strides.
/// Throws   argument_error before anything is written; std::bad_alloc from workspaces.
/// Cost     four matrix products and a scan in place, which sums the gradient of lambda_bar.
/// Source   docs/s5.md.
template <backend Backend, class R>
void s5_vjp(const Backend& on, const s5_system<R>& system,
            const sequence_view<const std::type_identity_t<R>>& u,
            const sequence_view<const std::complex<std::type_identity_t<R>>>& states,
            const sequence_view<const std::type_identity_t<R>>& y_grad,
            const sequence_view<std::complex<std::type_identity_t<R>>>& scratch,
            s5_system<std::type_identity_t<R>>& gradients,
            const sequence_view<std::type_identity_t<R>>& u_grad,
            const std::type_identity_t<s5_vjp_options<R>>& options = {}) {
  using complex = std::complex<R>;
  const detail::s5_products<R> p("s5_vjp", system);
  extents shape = u.shape;
  shape.channel = p.inputs;
  p.check_rows("u", u, shape);
  if (!u_grad.absent()) p.check_written("u_grad", u_grad, shape);
  shape.channel = system.state_channels();
  p.check_rows("states", states, shape), p.check_written("scratch", scratch, shape);
  shape.channel = p.outputs;
  p.check_rows("y_grad", y_grad, shape);
  p.check_apart("scratch", scratch, "u", u), p.check_apart("scratch", scratch, "states", states);
  p.check_apart("scratch", scratch, "y_grad", y_grad);
  if (!u_grad.absent()) {
    p.check_apart("u_grad", u_grad, "states", states);
    p.check_apart("u_grad", u_grad, "y_grad", y_grad);
    p.check_apart("u_grad", u_grad, "scratch", scratch);
    if (u_grad.data != u.data || u_grad.strides != u.strides)
      p.check_apart("u_grad", u_grad, "u", u);
  }
  p.check("initial_state",
          !system.bidirectional() || (options.initial_state.absent() &&
                                      options.final_grad.absent() && options.initial_grad.absent()),
          "no states to start from or to end with where states run both ways", "one");
  const auto same = [](const auto& x, const auto& y) {
    return x.rows() == y.rows() && x.cols() == y.cols();
  };
  p.check("gradients",
          same(gradients.lambda, system.lambda) && same(gradients.input, system.input) &&
              same(gradients.output, system.output) &&
              same(gradients.feedthrough, system.feedthrough) &&
              same(gradients.log_step, system.log_step),
          "matrices and vectors of the system's sizes, as zeros() makes", "others");

  // The gradients of lambda_bar and of the inputs of the scan, which take the place of those of x.
  typename s5_system<R>::template vector<complex> of_gate = decltype(of_gate)::Zero(p.states);
  const auto gate = p.broadcast(p.gate.data(), u.shape);
  const auto gate_grad = p.broadcast(of_gate.data(), u.shape);
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
  if (system.bidirectional())
    linear_scan_vjp(on, gate, p.half(states, 1), p.half(scratch, 1),
                    {.gate_grad = gate_grad, .input_grad = first, .update = update::accumulate},
                    {.order = direction::reverse, .resets = options.resets});

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
      gradients.input(i, h) += std::conj(p.scale[i]) * b;
      of_scale += std::conj(system.input(i, h)) * b;
    }
    const R step = std::exp(system.log_step[i]);
    const auto d = discretise_vjp<R>(system.method, system.lambda[i], step, of_gate[i], of_scale);
    gradients.lambda[i] += d.lambda;
    if (system.method != discretisation::ring) gradients.log_step[i] += step * d.step;
  }
  for (Eigen::Index i = 0; i < system.output.cols(); ++i)
    for (Eigen::Index q = 0; q < p.outputs; ++q)
      gradients.output(q, i) +=
          p.twice() * complex(of_outputs(2 * i, q), -of_outputs(2 * i + 1, q));
  gradients.feedthrough += of_feedthrough;
}
template <class R>
void s5_vjp(const s5_system<R>& system, const sequence_view<const std::type_identity_t<R>>& u,
            const sequence_view<const std::complex<std::type_identity_t<R>>>& states,
            const sequence_view<const std::type_identity_t<R>>& y_grad,
            const sequence_view<std::complex<std::type_identity_t<R>>>& scratch,
            s5_system<std::type_identity_t<R>>& gradients,
            const sequence_view<std::type_identity_t<R>>& u_grad,
            const std::type_identity_t<s5_vjp_options<R>>& options = {}) {
  s5_vjp(tiled{}, system, u, states, y_grad, scratch, gradients, u_grad, options);
}

}  // namespace scanrec::inline SCANREC_ABI
