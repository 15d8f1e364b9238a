// SPDX-License-Identifier: BSD-3-Clause
// An S5 layer: layer normalisation, a diagonal state space, a gated GELU, and a residual
// connection.
//
//     n = normalise(u) * scale + shift       v = gelu(s5(n))       y = u + v * sigmoid(v W + b)
//
// Rows of matrices are sequence-major: step t of sequence b is row b * steps + t.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include <scanrec/cells/activation.hpp>
#include <scanrec/detail/problem/check_layers.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/error.hpp>
#include <scanrec/s5.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Weights of an S5 layer with H channels, or their gradients.
template <class R>
struct s5_parameters {
  using matrix = Eigen::Matrix<R, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using row = Eigen::Matrix<R, 1, Eigen::Dynamic>;
  s5_system<R> system;
  row scale, shift;  ///< applied to the normalised inputs
  matrix gate;       ///< W, H x H
  row gate_bias;     ///< b

  /// Calls f(std::span<R>) for every array, always in the same order; a complex number is passed as
  /// two numbers.
  template <class F>
  void for_each(F f) {
    const auto reals = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    const auto complexes = [&](auto& m) {
      f(std::span<R>(reinterpret_cast<R*>(m.data()), 2 * static_cast<std::size_t>(m.size())));
    };
    complexes(system.lambda), complexes(system.input), complexes(system.output);
    reals(system.feedthrough), reals(system.log_step);
    reals(scale), reals(shift), reals(gate), reals(gate_bias);
  }
};

/// The data that forward() stores for backward().
template <class R>
struct s5_memory {
  using matrix = typename s5_parameters<R>::matrix;
  matrix normal, filtered, active, open;  // normalised u, output of s5(), v, sigmoid(v W + b)
  Eigen::Matrix<R, Eigen::Dynamic, 1> deviation;
  std::vector<std::complex<R>> states, start;
};

/// A residual layer around a state space with as many outputs as inputs.
template <class R>
class s5_layer {
 public:
  using parameters = s5_parameters<R>;
  using memory_type = s5_memory<R>;
  using matrix = typename parameters::matrix;
  using row = typename parameters::row;
  using complex = std::complex<R>;
  using stream = std::vector<complex>;  ///< batch x P states (s5_system.hpp); empty: zeros

  /// Throws argument_error unless the system has as many outputs as inputs.
  explicit s5_layer(s5_system<R> system) {
    if (system.input.cols() < 1 || system.input.cols() != system.output.rows())
      throw argument_error("s5_layer", "system", "as many outputs as inputs",
                           std::to_string(system.input.cols()) + " inputs, " +
                               std::to_string(system.output.rows()) + " outputs");
    weights.system = std::move(system);
    const auto H = weights.system.input.cols();
    weights.scale = row::Ones(H), weights.shift = row::Zero(H);
    weights.gate = matrix::Zero(H, H), weights.gate_bias = row::Zero(H);
  }

  parameters weights;  ///< weights of the layer

