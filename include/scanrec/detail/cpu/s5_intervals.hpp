// SPDX-License-Identifier: BSD-3-Clause
// S5 on irregularly sampled sequences: gates and scales of every step, and their adjoint.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <Eigen/Core>

#include <scanrec/detail/cpu/s5_products.hpp>
#include <scanrec/detail/cpu/workers.hpp>
#include <scanrec/discretise.hpp>
#include <scanrec/s5_system.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// discretise() and its adjoint for vectors of states, in the type of the system.
///
/// Error: a few roundings of |gate| and |scale|, as long as step * Im(lambda) stays below some
/// hundreds.
template <class R>
class discretised_row {
 public:
  using complex = std::complex<R>;
  using complexes = Eigen::Array<complex, Eigen::Dynamic, 1>;
  using reals = Eigen::Array<R, Eigen::Dynamic, 1>;

  complexes gate, scale;  // results of at()
  complexes by_lambda;    // results of vjp()
  reals by_step;

  /// `method` must be a method with step sizes, that is, not `ring`.
  discretised_row(discretisation method, const complexes& lambda, const reals& step)
      : method_(method), lambda_(lambda), step_(step) {
    tiny_ = lambda_.abs2() < std::numeric_limits<R>::min();
    inverse_ = tiny_.select(complexes::Zero(lambda_.size()), lambda_.inverse());
    gate.resize(lambda_.size()), scale.resize(lambda_.size());
  }
  /// Computes gate and scale for `interval` times the system's step sizes.
  void at(R interval) {
    h_ = interval * step_;
    z_ = lambda_ * h_.template cast<complex>();
    if (method_ == discretisation::bilinear) {
      scale = (R(1) - z_ / R(2)).inverse();
      gate = (R(1) + z_ / R(2)) * scale;
      scale *= h_.template cast<complex>();
      return;
    }
    // Re(exp(z) - 1) = a (1 - 2 b^2) - 2 b^2, where a = exp(Re z) - 1 and b = sin(Im z / 2).
    e_ = z_.real().exp();
    a_ = z_.real().unaryExpr([](R x) { return std::expm1(x); });
    b_ = (z_.imag() / R(2)).sin();
    cosine_ = R(1) - R(2) * b_.square();
    gate.real() = e_ * cosine_;
    gate.imag() = e_ * z_.imag().sin();
    scale.real() = a_ * cosine_ - R(2) * b_.square();
    scale.imag() = gate.imag();
    scale = tiny_.select(h_.template cast<complex>(), scale * inverse_);
  }
  /// Computes by_lambda and by_step from the gradients of gate and scale. Call at() first.
  template <class G, class S>
  void vjp(const G& gate_grad, const S& scale_grad) {
    const auto h = h_.template cast<complex>();
    if (method_ == discretisation::bilinear) {
      square_ = (R(1) - z_ / R(2)).inverse();  // scale is h times this
      by_lambda = (scale * square_).conjugate() * gate_grad +
                  (scale.square() / R(2)).conjugate() * scale_grad;
      square_ = square_.square();
      by_step =
          ((lambda_ * square_).conjugate() * gate_grad + square_.conjugate() * scale_grad).real();
      return;
    }
    // scale = h phi(z) with phi(z) = (exp(z) - 1) / z. Its derivative with respect to lambda is
    // h^2 phi'(z) = (h exp(z) - scale) / lambda. For |z| < 1, the series of phi' is used.
    constexpr int terms = sizeof(R) == 4 ? 12 : 22;
    square_.setConstant(lambda_.size(), coefficients<terms>[terms - 1]);
    for (int k = terms - 2; k >= 0; --k) square_ = square_ * z_ + complex(coefficients<terms>[k]);
    square_ = (z_.abs2() < R(1)).select(h * h * square_, (h * gate - scale) * inverse_);
    by_lambda = (h * gate).conjugate() * gate_grad + square_.conjugate() * scale_grad;
    by_step = ((lambda_ * gate).conjugate() * gate_grad + gate.conjugate() * scale_grad).real();
  }

