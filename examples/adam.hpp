// SPDX-License-Identifier: BSD-3-Clause
// Adam (Kingma and Ba, 2015).
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

class adam {
 public:
  adam(std::size_t parameters, double rate) : mean_(parameters), square_(parameters), rate_(rate) {}

  /// Moves the parameters against their gradient.
  void step(std::span<double> parameters, std::span<const double> gradient) {
    ++steps_;
    const double unbias = std::sqrt(1 - std::pow(0.999, steps_)) / (1 - std::pow(0.9, steps_));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      mean_[i] = std::lerp(gradient[i], mean_[i], 0.9);
      square_[i] = std::lerp(gradient[i] * gradient[i], square_[i], 0.999);
      parameters[i] -= rate_ * unbias * mean_[i] / (std::sqrt(square_[i]) + 1e-12);
    }
  }

 private:
  std::vector<double> mean_, square_;
  double rate_;
  int steps_ = 0;
};
