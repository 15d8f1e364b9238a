// SPDX-License-Identifier: BSD-3-Clause
// The optimiser Adam (Kingma and Ba, 2015).
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

template <class R>
class basic_adam {
 public:
  basic_adam(std::size_t parameters, double rate)
      : rate(rate), mean_(parameters), square_(parameters) {}

  double rate;  // learning rate of the next steps

  /// Moves the parameters against their gradient.
  void step(std::span<R> parameters, std::span<const R> gradient) {
    begin_step();
    move(0, parameters, gradient);
  }
  /// A step for parameters in pieces: begin_step(), then move() for every piece. `first` is the
  /// index of the piece's first element among all parameters.
  void begin_step() {
    ++steps_;
    unbias_ = std::sqrt(1 - std::pow(0.999, steps_)) / (1 - std::pow(0.9, steps_));
  }
  void move(std::size_t first, std::span<R> parameters, std::span<const R> gradient) {
    R* const mean = mean_.data() + first;
    R* const square = square_.data() + first;
    const R size = static_cast<R>(rate * unbias_), least = static_cast<R>(1e-12);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      mean[i] += R(0.1) * (gradient[i] - mean[i]);
      square[i] += R(0.001) * (gradient[i] * gradient[i] - square[i]);
      parameters[i] -= size * mean[i] / (std::sqrt(square[i]) + least);
    }
  }

 private:
  std::vector<R> mean_, square_;
  double unbias_ = 1;
  int steps_ = 0;
};
using adam = basic_adam<double>;