 private:
  // The coefficients of phi': 1 / (k! (k + 2)).
  template <int Terms>
  static constexpr auto coefficients = [] {
    std::array<R, Terms> c{};
    double factorial = 1;
    for (int k = 0; k < Terms; ++k) {
      c[k] = static_cast<R>(1 / (factorial * (k + 2)));
      factorial *= k + 1;
    }
    return c;
  }();

  discretisation method_;
  complexes lambda_, inverse_, z_, square_;
  reals step_, h_, e_, a_, b_, cosine_;
  Eigen::Array<bool, Eigen::Dynamic, 1> tiny_;  // where lambda is treated as 0
};

/// Number of chunks of for_row_chunks.
inline constexpr int row_chunks = 64;
/// Calls f(chunk, first row, end) for chunks of rows, on the workers of a backend. A row is one
/// step of one sequence. The chunks do not depend on the number of workers.
template <class Backend, class F>
void for_row_chunks(const Backend& on, std::int64_t rows, F f) {
  int workers = 1;
  if constexpr (requires { on.threads; })
    workers = on.threads > 0 ? std::min(on.threads, most_threads) : default_threads();
  workers = static_cast<int>(std::min<std::int64_t>({workers, row_chunks, (rows + 63) / 64}));
  const executor by_default{};
  const executor* given = &by_default;
  if constexpr (requires { on.executor; }) given = &on.executor;
  task_queue chunks(row_chunks);
  run_on(*given, workers, [&](int worker) {
    chunks.work_off(worker, [&](std::int64_t chunk) {
      f(static_cast<int>(chunk), rows * chunk / row_chunks, rows * (chunk + 1) / row_chunks);
    });
  });
  chunks.rethrow();
}

/// Gradients of lambda and log_step as sums over steps.
template <class R>
struct step_sums {
  Eigen::Array<std::complex<R>, Eigen::Dynamic, 1> lambda;
  Eigen::Array<R, Eigen::Dynamic, 1> log_step;
  explicit step_sums(Eigen::Index states) { lambda.setZero(states), log_step.setZero(states); }
};

/// Row t of sequence b, as an array.
template <class E>
auto row_at(const sequence_view<E>& view, std::int64_t b, std::int64_t t) {
  using array = Eigen::Array<std::remove_const_t<E>, Eigen::Dynamic, 1>;
  return Eigen::Map<std::conditional_t<std::is_const_v<E>, const array, array>>(
      view.data + b * view.strides.batch + t * view.strides.time, view.shape.channel);
}

/// The step sizes of a system's states.
template <class System>
auto step_sizes(const System& s) {
  using R = typename std::remove_cvref_t<decltype(s.log_step)>::Scalar;
  return s.log_step.array().unaryExpr([](R x) { return step_size(x); });
}

/// Sets the gates of every step, and multiplies the inputs of the scan (in `states`) by the scales.
template <class Backend, class R>
void discretise_steps(const Backend& on, const s5_products<R>& p,
                      const sequence_view<const R>& intervals,
                      const sequence_view<std::complex<R>>& gates,
                      const sequence_view<std::complex<R>>& states) {
  const std::int64_t steps = intervals.shape.time;
  for_row_chunks(on, intervals.shape.batch * steps,
                 [&](int, std::int64_t first, std::int64_t last) {
                   discretised_row<R> row(p.s.method, p.s.lambda, step_sizes(p.s));
                   for (std::int64_t r = first; r < last; ++r) {
                     row.at(row_at(intervals, r / steps, r % steps)[0]);
                     row_at(gates, r / steps, r % steps) = row.gate;
                     row_at(states, r / steps, r % steps) *= row.scale;
                   }
                 });
}

