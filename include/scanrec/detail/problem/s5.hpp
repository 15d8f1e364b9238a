// SPDX-License-Identifier: BSD-3-Clause
// The common part of s5() and s5_vjp() on CPUs and GPUs: sizes, argument checks, and views of the
// arrays.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <cstdlib>

#include <scanrec/detail/problem/check.hpp>
#include <scanrec/error.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A call for a system with P states, H inputs and Q outputs.
template <class R>
struct s5_call {
  using complex = std::complex<R>;

  const char* name;
  bool varies = false;  // whether step sizes vary in time (options.intervals)
  bool ring = false;    // whether the system is an LRU (discretisation::ring); no step sizes
  bool bidirectional = false;
  std::int64_t states = 0, inputs = 0, outputs = 0;

  [[nodiscard]] std::int64_t state_channels() const { return bidirectional ? 2 * states : states; }

  void check(const char* argument, bool good, const text& expected, const text& got) const {
    if (!good) refuse(name, argument, expected, got);
  }
  /// Checks the arrays of s5() that its scan does not check.
  void check_forward(const sequence_view<const R>& u, const sequence_view<complex>& x,
                     const sequence_view<R>& y, const s5_options<R>& options) const {
    check_rows("u", u, with(u.shape, inputs));
    check_written("states", x, with(u.shape, state_channels()));
    check_written("y", y, with(u.shape, outputs));
    check_ends(options.initial_state.absent() && options.final_state.absent());
    check_intervals(options, u.shape);
    using enum access;
    std::array arrays{use_of("gates", options.gates, write),
                      use_of("states", x, write),
                      use_of("y", y, write),
                      use_of("final_state", options.final_state, write),
                      use_of("u", u, read),
                      use_of("intervals", options.intervals, read),
                      use_of("initial_state", options.initial_state, read),
                      use_of("resets", options.resets, read)};
    check_overlaps(name, arrays, std::array<in_place_pair, 1>{{{"final_state", "initial_state"}}});
  }
  /// Checks the arrays of s5_vjp() that its scan does not check, except the gradients of the
  /// parameters.
  void check_vjp(const sequence_view<const R>& u, const sequence_view<const complex>& x,
                 const sequence_view<const R>& y_grad, const sequence_view<complex>& scratch,
                 const sequence_view<R>& u_grad, const s5_vjp_options<R>& options) const {
    check_rows("u", u, with(u.shape, inputs));
    if (!u_grad.absent()) check_written("u_grad", u_grad, with(u.shape, inputs));
    check_rows("states", x, with(u.shape, state_channels()));
    check_written("scratch", scratch, with(u.shape, state_channels()));
    check_rows("y_grad", y_grad, with(u.shape, outputs));
    check_intervals(options, u.shape);
    if (!options.intervals_grad.absent()) {
      check("intervals_grad", varies, "an absent array, since 'intervals' is absent", "an array");
      check_written("intervals_grad", options.intervals_grad, with(u.shape, 1));
    }
    using enum access;
    std::array arrays{use_of("scratch", scratch, write),
                      use_of("u_grad", u_grad, write),
                      use_of("intervals_grad", options.intervals_grad, write),
                      use_of("initial_grad", options.initial_grad, write),
                      use_of("u", u, read),
                      use_of("states", x, read),
                      use_of("y_grad", y_grad, read),
                      use_of("intervals", options.intervals, read),
                      use_of("gates", options.gates, read),
                      use_of("initial_state", options.initial_state, read),
                      use_of("final_grad", options.final_grad, read),
                      use_of("resets", options.resets, read)};
    check_overlaps(name, arrays,
                   std::array<in_place_pair, 2>{{{"u_grad", "u"}, {"initial_grad", "final_grad"}}});
    check_ends(options.initial_state.absent() && options.final_grad.absent() &&
               options.initial_grad.absent());
  }

  /// The states of direction i: 0 forward, 1 backward.
  template <class E>
  sequence_view<E> half(sequence_view<E> states_of, int i) const {
    states_of.shape.channel = states;
    if (states_of.data) states_of.data += i * states;
    return states_of;
  }
  /// One value per state, broadcast to all steps.
  template <class E>
  sequence_view<E> broadcast(E* data, const extents& shape) const {
    return {data, with(shape, states), strides{.channel = 1}};
  }
  /// A partition of all rows into pieces of equal size. A row is the channels of one step of one
  /// batch row. In each array, the rows of a piece are equally spaced.
  struct row_pieces {
    std::int64_t pieces = 0, rows = 0;
  };
  template <class... Views>
  static row_pieces pieces_of(const extents& shape, const Views&... views) {
    const auto in_one = [&](const auto& view) {
      return view.strides.batch == shape.time * view.strides.time &&
             view.strides.time >= view.shape.channel;
    };
    const bool one_piece = shape.batch == 1 || (in_one(views) && ...);
    const std::int64_t pieces = one_piece ? 1 : shape.batch;
    const std::int64_t rows = one_piece ? shape.batch * shape.time : shape.time;
    return {rows > 0 ? pieces : 0, rows};
  }

 private:
  static extents with(extents shape, std::int64_t channels) {
    shape.channel = channels;
    return shape;
  }
  // Checks an array of a matrix product: channels must be contiguous, and steps must ascend in
  // memory without overlap.
  template <class E>
  void check_rows(const char* argument, const sequence_view<E>& view, const extents& shape) const {
    check(argument, view.shape == shape, text("shape ", shape), text(view.shape));
    check(argument,
          element_count(shape) == 0 ||
              (view.data != nullptr && (shape.channel <= 1 || view.strides.channel == 1) &&
               (shape.time <= 1 || view.strides.time >= shape.channel) && view.shape.group == 1),
          "an array of one group with contiguous channels and ascending steps", text(view.strides));
  }
  // Checks such an array that is written. Its batch rows must not overlap, either.
  template <class E>
  void check_written(const char* argument, const sequence_view<E>& view,
                     const extents& shape) const {
    check_rows(argument, view, shape);
    const bool apart = shape.batch <= 1 || std::abs(view.strides.batch) >=
                                               (shape.time - 1) * view.strides.time + shape.channel;
    check(argument, element_count(shape) == 0 || apart, "rows that do not overlap",
          text(view.strides));
  }
  void check_ends(bool absent) const {
    check("initial_state", !bidirectional || absent,
          "no initial or final state, since the system is bidirectional", "a state");
  }
  template <class Options>
  void check_intervals(const Options& options, const extents& shape) const {
    if (!varies)
      return check("gates", options.gates.absent(), "an absent array, since 'intervals' is absent",
                   "an array");
    check("intervals", !ring, "a discretisation with step sizes", "ring");
    check_rows("intervals", options.intervals, with(shape, 1));
    if constexpr (requires { options.intervals_grad; })
      check_rows("gates", options.gates, with(shape, states));
    else
      check_written("gates", options.gates, with(shape, states));
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
