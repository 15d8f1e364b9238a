// SPDX-License-Identifier: BSD-3-Clause
// Layers: gradients against central differences, streams of chunks and of single steps, memory.
#include <cmath>
#include <complex>
#include <random>
#include <string>
#include <vector>

#include <scanrec/layer/qrnn_layer.hpp>
#include <scanrec/layer/s5_layer.hpp>
#include <scanrec/recurrence/min_gru.hpp>
#include <scanrec/s5_init.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "reference.hpp"

namespace {

using namespace scanrec;
using matrix = qrnn_parameters<double>::matrix;

matrix random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  reference::generator bits{seed};
  matrix m(rows, columns);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = 2 * (bits() * 0x1p-32) - 1;
  return m;
}

/// Two layers of one type, inputs, and a weighted sum of the outputs.
template <class Cell>
struct stack {
  std::vector<qrnn_layer<double, Cell>> layers;
  matrix u, weight, y;
  std::int64_t batch;
  std::vector<qrnn_stream<double>> start;
  std::vector<qrnn_memory<double>> kept = std::vector<qrnn_memory<double>>(2);
  std::vector<matrix> between = std::vector<matrix>(2);

  stack(std::int64_t steps, std::int64_t of_batch, std::int64_t window, keep what)
      : batch(of_batch) {
    std::mt19937 engine(1);
    for (int i = 0; i < 2; ++i) {
      layers.emplace_back(qrnn_sizes{.inputs = 3, .channels = 3, .window = window}, what);
      layers.back().randomise(engine);
      layers.back().own.bias.setConstant(0.25);
      start.push_back(
          {random_matrix(batch, 3, 10 + i), random_matrix((window - 1) * batch, 3, 20 + i)});
    }
    u = random_matrix(steps * batch, 3, 1), weight = random_matrix(steps * batch, 3, 2);
  }
  double value() {
    auto carried = start;
    layers[0].forward(u, batch, carried[0], kept[0], between[0]);
    layers[1].forward(between[0], batch, carried[1], kept[1], y);
    return (y.array() * weight.array()).sum();
  }
  double difference(double& x) {
    return central_difference(x, [&] { return value(); });
  }
};

template <class Cell>
void check_gradients(std::int64_t steps, std::int64_t window, keep what) {
  stack<Cell> s(steps, 2, window, what);
  s.value();
  std::vector<qrnn_parameters<double>> g{s.layers[0].zeros(), s.layers[1].zeros()};
  matrix middle_grad, u_grad;
  s.layers[1].backward(s.between[0], 2, s.kept[1], s.weight, g[1], &middle_grad);
  s.layers[0].backward(s.u, 2, s.kept[0], middle_grad, g[0], &u_grad);
  const auto check = [&](const char* name, double got, double& x) {
    const double want = s.difference(x);
    INFO(name << ", " << steps << " steps, window " << window);
    CHECK(std::abs(got - want) <= 1e-8 * (1 + std::abs(want)));
  };
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<double> grads;
    g[i].for_each([&](std::span<double> numbers) {
      grads.insert(grads.end(), numbers.begin(), numbers.end());
    });
    std::size_t k = 0;
    s.layers[i].own.for_each([&](std::span<double> numbers) {
      for (double& x : numbers) check("weights", grads[k++], x);
    });
  }
  for (Eigen::Index i = 0; i < s.u.size(); ++i) check("u", u_grad.data()[i], s.u.data()[i]);
}

TEST_CASE("gradients of QRNN layers are central differences", "[sequential][gated]") {
  for (const std::int64_t window : {1, 2, 3}) {
    check_gradients<fo_pooling<>>(5, window, keep::states);
    check_gradients<ifo_pooling<>>(4, window, keep::checkpoints);
  }
  check_gradients<min_gru<>>(3, 2, keep::states);
  check_gradients<fo_pooling<>>(1, 3, keep::states);  // shorter than its window
}

