// SPDX-License-Identifier: BSD-3-Clause
// The parameters of diagonal state spaces.
#pragma once

#include <complex>
#include <cstdint>

#include <Eigen/Core>

#include <scanrec/discretise.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The parameters of a diagonal state space, or their gradients: P states, H inputs, Q outputs.
template <class R>
struct s5_system {
  using complex = std::complex<R>;
  template <class E>
  using matrix = Eigen::Matrix<E, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  template <class E>
  using vector = Eigen::Matrix<E, Eigen::Dynamic, 1>;

  vector<complex> lambda;  ///< P; per unit of time, or (nu, theta) of the ring
  matrix<complex> input;   ///< B, P x H
  matrix<complex> output;  ///< C, Q x P; Q x 2P: as many states again run from the end of time
  vector<R> feedthrough;   ///< D, Q = H of them; empty: none
  vector<R> log_step;      ///< P: logarithms of the steps; of no meaning to the ring
  discretisation method = discretisation::zero_order_hold;
  bool conjugate_symmetry = true;  ///< the P states stand for 2P in conjugate pairs: y = 2 Re(C x)

  [[nodiscard]] bool bidirectional() const { return output.cols() == 2 * lambda.size(); }
  /// Channels of the states of s5().
  [[nodiscard]] std::int64_t state_channels() const { return output.cols(); }
  /// All zero, of the same sizes: gradients to add to.
  [[nodiscard]] s5_system zeros() const {
    s5_system z = *this;
    z.lambda.setZero(), z.input.setZero(), z.output.setZero();
    z.feedthrough.setZero(), z.log_step.setZero();
    return z;
  }
};

}  // namespace scanrec::inline SCANREC_ABI
