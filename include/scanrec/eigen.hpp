// SPDX-License-Identifier: BSD-3-Clause
// Views of Eigen matrices, maps, references and blocks. Requires Eigen.
#pragma once

#include <cstdint>
#include <type_traits>

#include <Eigen/Core>

#include <scanrec/error.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

namespace detail {
template <class Dense>
using eigen_element =
    std::remove_pointer_t<decltype(std::declval<Dense&>().data())>;  // const if Dense is const

template <class Dense>
concept eigen_array =
    std::is_base_of_v<Eigen::DenseBase<std::remove_cvref_t<Dense>>, std::remove_cvref_t<Dense>>;
/// An Eigen type whose elements are stored in memory, unlike products and sums.
template <class Dense>
concept eigen_memory = eigen_array<Dense> && requires(Dense& matrix) {
  matrix.data();
  matrix.rowStride();
};
/// An Eigen argument that cannot be viewed: a temporary, or an expression that is not stored in
/// memory.
template <class Given>
concept eigen_array_of_no_memory = eigen_array<Given> &&
    (!std::is_lvalue_reference_v<Given> || !eigen_memory<std::remove_reference_t<Given>>);
}  // namespace detail

// Assertions that explain why a matrix cannot be viewed.
#define SCANREC_EXPLAIN_EIGEN_(Given, call)                                                      \
  static_assert(detail::eigen_memory<std::remove_reference_t<Given>>,                            \
                "scanrec: " call                                                                 \
                ": argument 'matrix': expected elements that lie in memory, got an expression: " \
                "assign it to a matrix first");                                                  \
  static_assert(                                                                                 \
      !detail::eigen_memory<std::remove_reference_t<Given>>,                                     \
      "scanrec: " call                                                                           \
      ": argument 'matrix': expected a variable that outlives the view, got a temporary "        \
      "(a block or map must be a named variable too)")

/// A view of a matrix whose rows are time steps and whose columns are channels.
///
/// With `batch` sequences, the rows of the first sequence come first, then those of the second, and
/// so on. Any storage order and strides are allowed. Nothing is copied, and the matrix must outlive
/// the view. Throws argument_error if the number of rows is not a multiple of `batch`.
template <detail::eigen_memory Dense>
auto as_sequence(Dense& matrix, std::int64_t batch = 1) {
  if (batch <= 0 || matrix.rows() % batch != 0)
    detail::refuse("as_sequence", "matrix",
                   detail::text("rows that divide into ", batch, " sequences"),
                   detail::text(matrix.rows(), " rows"));
  const std::int64_t steps = matrix.rows() / batch;
  return sequence_view<detail::eigen_element<Dense>>(
      matrix.data(), extents{.batch = batch, .time = steps, .channel = matrix.cols()},
      strides{.batch = steps * matrix.rowStride(),
              .time = matrix.rowStride(),
              .channel = matrix.colStride()});
}

template <detail::eigen_array_of_no_memory Given>
sequence_view<float> as_sequence(Given&&, std::int64_t = 1) {
  SCANREC_EXPLAIN_EIGEN_(Given, "as_sequence");
  return {};
}

/// A view of a matrix as states: one row per sequence and one column per channel.
template <detail::eigen_memory Dense>
auto as_state(Dense& matrix) {
  return state_view<detail::eigen_element<Dense>>(
      matrix.data(), extents{.batch = matrix.rows(), .time = 1, .channel = matrix.cols()},
      strides{.batch = matrix.rowStride(), .channel = matrix.colStride()});
}
template <detail::eigen_array_of_no_memory Given>
state_view<float> as_state(Given&&) {
  SCANREC_EXPLAIN_EIGEN_(Given, "as_state");
  return {};
}

}  // namespace scanrec
