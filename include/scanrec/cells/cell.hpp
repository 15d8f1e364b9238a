// SPDX-License-Identifier: BSD-3-Clause
// Gated cells: the functions that turn the pre-activations of a step into the map and the output of
// a gated recurrence.
//
// A cell is a small struct of pure functions of lanes (scalars or SIMD packs), independent of
// memory, time and threads. Its members are:
//
//     arrays<View>       a struct of its arrays of pre-activations, in the order of a packed buffer
//     names              names of the arrays and gradients in error messages (array_name)
//     step<Lane>         the activated values of one step; lives in registers
//     load(lanes...)     -> step: applies the activations
//     map(step)          -> affine: state = a * state + u; or affine_with_rest
//     outputs            the type that computes outputs, such as output_is_state
//     gradients(step, cell_cotangents)   -> std::array, the gradient of each pre-activation
//
// docs/qrnn.md derives these for QRNN pooling and shows how to add a cell.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <scanrec/detail/maps/lane_scans.hpp>
#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/element.hpp>
#include <scanrec/error.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The names, in error messages, of an array of pre-activations and of its gradient.
struct array_name {
  const char* value;
  const char* gradient;
};

/// The cotangents and states from which gradients() computes the gradients of a step.
template <class Lane>
struct cell_cotangents {
  Lane state;   // gradient of the state after the step, from the output and all later steps
  Lane output;  // gradient of the step's output
  Lane before;  // the state before the step; 0 at a reset
  Lane after;   // the state after the step
};

/// The output of a step is the state after it. back() adds the gradient of the output to the carry,
/// which is the gradient of the state from later steps.
struct output_is_state {
  static constexpr int array = -1;  // index of an array that affects the output only: none
  template <class Step, class Lane>
  SCANREC_HD static SCANREC_INLINE Lane of(const Step&, Lane state) {
    return state;
  }
  template <class Step, class Lane>
  SCANREC_HD static SCANREC_INLINE Lane back(const Step&, Lane output_grad, Lane carry) {
    return output_grad + carry;
  }
};
/// The output of a step is the output gate `o` times the state after the step. `o` is the
/// activation of array number `Array`, which does not affect the state.
template <int Array>
struct output_is_gated {
  static constexpr int array = Array;
  template <class Step, class Lane>
  SCANREC_HD static SCANREC_INLINE Lane of(const Step& s, Lane state) {
    return simd::mul(s.o.value, state);
  }
  template <class Step, class Lane>
  SCANREC_HD static SCANREC_INLINE Lane back(const Step& s, Lane output_grad, Lane carry) {
    return simd::fma(s.o.value, output_grad, carry);
  }
};

/// A type that the calls accept as a cell. The calls report missing members at compile time.
template <class Cell>
concept gated_cell = std::is_class_v<Cell> && requires {
  { Cell::names.size() } -> std::convertible_to<std::size_t>;
};

/// The cell used for 16-bit elements: the cell itself, unless a specialisation names a cell with
/// faster activations that are accurate enough for 16 bits.
template <class Cell>
struct rough_cell {
  using type = Cell;
  static const type& of(const Cell& cell) { return cell; }
};
/// The cell used for pre-activations of type T.
template <class Cell, class T>
struct computed_cell {
  using type = Cell;
  static const type& of(const Cell& cell) { return cell; }
};
template <class Cell>
struct computed_cell<Cell, bfloat16> : rough_cell<Cell> {};
template <class Cell>
struct computed_cell<Cell, float16> : rough_cell<Cell> {};

/// A pre-activation plus its bias.
template <class Lane>
SCANREC_HD SCANREC_INLINE Lane biased(Lane x, double bias) {
  return x + simd::splat<Lane>(static_cast<simd::scalar_of<Lane>>(bias));
}
/// The gradient through a product with `factor` and an activation with `slope`.
template <class Lane>
SCANREC_HD SCANREC_INLINE Lane through(Lane gradient, Lane factor, Lane slope) {
  return simd::mul(simd::mul(gradient, factor), slope);
}

/// Views of the arrays of a cell that are packed next to each other along the channels of one
/// buffer.
///
///     const auto gates = packed<fo_pooling<>>(sequence_view(buffer, {B, T, 3 * C}));
///
/// Throws argument_error if the number of channels is not a multiple of the number of arrays.
template <gated_cell Cell, class T>
typename Cell::template arrays<sequence_view<T>> packed(const sequence_view<T>& all) {
  constexpr auto count = static_cast<std::int64_t>(Cell::names.size());
  const extents& shape = all.shape;
  if (shape.channel % count != 0)
    detail::refuse("packed", "all", detail::text("a multiple of ", count, " channels"),
                   detail::text(shape));
  const std::int64_t channels = shape.channel / count;
  const auto slice = [&](std::int64_t i) { return all.channels(i * channels, (i + 1) * channels); };
  return [&]<std::int64_t... I>(std::integer_sequence<std::int64_t, I...>) {
    return typename Cell::template arrays<sequence_view<T>>{slice(I)...};
  }
  (std::make_integer_sequence<std::int64_t, count>{});
}

}  // namespace scanrec::inline SCANREC_ABI

namespace scanrec::detail::inline SCANREC_ABI {

/// The members of a cell's `arrays` as a std::array.
template <std::size_t Count, class Arrays>
auto listed(const Arrays& arrays) {
  static_assert(Count >= 1 && Count <= 4, "scanrec: a gated cell has one to four arrays");
  if constexpr (Count == 1) {
    const auto& [a] = arrays;
    return std::array{a};
  } else if constexpr (Count == 2) {
    const auto& [a, b] = arrays;
    return std::array{a, b};
  } else if constexpr (Count == 3) {
    const auto& [a, b, c] = arrays;
    return std::array{a, b, c};
  } else {
    const auto& [a, b, c, d] = arrays;
    return std::array{a, b, c, d};
  }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