  [[nodiscard]] std::int64_t channels() const { return weights.system.input.cols(); }
  /// Zero parameters with the sizes of this layer, to which backward() can add gradients.
  [[nodiscard]] parameters zeros() const {
    parameters p = weights;
    p.system = weights.system.zeros();
    p.scale.setZero(), p.shift.setZero(), p.gate.setZero(), p.gate_bias.setZero();
    return p;
  }
  /// Draws the weights of the gate. make_s5() and make_lru() draw those of the system.
  template <class Generator>
  void randomise(Generator& generator) {
    std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(channels())));
    for (Eigen::Index i = 0; i < weights.gate.size(); ++i)
      weights.gate.data()[i] = static_cast<R>(normal(generator));
  }

  /// Computes the outputs y of the layer for inputs u with batch * steps rows. If `carried` is not
  /// null, continues from its states and updates them for the next chunk; this is not possible with
  /// bidirectional systems.
  ///
  /// Aliasing y may be u. No other arguments may share memory, and y may not share memory with the
  ///          weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void forward(const matrix& u, std::int64_t batch, memory_type& m, matrix& y,
               stream* carried = nullptr) const {
    const std::int64_t steps = check("forward", "u", u, batch);
    const std::int64_t H = channels(), P = weights.system.lambda.size();
    for (const auto& argument : {detail::memory_of("u", u), detail::memory_of("y", y)})
      check_apart_from_memory("s5_layer::forward", argument, m);
    detail::check_apart("s5_layer::forward", detail::memory_of("y", y), "the weights", weights);
    if (carried == &m.start)
      throw argument_error("s5_layer::forward", "carried", "a stream other than m.start",
                           "m.start");
    if (carried) {
      if (weights.system.bidirectional())
        throw argument_error("s5_layer::forward", "carried", "null for a bidirectional system",
                             "a stream");
      if (!carried->empty() && static_cast<std::int64_t>(carried->size()) != batch * P)
        throw argument_error("s5_layer::forward", "carried",
                             std::to_string(batch * P) + " states, or an empty stream",
                             std::to_string(carried->size()));
      carried->resize(static_cast<std::size_t>(batch * P));
      m.start = *carried;
    } else {
      m.start.clear();
    }
    m.normal = u.colwise() - u.rowwise().mean();
    m.deviation = (m.normal.rowwise().squaredNorm() / static_cast<R>(H)).array() + least();
    m.deviation = m.deviation.array().sqrt();
    m.normal.array().colwise() /= m.deviation.array();
    matrix inputs = scaled(m);
    m.states.resize(static_cast<std::size_t>(batch * steps * weights.system.state_channels()));
    m.filtered.resize(batch * steps, H);
    s5_options<R> options;
    if (carried) {
      options.initial_state = state_view<const complex>(m.start.data(), state_extents(batch));
      options.final_state = state_view<complex>(carried->data(), state_extents(batch));
    }
    s5(weights.system, view(inputs, batch), states_view(m, batch, steps), view(m.filtered, batch),
       options);
    m.active = m.filtered;
    change(m.active, [](auto x) SCANREC_LAMBDA { return activation::gelu::of(x).value; });
    m.open.noalias() = m.active * weights.gate;
    m.open.rowwise() += weights.gate_bias;
    change(m.open, [](auto x) SCANREC_LAMBDA { return activation::sigmoid::of(x).value; });
    y = u + m.active.cwiseProduct(m.open);
  }

  /// Runs one step of a stream: u and y have one row per sequence.
  void step(const matrix& u, stream& carried, memory_type& scratch, matrix& y) const {
    forward(u, u.rows(), scratch, y, &carried);
  }

  /// Given the gradient of y, adds the gradients of the weights to `gradients` and writes the
  /// gradient of u. The states before the chunk are treated as constants.
  ///
  /// Aliasing u_grad may be y_grad. No other arguments may share memory, and u_grad may not share
  ///          memory with the weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void backward(std::int64_t batch, const memory_type& m, const matrix& y_grad,
                parameters& gradients, matrix& u_grad) const {
    const std::int64_t steps = check("backward", "y_grad", y_grad, batch);
    if (m.normal.rows() != y_grad.rows())
      throw argument_error("s5_layer::backward", "m", "the memory of forward() on as many rows",
                           std::to_string(m.normal.rows()) + " rows");
    detail::check_gradients("s5_layer::backward", gradients, weights);
    const auto written = detail::memory_of("u_grad", u_grad);
    check_apart_from_memory("s5_layer::backward", written, m);
    detail::check_apart("s5_layer::backward", written, "the weights", weights);
    for (const auto& argument : {written, detail::memory_of("y_grad", y_grad)})
      detail::check_apart("s5_layer::backward", argument, "gradients", gradients);
    const auto H = static_cast<R>(channels());
    // y = u + v g, g = sigmoid(v W + b)
    const matrix at_gate =
        (y_grad.array() * m.active.array() * m.open.array() * (R(1) - m.open.array())).matrix();
    gradients.gate.noalias() += m.active.transpose() * at_gate;
    gradients.gate_bias += at_gate.colwise().sum();
    matrix grad = y_grad.cwiseProduct(m.open);
    grad.noalias() += at_gate * weights.gate.transpose();
    matrix slope = m.filtered;
    change(slope, [](auto x) SCANREC_LAMBDA { return activation::gelu::of(x).slope; });
    grad.array() *= slope.array();

    const matrix inputs = scaled(m);
    matrix inputs_grad(inputs.rows(), inputs.cols());
    std::vector<complex> scratch(m.states.size());
    s5_vjp_options<R> options;
    if (!m.start.empty())
      options.initial_state = state_view<const complex>(m.start.data(), state_extents(batch));
    s5_vjp(weights.system, view(inputs, batch),
           sequence_view<const complex>(m.states.data(), states_extents(batch, steps)),
           view(std::as_const(grad), batch),
           sequence_view<complex>(scratch.data(), states_extents(batch, steps)), gradients.system,
           view(inputs_grad, batch), options);
    gradients.scale += inputs_grad.cwiseProduct(m.normal).colwise().sum();
    gradients.shift += inputs_grad.colwise().sum();
    // The adjoint of the normalisation removes the components of the gradient along the vector of
    // ones and along the normalised row, and divides by the deviation.
    inputs_grad.array().rowwise() *= weights.scale.array();
    const Eigen::Matrix<R, Eigen::Dynamic, 1> along =
        inputs_grad.cwiseProduct(m.normal).rowwise().sum() / H;
    const Eigen::Matrix<R, Eigen::Dynamic, 1> mean = inputs_grad.rowwise().sum() / H;
    inputs_grad.colwise() -= mean;
    inputs_grad.array() -= m.normal.array().colwise() * along.array();
    inputs_grad.array().colwise() /= m.deviation.array();
    u_grad = y_grad + inputs_grad;
  }

 private:
  static R least() { return R(1e-6); }  // added to variances
  // Replaces every number x of a matrix by f(x). Full packs of lanes are processed at once.
  template <class F>
  static void change(matrix& m, F f) {
    constexpr int lanes = simd::lanes_v<R>;
    using lane = simd::lane_t<R, lanes>;
    Eigen::Index i = 0;
    for (; i + lanes <= m.size(); i += lanes)
      simd::store_unit(m.data() + i, f(simd::load_unit<lane>(m.data() + i)));
    for (; i < m.size(); ++i) m.data()[i] = f(m.data()[i]);
  }
  matrix scaled(const memory_type& m) const {
    matrix x = m.normal.array().rowwise() * weights.scale.array();
    x.rowwise() += weights.shift;
    return x;
  }
  static void check_apart_from_memory(const char* call, const detail::named_memory& argument,
                                      const memory_type& m) {
    detail::check_apart(
        call, argument,
        {detail::memory_of("m.normal", m.normal), detail::memory_of("m.filtered", m.filtered),
         detail::memory_of("m.active", m.active), detail::memory_of("m.open", m.open)});
  }
  std::int64_t check(const char* call, const char* argument, const matrix& u,
                     std::int64_t batch) const {
    detail::check_batch(std::string("s5_layer::") + call, batch);
    if (u.rows() % batch != 0 || u.cols() != channels())
      throw argument_error((std::string("s5_layer::") + call).c_str(), argument,
                           "rows that divide into " + std::to_string(batch) + " sequences of " +
                               std::to_string(channels()) + " channels",
                           std::to_string(u.rows()) + " x " + std::to_string(u.cols()));
    return u.rows() / batch;
  }
  static extents extents_of(const matrix& m, std::int64_t batch) {
    return {.batch = batch, .time = m.rows() / batch, .channel = m.cols()};
  }
  static sequence_view<R> view(matrix& m, std::int64_t batch) {
    return {m.data(), extents_of(m, batch)};
  }
  static sequence_view<const R> view(const matrix& m, std::int64_t batch) {
    return {m.data(), extents_of(m, batch)};
  }
  extents states_extents(std::int64_t batch, std::int64_t steps) const {
    return {.batch = batch, .time = steps, .channel = weights.system.state_channels()};
  }
  extents state_extents(std::int64_t batch) const {
    return {.batch = batch, .time = 1, .channel = weights.system.lambda.size()};
  }
  sequence_view<complex> states_view(memory_type& m, std::int64_t batch, std::int64_t steps) const {
    return {m.states.data(), states_extents(batch, steps)};
  }
};

}  // namespace scanrec::inline SCANREC_ABI
