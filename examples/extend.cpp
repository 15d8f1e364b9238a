// SPDX-License-Identifier: BSD-3-Clause
// A custom recurrence on a custom backend: forecast errors of exponential smoothing.
//
//   error[t] = input[t] - level[t-1]
//   level[t] = decay[t] * level[t-1] + (1 - decay[t]) * input[t]
//
// forecast_errors.hpp defines the recurrence and its adjoint, and halves.hpp defines the backend.
// The program compares the results of each backend with a plain loop, and the gradients with
// central differences. The exit status is 1 if a difference is too large.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <scanrec/scan.hpp>

#include "forecast_errors.hpp"
#include "halves.hpp"

namespace {

using doubles = std::vector<double>;
constexpr int B = 2, T = 300, C = 3;
constexpr scanrec::extents shape{.batch = B, .time = T, .channel = C};
constexpr scanrec::strides per_channel{.batch = 0, .time = 0, .channel = 1};

struct model {
  doubles decay{0.5, 0.9, 0.99}, input = doubles(B * T * C), level = doubles(B * C);

  smoothing::in decays() const { return {decay.data(), shape, per_channel}; }
  /// The forecast errors, computed by a plain loop.
  doubles errors() const {
    doubles error(input.size()), now = level;
    for (int b = 0; b < B; ++b)
      for (int t = 0; t < T; ++t)
        for (int c = 0; c < C; ++c) {
          double& forecast = now[b * C + c];
          const int i = (b * T + t) * C + c;
          error[i] = input[i] - forecast;
          forecast = decay[c] * forecast + (1 - decay[c]) * input[i];
        }
    return error;
  }
  double loss(const doubles& weight) const {
    double sum = 0;
    const doubles error = errors();
    for (std::size_t i = 0; i < error.size(); ++i) sum += weight[i] * error[i];
    return sum;
  }
};

double farthest(const doubles& x, const doubles& y) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

/// Compares forward and adjoint on a backend. Returns whether they are correct.
template <class Backend>
bool check(const char* name, const Backend& backend, model m, const doubles& weight) {
  doubles error(m.input.size()), decay_grad(error), input_grad(error), level_grad(m.level);
  smoothing::forecast_errors(backend, m.decays(), {m.input, shape}, {m.level, shape},
                             {error, shape});
  smoothing::forecast_errors_vjp(backend, m.decays(), {error, shape}, {weight, shape},
                                 {decay_grad, shape}, {input_grad, shape}, {level_grad, shape});
  doubles per_decay(C);
  for (std::size_t i = 0; i < decay_grad.size(); ++i) per_decay[i % C] += decay_grad[i];

  const auto by_differences = [&](doubles& parameters) {
    doubles slopes;
    for (double& x : parameters) {
      constexpr double h = 1e-6;
      const double was = x;
      x = was + h;
      const double above = m.loss(weight);
      x = was - h;
      slopes.push_back((above - m.loss(weight)) / (2 * h));
      x = was;
    }
    return slopes;
  };
  const double of_errors = farthest(error, m.errors());
  const double of_gradients = std::max({farthest(per_decay, by_differences(m.decay)),
                                        farthest(input_grad, by_differences(m.input)),
                                        farthest(level_grad, by_differences(m.level))});
  std::printf("%-12s errors within %.1e of the loop, gradients within %.1e of differences\n", name,
              of_errors, of_gradients);
  return of_errors < 1e-12 && of_gradients < 1e-6;
}

}  // namespace

int main() {
  model m;
  doubles weight(m.input.size());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    m.input[i] = std::sin(0.1 * i) + 0.3 * std::cos(1.7 * i);
    weight[i] = std::cos(0.3 * i);
  }
  for (std::size_t i = 0; i < m.level.size(); ++i) m.level[i] = 0.1 * i;
  bool right = check("sequential", scanrec::sequential{}, m, weight);
  right &= check("tiled", scanrec::tiled{}, m, weight);
  right &= check("tiled, split", scanrec::tiled{.threads = 3, .tile_steps = 32}, m, weight);
  right &= check("halves", mine::halves{}, m, weight);
  return right ? 0 : 1;
}
