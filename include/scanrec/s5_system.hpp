// SPDX-License-Identifier: BSD-3-Clause
// Diagonal state spaces: their parameters, the options of s5() and s5_vjp(), and a system made
// ready for matrix products.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

#include <Eigen/Core>

#include <scanrec/argument_check.hpp>
#include <scanrec/discretise.hpp>
#include <scanrec/error.hpp>
#include <scanrec/sequence_view.hpp>

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
  /// For samples at irregular times, (batch, time, 1): the factor of the step at each.
  sequence_view<const R> intervals{};
  /// With intervals, (batch, time, P): receives the gates of every step, for s5_vjp().
  sequence_view<std::complex<R>> gates{};
};
/// Options of s5_vjp(); `resets`, `initial_state`, `intervals` and `gates` are those of the forward
/// call.
template <class R>
struct s5_vjp_options {
  state_view<const std::complex<R>> initial_state{};
  state_view<const std::complex<R>> final_grad{};
  state_view<std::complex<R>> initial_grad{};  ///< receives the gradient of the initial state
  sequence_view<const bool> resets{};
  sequence_view<const R> intervals{};
  sequence_view<const std::complex<R>> gates{};  ///< what s5() wrote
  sequence_view<R> intervals_grad{};             ///< receives the gradient of the intervals
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
  bool varies;  // whether steps differ: then gate is not set, and scale 1
  Eigen::Index states = s.lambda.size(), inputs = s.input.cols(), outputs = s.output.rows();
  typename system::template vector<complex> gate, scale;
  matrix to_states;   // H x 2P: B_bar, transposed
  matrix to_outputs;  // 2P (4P) x Q: C, transposed

  s5_products(const char* call, const system& of, bool steps_vary)
      : name(call), s(of), varies(steps_vary) {
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
      const auto d = varies ? discretised<R>{complex(0), complex(1)}
                            : discretise<R>(s.method, s.lambda[p], std::exp(s.log_step[p]));
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
          "an array of one group: channels contiguous, steps one after the other",
          to_string(view.strides));
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
  /// Checks the intervals and gates of options; `of` is the shape of u.
  template <class Options>
  void check_intervals(const Options& options, extents of) const {
    if (!varies)
      return check("gates", options.gates.absent(), "no array where there are no intervals", "one");
    check("intervals", s.method != discretisation::ring, "a method with steps", "ring");
    of.channel = 1;
    check_rows("intervals", options.intervals, of);
    of.channel = states;
    if constexpr (requires { options.intervals_grad; })
      check_rows("gates", options.gates, of);
    else
      check_written("gates", options.gates, of);
  }
  /// An array as the check of overlaps sees it.
  template <class View>
  static array_use array(const char* of, const View& view, access use) {
    array_use array;
    array.name = of, array.use = use;
    array.data = reinterpret_cast<const std::byte*>(view.data);
    array.shape = view.shape, array.strides = view.strides;
    array.element_bytes = sizeof(*view.data);
    return array;
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