TEST_CASE("a layer goes on where the chunk before ended", "[sequential][gated]") {
  stack<fo_pooling<>> s(300, 2, 3, keep::nothing);
  s.value();
  for (const std::int64_t chunk : {1, 2, 7, 130}) {
    auto carried = s.start;
    matrix between, y;
    for (std::int64_t first = 0; first < 300; first += chunk) {
      const std::int64_t steps = std::min<std::int64_t>(chunk, 300 - first);
      const auto part = s.u.middleRows(first * 2, steps * 2);
      if (steps == 1) {
        s.layers[0].step(part, carried[0], s.kept[0], between);
        s.layers[1].step(between, carried[1], s.kept[1], y);
      } else {
        s.layers[0].forward(part, 2, carried[0], s.kept[0], between);
        s.layers[1].forward(between, 2, carried[1], s.kept[1], y);
      }
      CHECK((y - s.y.middleRows(first * 2, steps * 2)).cwiseAbs().maxCoeff() <= 1e-13);
    }
  }
  // Empty streams begin with zeros.
  qrnn_stream<double> fresh;
  matrix y, z;
  s.layers[0].forward(s.u, 2, fresh, s.kept[0], y);
  qrnn_stream<double> zero{matrix::Zero(2, 3), matrix::Zero(4, 3)};
  s.layers[0].forward(s.u, 2, zero, s.kept[0], z);
  CHECK((y.array() == z.array()).all());
}

TEST_CASE("both memory policies of a layer give the same gradients", "[sequential][gated]") {
  matrix grads[2];
  for (const keep what : {keep::states, keep::checkpoints}) {
    stack<fo_pooling<>> s(400, 3, 2, what);
    s.value();
    auto g = s.layers[1].zeros();
    s.layers[1].backward(s.between[0], 3, s.kept[1], s.weight, g, &grads[what == keep::states]);
    CHECK((what == keep::states) == (s.kept[1].states.size() > 0));
    CHECK(s.kept[1].checkpoints.size() == (what == keep::states ? 0 : 3 * 3 * 3));
  }
  CHECK((grads[0] - grads[1]).cwiseAbs().maxCoeff() <= 1e-13);
}

// ---- S5 ----------------------------------------------------------------------------------------

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
    const auto check = [&](const char* name, double got, double& x) {
      constexpr double e = 1e-5;
      const double was = x;
      x = was + e;
      const double above = value();
      x = was - e;
      const double below = value();
      x = was;
      const double want = (above - below) / (2 * e);
      INFO(name << (both_ways ? ", both ways" : ", one way"));
      CHECK(std::abs(got - want) <= 1e-8 * (1 + std::abs(want)));
    };
    std::vector<double> grads;
    g.for_each([&](std::span<double> x) { grads.insert(grads.end(), x.begin(), x.end()); });
    std::size_t k = 0;
    layer.own.for_each([&](std::span<double> x) {
      for (double& v : x) check("weights", grads[k++], v);
    });
    for (Eigen::Index i = 0; i < u.size(); ++i) check("u", u_grad.data()[i], u.data()[i]);
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

// ---- arguments ---------------------------------------------------------------------------------

TEST_CASE("bad arguments of layers", "[sequential][gated]") {
  using layer_type = qrnn_layer<double>;
  CHECK_THROWS_AS(layer_type(qrnn_sizes{.inputs = 3, .channels = 0}), argument_error);
  const layer_type layer(qrnn_sizes{.inputs = 3, .channels = 2});
  qrnn_memory<double> memory;
  matrix y(1, 1);
  const auto refuses = [&](const std::string& argument, const matrix& u, std::int64_t batch,
                           qrnn_stream<double> s) {
    try {
      layer.forward(u, batch, s, memory, y);
      FAIL("no error");
    } catch (const argument_error& e) {
      CHECK(std::string(e.what()).find("'" + argument + "'") != std::string::npos);
    }
  };
  refuses("u", matrix::Zero(4, 2), 2, {});
  refuses("u", matrix::Zero(5, 3), 2, {});
  refuses("u", matrix::Zero(4, 3), 0, {});
  refuses("stream", matrix::Zero(4, 3), 2, {matrix::Zero(3, 2), {}});
  refuses("stream", matrix::Zero(4, 3), 2, {{}, matrix::Zero(1, 3)});
  CHECK(y.size() == 1);
  qrnn_stream<double> s;
  layer.forward(matrix::Zero(4, 3), 2, s, memory, y);
  auto g = layer.zeros();
  CHECK_THROWS_AS(layer.backward(matrix::Zero(6, 3), 2, memory, matrix::Zero(6, 2), g, nullptr),
                  argument_error);
  CHECK_THROWS_AS(layer.backward(matrix::Zero(4, 3), 2, memory, matrix::Zero(4, 3), g, nullptr),
                  argument_error);
  const layer_type forgetful(qrnn_sizes{.inputs = 3, .channels = 2}, keep::nothing);
  CHECK_THROWS_AS(forgetful.backward(matrix::Zero(4, 3), 2, memory, matrix::Zero(4, 2), g, nullptr),
                  argument_error);
}

}  // namespace
