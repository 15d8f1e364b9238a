// SPDX-License-Identifier: BSD-3-Clause
// Random matrices for the tests of layers. Rows are steps.
#pragma once

#include <cstdint>

#include <Eigen/Core>

#include "reference.hpp"

using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A matrix of uniform random numbers between -1 and 1.
inline matrix random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  reference::generator bits{seed};
  matrix m(rows, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = 2 * (bits() * 0x1p-32) - 1;
  return m;
}

/// Whether two computations of the same numbers agree up to rounding. The summation order of
/// Eigen's products may depend on the alignment of a matrix.
template <class X, class Y>
bool agree(const Eigen::MatrixBase<X>& x, const Eigen::MatrixBase<Y>& y) {
  return x.rows() == y.rows() && x.cols() == y.cols() &&
         (x.size() == 0 || (x - y).cwiseAbs().maxCoeff() <= 1e-13 * (1 + y.cwiseAbs().maxCoeff()));
}
