// SPDX-License-Identifier: BSD-3-Clause
// A residual block with a Mamba layer: y = x + mamba(n), where n = scale x / rms(x).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <Eigen/Core>
#include <scanrec/layers/mamba.hpp>

template <class R>
struct mamba_block_parameters {
  using matrix = typename scanrec::mamba_parameters<R>::matrix;
  Eigen::Matrix<R, 1, Eigen::Dynamic> scale;
  scanrec::mamba_parameters<R> mamba;

  /// Calls f(span of numbers) for every array, always in the same order.
  template <class F>
  void for_each(F f) {
    f(std::span<R>(scale.data(), static_cast<std::size_t>(scale.size())));
    mamba.for_each(f);
  }
};

/// Results of forward() that backward() needs.
template <class R>
struct mamba_block_memory {
  typename scanrec::mamba_parameters<R>::matrix normal;  // x / rms(x)
  Eigen::Matrix<R, Eigen::Dynamic, 1> size;              // rms(x)
  scanrec::mamba_memory<R> mamba;
};

/// A block with the interface of a QRNN layer, so that a text model can be made of either.
template <class R>
class mamba_block {
 public:
  using parameters = mamba_block_parameters<R>;
  using memory_type = mamba_block_memory<R>;
  using stream = scanrec::mamba_stream<R>;
  using matrix = typename parameters::matrix;

  explicit mamba_block(const scanrec::mamba_sizes& sizes)
      : weights{Eigen::Matrix<R, 1, Eigen::Dynamic>::Zero(sizes.channels),
                scanrec::mamba_layer<R>(sizes)} {}

  /// The weights. for_each visits them in the order in which parameters::for_each visits gradients.
  struct {
    Eigen::Matrix<R, 1, Eigen::Dynamic> scale;
    scanrec::mamba_layer<R> layer;

    template <class F>
    void for_each(F f) {
      f(std::span<R>(scale.data(), static_cast<std::size_t>(scale.size())));
      layer.weights.for_each(f);
    }
  } weights;

  [[nodiscard]] parameters zeros() const {
    return {decltype(weights.scale)::Zero(weights.scale.size()), weights.layer.zeros()};
  }
  template <class Generator>
  void randomise(Generator& generator) {
    weights.scale.setOnes();
    weights.layer.randomise(generator);
  }

  void forward(const matrix& x, std::int64_t batch, stream& carried, memory_type& memory,
               matrix& y) const {
    memory.size = (x.rowwise().squaredNorm() / static_cast<R>(x.cols())).array() + R(1e-6);
    memory.size = memory.size.array().sqrt();
    memory.normal = x.array().colwise() / memory.size.array();
    weights.layer.forward(scaled(memory), batch, carried, memory.mamba, y);
    y += x;
  }
  /// Adds the weights' gradients to `gradients` and overwrites `memory`. If x_grad is not null,
  /// writes the gradient of x.
  void backward(const matrix& x, std::int64_t batch, memory_type& memory, const matrix& y_grad,
                parameters& gradients, matrix* x_grad) const {
    matrix grad;
    weights.layer.backward(scaled(memory), batch, memory.mamba, y_grad, gradients.mamba, &grad);
    gradients.scale += grad.cwiseProduct(memory.normal).colwise().sum();
    // The adjoint of the normalisation removes the gradient's component along the normalised row.
    grad.array().rowwise() *= weights.scale.array();
    const Eigen::Matrix<R, Eigen::Dynamic, 1> along =
        grad.cwiseProduct(memory.normal).rowwise().sum() / static_cast<R>(x.cols());
    grad.array() -= memory.normal.array().colwise() * along.array();
    grad.array().colwise() /= memory.size.array();
    if (x_grad) *x_grad = y_grad + grad;
  }

 private:
  matrix scaled(const memory_type& memory) const {
    return memory.normal.array().rowwise() * weights.scale.array();
  }
};
