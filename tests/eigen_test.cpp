// SPDX-License-Identifier: BSD-3-Clause
// Tests of views of Eigen matrices in both storage orders, of blocks and of const maps.
#include <Eigen/Core>

#include <scanrec/eigen.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"

TEST_CASE("scans of Eigen matrices agree for both storage orders and for blocks",
          "[eigen][views]") {
  using rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  rows gate = rows::Random(40, 6), input = rows::Random(40, 6), state(40, 6);
  Eigen::MatrixXf gate_columns = gate, input_columns = input, state_columns(40, 6);
  rows last(2, 6);
  using namespace scanrec;
  linear_scan(as_sequence(gate, 2), as_sequence(std::as_const(input), 2), as_sequence(state, 2),
              {.final_state = as_state(last)});
  linear_scan(as_sequence(gate_columns, 2), as_sequence(input_columns, 2),
              as_sequence(state_columns, 2));
  CHECK((state - state_columns).cwiseAbs().maxCoeff() < 1e-5f);
  CHECK(last.row(1) == state.row(39));
  Eigen::Map<const rows> map(gate.data(), 40, 6);
  auto block = input.middleCols(2, 3);
  rows part(40, 3);
  auto gates = map.middleCols(2, 3);
  linear_scan(as_sequence(gates, 2), as_sequence(block, 2), as_sequence(part, 2));
  CHECK(part == state.middleCols(2, 3));
  CHECK_THROWS_AS(as_sequence(gate, 7), argument_error);
}
