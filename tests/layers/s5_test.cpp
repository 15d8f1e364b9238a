// SPDX-License-Identifier: BSD-3-Clause
// Tests of S5 layers and of the example classifier made of them: gradients, streams of single
// steps, aliasing and empty calls.
#include <algorithm>
#include <cmath>
#include <complex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include <scanrec/layers/s5.hpp>
#include <scanrec/s5_init.hpp>

#include "../examples/digits_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"
#include "random_matrix.hpp"
#include "refused.hpp"

namespace {

using namespace scanrec;
using tested::refused;

TEST_CASE("gradients of S5 layers equal central differences", "[sequential][tiled]") {
  std::mt19937 engine(4);
  for (const bool both_ways : {false, true}) {
    s5_layer<double> layer(make_s5<double>({.channels = 3,
                                            .states = 4,
                                            .bidirectional = both_ways,
                                            .least_step = 0.1,
                                            .most_step = 0.5},
                                           engine));
    layer.randomise(engine);
    layer.weights.scale << 0.5, 1.5, -1;
    layer.weights.shift << 0.25, 0, -0.5;
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
    check_all_gradients(layer.weights, g, value);
    for (Eigen::Index i = 0; i < u.size(); ++i) {
      const double want = central_difference(u.data()[i], value);
      CHECK(std::abs(u_grad.data()[i] - want) <= 1e-8 * (1 + std::abs(want)));
    }
  }
}

TEST_CASE("a stream of steps through an S5 layer gives the outputs of the whole sequence",
          "[sequential][tiled]") {
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

TEST_CASE("outputs of an S5 layer may overwrite its inputs, and so may gradients",
          "[sequential][tiled]") {
  std::mt19937 engine(4);
  s5_layer<double> layer(make_s5<double>({.channels = 3, .states = 8}, engine));
  layer.randomise(engine);
  s5_layer<double>::stream apart, together;
  s5_memory<double> memory, memory_together;
  for (unsigned chunk = 0; chunk < 3; ++chunk) {
    const matrix u = random_matrix(8, 3, chunk), weight = random_matrix(8, 3, 9);
    matrix y, u_grad, h = u, h_grad = weight;
    layer.forward(u, 2, memory, y, &apart);
    layer.forward(h, 2, memory_together, h, &together);
    CHECK(agree(h, y));
    REQUIRE(together.size() == apart.size());
    using row = Eigen::Map<const Eigen::RowVectorXcd>;
    const auto states = static_cast<Eigen::Index>(apart.size());
    CHECK(agree(row(together.data(), states), row(apart.data(), states)));
    auto g = layer.zeros(), again = layer.zeros();
    layer.backward(2, memory, weight, g, u_grad);
    layer.backward(2, memory_together, h_grad, again, h_grad);
    CHECK(agree(h_grad, u_grad));
    CHECK(agree(again.gate, g.gate));
  }
}

TEST_CASE("an S5 layer rejects aliasing that is not supported", "[sequential][tiled]") {
  std::mt19937 engine(4);
  s5_layer<double> layer(make_s5<double>({.channels = 3, .states = 8}, engine));
  s5_layer<double>::stream carried;
  s5_memory<double> memory;
  matrix u = random_matrix(8, 3, 1), y;
  layer.forward(u, 2, memory, y, &carried);
  auto g = layer.zeros();
  CHECK_THROWS_AS(layer.forward(memory.active, 2, memory, y), argument_error);
  CHECK_THROWS_AS(layer.forward(u, 2, memory, memory.open), argument_error);
  CHECK_THROWS_AS(layer.forward(u, 2, memory, y, &memory.start), argument_error);
  CHECK_THROWS_AS(layer.forward(matrix::Zero(0, 3), 0, memory, y), argument_error);
  CHECK_THROWS_AS(layer.backward(2, memory, y, layer.weights, u), argument_error);
  CHECK_THROWS_AS(layer.backward(2, memory, y, g, memory.normal), argument_error);
  CHECK(refused([&] { layer.forward(u, 2, memory, layer.weights.gate); }) == "y");
  CHECK(refused([&] { layer.backward(2, memory, y, g, layer.weights.gate); }) == "u_grad");
  CHECK(refused([&] { layer.backward(2, memory, y, g, g.gate); }) == "u_grad");
  // Three rows of three channels, the shape of the gate.
  layer.forward(random_matrix(3, 3, 1), 1, memory, y);
  CHECK(refused([&] { layer.backward(1, memory, g.gate, g, u); }) == "y_grad");
  decltype(g) empty;
  CHECK(refused([&] { layer.backward(1, memory, y, empty, u); }) == "gradients");
}

TEST_CASE("a bidirectional S5 layer refuses a stream and changes nothing", "[arguments]") {
  std::mt19937 engine(4);
  const s5_layer<double> layer(
      make_s5<double>({.channels = 3, .states = 4, .bidirectional = true}, engine));
  s5_layer<double>::stream carried;
  s5_memory<double> memory;
  matrix y;
  CHECK(refused([&] { layer.forward(matrix::Zero(4, 3), 2, memory, y, &carried); }) == "carried");
  CHECK((carried.empty() && memory.start.empty() && memory.normal.size() == 0 && y.size() == 0));
}

TEST_CASE("a call of an S5 layer with 0 steps changes neither states nor gradients",
          "[sequential][tiled]") {
  std::mt19937 engine(4);
  for (const bool both_ways : {false, true})
    for (const int stream : {0, 1, 2}) {  // none, a new stream, a stream that has begun
      if (both_ways && stream > 0) continue;
      s5_layer<double> layer(
          make_s5<double>({.channels = 3, .states = 4, .bidirectional = both_ways}, engine));
      layer.randomise(engine);
      const auto states = static_cast<std::size_t>(2 * layer.weights.system.lambda.size());
      s5_layer<double>::stream carried, before(states);
      if (stream == 2) carried = before = s5_layer<double>::stream(states, {0.5, -0.25});
      s5_memory<double> memory;
      const matrix empty(0, 3);
      matrix y(4, 4), u_grad(4, 4);
      INFO((both_ways ? "both ways" : "one way") << ", stream " << stream);
      layer.forward(empty, 2, memory, y, stream == 0 ? nullptr : &carried);
      CHECK((y.rows() == 0 && y.cols() == 3));
      if (stream > 0) CHECK((carried == before));
      auto g = layer.zeros();
      g.for_each([](std::span<double> numbers) { std::fill(numbers.begin(), numbers.end(), 7); });
      layer.backward(2, memory, empty, g, u_grad);
      CHECK((u_grad.rows() == 0 && u_grad.cols() == 3));
      g.for_each([](std::span<double> numbers) {
        CHECK(std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 7; }));
      });
    }
}

// ---- the classifier ----------------------------------------------------------------------------

TEST_CASE("gradients of a classifier equal central differences", "[tiled]") {
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
