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

  vector<complex> lambda;  ///< P eigenvalues, per unit of time; discretisation::ring: nu + i theta
  matrix<complex> input;   ///< B, P x H
  /// C, Q x P. If bidirectional, Q x 2P: the last P columns belong to states that run in reverse.
  matrix<complex> output;
  vector<R> feedthrough;  ///< D, H numbers (Q = H is then required); empty: no feedthrough
  vector<R> log_step;     ///< P: logarithms of the step sizes; the ring ignores them
  discretisation method = discretisation::zero_order_hold;
  /// true: each state stands for a conjugate pair, y = 2 Re(C x) + D u; false: y = Re(C x) + D u.
  bool conjugate_symmetry = true;

  [[nodiscard]] bool bidirectional() const { return output.cols() == 2 * lambda.size(); }
  /// The number of channels of the `states` array of s5().
  [[nodiscard]] std::int64_t state_channels() const { return output.cols(); }
  /// A system of zeros with the sizes of this one, to which s5_vjp() can add gradients.
  [[nodiscard]] s5_system zeros() const {
    s5_system z = *this;
    z.lambda.setZero(), z.input.setZero(), z.output.setZero();
    z.feedthrough.setZero(), z.log_step.setZero();
    return z;
  }
};

}  // namespace scanrec::inline SCANREC_ABI
