// SPDX-License-Identifier: BSD-3-Clause
// Central differences of a loss, and a check of gradients against them.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "catch.hpp"

/// Returns (loss(x + h) - loss(x - h)) / 2h and restores x. The error is about 1e-9 for losses of
/// order 1.
template <class Loss>
double central_difference(double& x, Loss loss) {
  constexpr double h = 1e-5;
  const double was = x;
  x = was + h;
  const double above = loss();
  x = was - h;
  const double below = loss();
  x = was;
  return (above - below) / (2 * h);
}

/// Compares the gradients of all parameters of a model or a layer with central differences. Both
/// `model` and `g` have for_each(f), which calls f(span of numbers) for their arrays in the same
/// order.
template <class Model, class Gradients, class Loss>
void check_all_gradients(Model& model, Gradients& g, Loss loss) {
  std::vector<double> gradients;
  g.for_each([&](std::span<double> x) { gradients.insert(gradients.end(), x.begin(), x.end()); });
  std::size_t k = 0;
  model.for_each([&](std::span<double> numbers) {
    for (double& x : numbers) {
      const double want = central_difference(x, loss);
      INFO("parameter " << k << " of " << gradients.size());
      CHECK(std::abs(gradients.at(k++) - want) <= 1e-9 * (1 + std::abs(want)));
    }
  });
  CHECK(k == gradients.size());
}
