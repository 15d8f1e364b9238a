// SPDX-License-Identifier: BSD-3-Clause
// s5_system, the parameters of a diagonal state space.
#pragma once

#include <complex>
#include <cstdint>

#include <Eigen/Core>

#include <scanrec/discretise.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The parameters of a diagonal state space, or their gradients, for P states, H inputs and Q
/// outputs.
template <class R>
struct s5_system {
  using complex = std::complex<R>;
  template <class E>
  using matrix = Eigen::Matrix<E, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  template <class E>
  using vector = Eigen::Matrix<E, Eigen::Dynamic, 1>;

  vector<complex> lambda;  ///< P eigenvalues, per unit of time; for the ring nu + i theta
  matrix<complex> input;   ///< B, P x H
  matrix<complex> output;  ///< C, Q x P; Q x 2P: bidirectional, the last P states run backward
  vector<R> feedthrough;   ///< D, Q = H numbers; empty: no feedthrough
  vector<R> log_step;      ///< P: logarithms of the step sizes; the ring ignores them
  discretisation method = discretisation::zero_order_hold;
  bool conjugate_symmetry = true;  ///< P states represent 2P in conjugate pairs: y = 2 Re(C x)

  [[nodiscard]] bool bidirectional() const { return output.cols() == 2 * lambda.size(); }
  /// The number of channels of the `states` array of s5().
  [[nodiscard]] std::int64_t state_channels() const { return output.cols(); }
  /// A system of zeros with these sizes, to which s5_vjp() can add gradients.
  [[nodiscard]] s5_system zeros() const {
    s5_system z = *this;
    z.lambda.setZero(), z.input.setZero(), z.output.setZero();
    z.feedthrough.setZero(), z.log_step.setZero();
    return z;
  }
};

}  // namespace scanrec::inline SCANREC_ABI
