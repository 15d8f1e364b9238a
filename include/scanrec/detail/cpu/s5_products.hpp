// SPDX-License-Identifier: BSD-3-Clause
// An S5 system prepared for matrix products.
#pragma once

#include <complex>
#include <cstdint>

#include <scanrec/detail/problem/s5.hpp>
#include <scanrec/discretise.hpp>
#include <scanrec/options.hpp>
#include <scanrec/s5_system.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A system prepared for real matrix products. Each complex state takes two real columns of
/// to_states and of the array of states, and two real rows of to_outputs.
template <class R>
struct s5_products : s5_call<R> {
  using base = s5_call<R>;
  using base::check, base::inputs, base::outputs, base::states, base::varies;
  using complex = std::complex<R>;
  using system = s5_system<R>;
  using matrix = typename system::template matrix<R>;

  const system& s;
  // If step sizes vary, the gate is unused and the scale is 1.
  typename system::template vector<complex> gate, scale;
  matrix to_states;   // H x 2P: B_bar, transposed
  matrix to_outputs;  // 2P x Q, or 4P x Q if bidirectional: C, transposed

  s5_products(const char* call, const system& of, bool steps_vary)
      : base{.name = call,
             .varies = steps_vary,
             .ring = of.method == discretisation::ring,
             .bidirectional = of.bidirectional(),
             .states = of.lambda.size(),
             .inputs = of.input.cols(),
             .outputs = of.output.rows()},
        s(of) {
    check("input", s.input.rows() == states, text("one row per state: ", states),
          text(s.input.rows()));
    check("output", s.output.cols() == states || s.bidirectional(),
          text(states, " columns, or twice as many"), text(s.output.cols()));
    check("log_step", s.log_step.size() == states, text(states, " values, one per state"),
          text(s.log_step.size()));
    check("feedthrough",
          s.feedthrough.size() == 0 || (s.feedthrough.size() == outputs && outputs == inputs),
          "none, or as many as there are inputs and outputs", text(s.feedthrough.size()));
    gate.resize(states), scale.resize(states);
    to_states.resize(inputs, 2 * states);
    for (Eigen::Index p = 0; p < states; ++p) {
      const auto d = varies ? discretised<R>{complex(0), complex(1)}
                            : discretise<R>(s.method, s.lambda[p], step_size(s.log_step[p]));
      gate[p] = d.gate, scale[p] = d.scale;
      for (Eigen::Index h = 0; h < inputs; ++h) {
        const complex b = simd::mul(d.scale, s.input(p, h));
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

  /// Calls f(rows of the arrays...) for as many rows at a time as are equally spaced in all arrays.
  template <class F, class... Views>
  static void for_rows(const extents& shape, F f, const Views&... views) {
    const auto all = base::pieces_of(shape, views...);
    for (std::int64_t b = 0; b < all.pieces; ++b) f(rows_of(views, b, all.rows)...);
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
};

}  // namespace scanrec::detail::inline SCANREC_ABI