/// Loads the states from which step t of sequence b continues in one direction (0: forward, 1:
/// backward in time). They are 0 where a reset separates them from step t, or if there is neither a
/// step nor an initial state before step t in this direction.
template <class R, class Complexes>
void load_states_before(const s5_vjp_options<R>& options,
                        const sequence_view<const std::complex<R>>& x, std::int64_t b,
                        std::int64_t t, int direction, Complexes& before) {
  const std::int64_t steps = x.shape.time, from = direction == 0 ? t - 1 : t + 1;
  const auto& start = options.initial_state;
  if (from >= 0 && from < steps)
    before = row_at(x, b, from);
  else if (direction == 0 && !start.absent())
    for (Eigen::Index i = 0; i < before.size(); ++i)
      before[i] = start.data[b * start.strides.batch + i * start.strides.channel];
  else
    before.setZero();
  // A reset at step t masks the link between t - 1 and t, in both directions.
  const auto& resets = options.resets;
  const std::int64_t later = std::max(t, from);
  if (resets.absent() || later >= steps) return;
  const bool* const reset_mask =
      resets.data + b * resets.strides.batch + later * resets.strides.time;
  for (Eigen::Index i = 0; i < before.size(); ++i)
    if (reset_mask[resets.shape.channel > 1 ? i * resets.strides.channel : 0]) before[i] = 0;
}

/// Computes gradients from v, the gradients of the inputs of the scan in one direction, which are
/// in `scratch`. Adds the gradients of lambda and log_step to `sums`. Writes the gradients of the
/// intervals in direction 0, and adds to them in direction 1. Turns v into the gradients of B u.
template <class Backend, class R>
void steps_vjp(const Backend& on, const s5_products<R>& p, const s5_vjp_options<R>& options,
               const sequence_view<const R>& u, const sequence_view<const std::complex<R>>& states,
               const sequence_view<std::complex<R>>& scratch, int direction, step_sums<R>& sums) {
  using row_type = discretised_row<R>;
  using complexes = typename row_type::complexes;
  const std::int64_t steps = u.shape.time;
  const auto x = p.half(states, direction);
  const auto dv = p.half(scratch, direction);
  using complex_columns = Eigen::Array<std::complex<R>, Eigen::Dynamic, Eigen::Dynamic>;
  using real_columns = Eigen::Array<R, Eigen::Dynamic, Eigen::Dynamic>;
  complex_columns by_lambda = complex_columns::Zero(p.states, row_chunks);
  real_columns by_log_step = real_columns::Zero(p.states, row_chunks);
  for_row_chunks(on, u.shape.batch * steps, [&](int chunk, std::int64_t first, std::int64_t last) {
    const typename row_type::reals step = step_sizes(p.s);
    row_type row(p.s.method, p.s.lambda, step);
    complexes before(p.states), projected(p.states);
    Eigen::Map<Eigen::Matrix<R, 1, Eigen::Dynamic>> parts(reinterpret_cast<R*>(projected.data()),
                                                          2 * p.states);
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t b = r / steps, t = r % steps;
      load_states_before(options, x, b, t, direction, before);
      const R interval = row_at(options.intervals, b, t)[0];
      auto v = row_at(dv, b, t);
      parts.noalias() = row_at(u, b, t).matrix().transpose() * p.to_states;
      row.at(interval);
      row.vjp(v * before.conjugate(), v * projected.conjugate());
      by_lambda.col(chunk) += row.by_lambda;
      by_log_step.col(chunk) += (interval * step) * row.by_step;
      if (!options.intervals_grad.absent()) {
        R& grad = row_at(options.intervals_grad, b, t)[0];
        grad = (direction == 0 ? R(0) : grad) + (step * row.by_step).sum();
      }
      v *= row.scale.conjugate();
    }
  });
  for (int chunk = 0; chunk < row_chunks; ++chunk) {
    sums.lambda += by_lambda.col(chunk);
    sums.log_step += by_log_step.col(chunk);
  }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
