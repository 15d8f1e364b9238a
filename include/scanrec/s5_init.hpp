// SPDX-License-Identifier: BSD-3-Clause
// Initial parameters of diagonal state spaces: diagonalised blocks of HiPPO-LegS for S5, and the
// ring initialisation of LRU.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>

#include <Eigen/Eigenvalues>

#include <scanrec/error.hpp>
#include <scanrec/s5.hpp>

namespace scanrec {

/// The eigenvalues and eigenvectors of the normal part of HiPPO-LegS: A = V diag(lambda) V^H.
struct hippo_legs {
  Eigen::VectorXcd lambda;   ///< in ascending order of imaginary parts
  Eigen::MatrixXcd vectors;  ///< unitary
};

/// Sizes of a system made by make_s5().
struct s5_sizes {
  std::int64_t channels = 1;   ///< H: inputs and outputs
  std::int64_t states = 64;    ///< real dimension of the state space; P is half of it
  std::int64_t blocks = 1;     ///< equal blocks of HiPPO-LegS on the diagonal
  bool bidirectional = false;  ///< whether C also reads states that run backward
  double least_step = 1e-3, most_step = 1e-1;  ///< step sizes are log-uniform in this range
};

/// Sizes of a system made by make_lru().
struct ring_sizes {
  std::int64_t channels = 1;
  std::int64_t states = 64;  ///< complex states
  double least_radius = 0.9, most_radius = 0.999, most_angle = 6.283185307179586;
};

}  // namespace scanrec

namespace scanrec::inline SCANREC_ABI {

/// HiPPO-LegS with n states, plus the rank-one term that makes it normal:
///
///     A[i][j] = -1/2 on the diagonal, -s / 2 below it, +s / 2 above, s = sqrt((2i + 1) (2j + 1))
///
/// Every eigenvalue has the real part -1/2, because A + I/2 is skew-symmetric and -i (A + I/2) is
/// Hermitian.
///
/// Source  Gu et al., On the Parameterization and Initialization of Diagonal State Space Models
///         (2022); Smith et al. (2023), appendix B.1.
inline hippo_legs make_hippo_legs(std::int64_t n) {
  Eigen::MatrixXcd hermitian(n, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const double s =
          std::sqrt((2.0 * static_cast<double>(i) + 1) * (2.0 * static_cast<double>(j) + 1)) / 2;
      // -i times the skew part; its eigenvalues are the imaginary parts of those of A.
      hermitian(i, j) = i == j ? 0 : std::complex<double>(0, i > j ? s : -s);
    }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXcd> solver(hermitian);
  hippo_legs result{solver.eigenvalues().cast<std::complex<double>>(), solver.eigenvectors()};
  for (std::int64_t i = 0; i < n; ++i) result.lambda[i] = {-0.5, solver.eigenvalues()[i]};
  return result;
}

/// The initial system of S5. It keeps one eigenvalue of each conjugate pair, the one with the
/// positive imaginary part. B and C are drawn from a normal distribution and transformed to the
/// eigenbasis; D is drawn from a normal distribution.
///
/// Throws  argument_error unless there is a channel, and blocks with an equal, even number of
///         states.
/// Source  Smith et al. (2023), sections 3.2, 4.3 and appendix B.1.
template <class R, class Generator>
s5_system<R> make_s5(const s5_sizes& sizes, Generator& generator) {
  const std::int64_t blocks = std::max<std::int64_t>(sizes.blocks, 1), n = sizes.states / blocks;
  if (sizes.channels < 1 || n < 2 || n % 2 != 0 || n * blocks != sizes.states)
    detail::refuse("make_s5", "sizes",
                   "1 channel or more, and blocks with an even number of states",
                   detail::text(sizes.channels, " channels, ", sizes.states, " states in ",
                                sizes.blocks, " blocks"));
  const std::int64_t half = n / 2, P = half * blocks, H = sizes.channels;
  const hippo_legs basis = make_hippo_legs(n);
  const Eigen::MatrixXcd vectors = basis.vectors.rightCols(half);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(std::log(sizes.least_step),
                                                 std::log(sizes.most_step));
  using complex = std::complex<R>;
  s5_system<R> s;
  s.lambda.resize(P), s.log_step.resize(P), s.feedthrough.resize(H);
  s.input.resize(P, H), s.output.resize(H, sizes.bidirectional ? 2 * P : P);
  const auto draw = [&](Eigen::MatrixXd m) {
    for (double& x : m.reshaped()) x = normal(generator);
    return m;
  };
  for (std::int64_t b = 0; b < blocks; ++b) {
    const Eigen::MatrixXcd in =
        vectors.adjoint() * draw(Eigen::MatrixXd(n, H)) / std::sqrt(static_cast<double>(H));
    s.input.middleRows(b * half, half) = in.template cast<complex>();
    for (std::int64_t i = 0; i < half; ++i)
      s.lambda[b * half + i] = complex(basis.lambda[half + i]);
    for (int way = 0; way < (sizes.bidirectional ? 2 : 1); ++way) {
      const Eigen::MatrixXcd out =
          draw(Eigen::MatrixXd(H, n)) * vectors / std::sqrt(static_cast<double>(sizes.states));
      s.output.middleCols(way * P + b * half, half) = out.template cast<complex>();
    }
  }
  for (R& x : s.log_step) x = static_cast<R>(uniform(generator));
  for (R& x : s.feedthrough) x = static_cast<R>(normal(generator));
  return s;
}

/// The initial system of LRU, with gates drawn uniformly from a ring in the complex plane.
///
/// Throws  argument_error unless channels, states and most_angle are positive, and
///         0 <= least_radius < most_radius < 1.
/// Source  Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023), lemma
///         3.2.
template <class R, class Generator>
s5_system<R> make_lru(const ring_sizes& sizes, Generator& generator) {
  if (!(sizes.channels > 0 && sizes.states > 0 && 0 <= sizes.least_radius &&
        sizes.least_radius < sizes.most_radius && sizes.most_radius < 1 && sizes.most_angle > 0))
    detail::refuse(
        "make_lru", "sizes",
        "positive channels, states and most_angle, and 0 <= least_radius < most_radius < 1",
        "other values");
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  const std::int64_t P = sizes.states, H = sizes.channels;
  s5_system<R> s;
  s.method = discretisation::ring;
  s.lambda.resize(P), s.feedthrough.resize(H);
  s.log_step = decltype(s.log_step)::Zero(P);
  s.input.resize(P, H), s.output.resize(H, P);
  const double least = sizes.least_radius * sizes.least_radius,
               most = sizes.most_radius * sizes.most_radius;
  for (auto& x : s.lambda) {
    const double square = simd::fma(most - least, uniform(generator), least);
    const double nu = std::log(-0.5 * std::log(square));
    const double theta = std::log(sizes.most_angle * (1 - uniform(generator)));
    x = {static_cast<R>(nu), static_cast<R>(theta)};
  }
  const auto draw = [&](auto& m, double deviation) {
    for (auto& x : m.reshaped())
      x = {static_cast<R>(deviation * normal(generator)),
           static_cast<R>(deviation * normal(generator))};
  };
  draw(s.input, 1 / std::sqrt(2.0 * static_cast<double>(H)));
  draw(s.output, 1 / std::sqrt(static_cast<double>(P)));
  for (R& x : s.feedthrough) x = static_cast<R>(normal(generator));
  s.conjugate_symmetry = false;
  return s;
}

}  // namespace scanrec::inline SCANREC_ABI
