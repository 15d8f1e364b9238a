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
}  // namespace detail

/// A view of a matrix whose rows are time steps and whose columns are channels.
///
/// With `batch` sequences the rows are those of the first sequence, then those of the second, ...
/// Any storage order and any strides; nothing is copied, and the matrix must outlive the view.
/// Throws argument_error if the rows do not divide into `batch` sequences.
template <class Dense>
requires std::is_base_of_v<Eigen::DenseBase<std::remove_const_t<Dense>>, std::remove_const_t<Dense>>
auto as_sequence(Dense& matrix, std::int64_t batch = 1) {
  if (batch <= 0 || matrix.rows() % batch != 0)
    throw argument_error("as_sequence", "matrix",
                         detail::text("rows that divide into ", batch, " sequences").c_str(),
                         detail::text(matrix.rows(), " rows").c_str());
  const std::int64_t steps = matrix.rows() / batch;
  return sequence_view<detail::eigen_element<Dense>>(
      matrix.data(), extents{.batch = batch, .time = steps, .channel = matrix.cols()},
      strides{.batch = steps * matrix.rowStride(),
              .time = matrix.rowStride(),
              .channel = matrix.colStride()});
}

/// A view of a matrix whose rows are sequences and whose columns are channels: one state each.
template <class Dense>
requires std::is_base_of_v<Eigen::DenseBase<std::remove_const_t<Dense>>, std::remove_const_t<Dense>>
auto as_state(Dense& matrix) {
  return state_view<detail::eigen_element<Dense>>(
      matrix.data(), extents{.batch = matrix.rows(), .time = 1, .channel = matrix.cols()},
      strides{.batch = matrix.rowStride(), .channel = matrix.colStride()});
}

}  // namespace scanrec
