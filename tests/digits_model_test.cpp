// SPDX-License-Identifier: BSD-3-Clause
// The classifier of the examples: gradients of the whole model against central differences.
#include <cmath>
#include <random>
#include <vector>

#include <Eigen/Core>

#include "../examples/digits_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"

namespace {

TEST_CASE("gradients of a classifier are central differences", "[tiled]") {
  std::mt19937 random(1);
  for (const bool both_ways : {false, true}) {
    digits_model<double> model({.channels = 3,
                                .states = 4,
                                .layers = 2,
                                .classes = 3,
                                .bidirectional = both_ways,
                                .least_step = 0.1},
                               random);
    std::vector<double> numbers(12);
    for (double& x : numbers) x = std::normal_distribution<double>()(random);
    const std::vector<int> classes{2, 0};
    const auto loss = [&] {
      model.forward(numbers, 2);
      return model.loss(classes);
    };
    loss();
    auto g = model.zeros();
    model.backward(classes, g);
    check_all_gradients(model, g, loss);
  }
}

}  // namespace
