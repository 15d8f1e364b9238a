// SPDX-License-Identifier: BSD-3-Clause
// Views of Eigen matrices, maps, references and blocks. Needs Eigen, as do
// s5.hpp, layers/ and triangular_matmul.hpp.
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
    std::remove_pointer_t<decltype(std::declval<Dense&>().data())>;  // const where it is const

template <class Dense>
concept eigen_array =
    std::is_base_of_v<Eigen::DenseBase<std::remove_cvref_t<Dense>>, std::remove_cvref_t<Dense>>;
/// One whose elements lie in memory, as those of products and sums do not.
template <class Dense>
concept eigen_memory = eigen_array<Dense> && requires(Dense& matrix) {
  matrix.data();
  matrix.rowStride();
};
/// A matrix that has no view: a temporary, or an expression that is not in memory.
template <class Given>
concept eigen_array_of_no_memory = eigen_array<Given> &&
    (!std::is_lvalue_reference_v<Given> || !eigen_memory<std::remove_reference_t<Given>>);
}  // namespace detail

// Assertions that say why a matrix has no view.
#define SCANREC_EXPLAIN_EIGEN_(Given, call)                                                      \
  static_assert(detail::eigen_memory<std::remove_reference_t<Given>>,                            \
                "scanrec: " call                                                                 \
                ": argument 'matrix': expected elements that lie in memory, got an expression: " \
                "assign it to a matrix first");                                                  \
  static_assert(                                                                                 \
      !detail::eigen_memory<std::remove_reference_t<Given>>,                                     \
      "scanrec: " call                                                                           \
      ": argument 'matrix': expected a variable that outlives the view, got a temporary "        \
      "(of a block or map too: give it a name)")

/// A view of a matrix whose rows are time steps and whose columns are channels.
///
/// With `batch` sequences the rows are those of the first sequence, then those of the second, ...
/// Any storage order and any strides; nothing is copied, and the matrix must outlive the view.
/// Throws argument_error if the rows do not divide into `batch` sequences.
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

/// A view of a matrix whose rows are sequences and whose columns are channels: one state each.
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
