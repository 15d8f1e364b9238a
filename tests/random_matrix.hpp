// SPDX-License-Identifier: BSD-3-Clause
// Matrices for the tests of layers: rows are steps.
#pragma once

#include <cstdint>

#include <Eigen/Core>

#include "reference.hpp"

using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Numbers between -1 and 1.
inline matrix random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  reference::generator bits{seed};
  matrix m(rows, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = 2 * (bits() * 0x1p-32) - 1;
  return m;
}
