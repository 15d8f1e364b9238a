// SPDX-License-Identifier: BSD-3-Clause
// S5 layers, and the classifier of the examples that is made of them: gradients against central
// differences, streams of single steps.
#include <cmath>
#include <complex>
#include <random>
#include <vector>

#include <Eigen/Core>

#include <scanrec/layers/s5.hpp>
#include <scanrec/s5_init.hpp>

#include "../examples/digits_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"
#include "random_matrix.hpp"

namespace {

using namespace scanrec;

TEST_CASE("gradients of S5 layers are central differences", "[sequential][tiled]") {
  std::mt19937 engine(4);
  for (const bool both_ways : {false, true}) {
    s5_layer<double> layer(make_s5<double>({.channels = 3,
                                            .states = 4,
                                            .bidirectional = both_ways,
                                            .least_step = 0.1,
                                            .most_step = 0.5},
                                           engine));
    layer.randomise(engine);
    layer.own.scale << 0.5, 1.5, -1;
    layer.own.shift << 0.25, 0, -0.5;
    matrix u = random_matrix(10, 3, 1), y, u_grad;
    const matrix weight = random_matrix(10, 3, 2);
    s5_memory<double> memory;
    const std::vector<std::complex<double>> start{{0.5, -0.25}, {1, 0}, {0, 1}, {-0.5, 0.75}};
    const auto value = [&] {
      auto carried = start;
      layer.forward(u, 2, memory, y, both_ways ? nullptr : &carried);
      return (y.array() * weight.array()).sum();
    };
    value();
    auto g = layer.zeros();
    layer.backward(2, memory, weight, g, u_grad);
    INFO((both_ways ? "both ways" : "one way"));
    check_all_gradients(layer.own, g, value);
    for (Eigen::Index i = 0; i < u.size(); ++i) {
      const double want = central_difference(u.data()[i], value);
      CHECK(std::abs(u_grad.data()[i] - want) <= 1e-8 * (1 + std::abs(want)));
    }
  }
}

TEST_CASE("a stream through an S5 layer gives the outputs of the whole", "[sequential][tiled]") {
  std::mt19937 engine(4);
  s5_layer<double> layer(make_s5<double>({.channels = 3, .states = 8}, engine));
  layer.randomise(engine);
  const matrix u = random_matrix(40, 3, 1);
  matrix whole, y;
  s5_memory<double> memory;
  layer.forward(u, 1, memory, whole);
  s5_layer<double>::stream carried;
  for (int t = 0; t < 40; ++t) {
    layer.step(u.row(t), carried, memory, y);
    CHECK((y - whole.row(t)).cwiseAbs().maxCoeff() <= 1e-13);
  }
  carried.resize(3);
  CHECK_THROWS_AS(layer.step(u.row(0), carried, memory, y), argument_error);
  CHECK_THROWS_AS(layer.forward(u, 7, memory, y), argument_error);
  auto g = layer.zeros();
  CHECK_THROWS_AS(layer.backward(1, memory, u, g, y), argument_error);
}

// ---- the classifier
// ------------------------------------------------------------------------------

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
