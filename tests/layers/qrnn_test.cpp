// SPDX-License-Identifier: BSD-3-Clause
// Tests of QRNN layers and of the example language model made of them: gradients, streams of chunks
// and of single steps, aliasing, memory policies, invalid arguments and model files.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/layers/qrnn.hpp>

#include "../examples/model_file.hpp"
#include "../examples/text_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"
#include "random_matrix.hpp"
#include "refused.hpp"
#include "text_model_gradients.hpp"

namespace {

using namespace scanrec;

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
      layers.back().weights.bias.setConstant(0.25);
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
    s.layers[i].weights.for_each([&](std::span<double> numbers) {
      for (double& x : numbers) check("weights", grads[k++], x);
    });
  }
  for (Eigen::Index i = 0; i < s.u.size(); ++i) check("u", u_grad.data()[i], s.u.data()[i]);
}

TEST_CASE("gradients of QRNN layers equal central differences", "[sequential][gated]") {
  for (const std::int64_t window : {1, 2, 3}) {
    check_gradients<fo_pooling<>>(5, window, keep::states);
    check_gradients<min_gru<>>(4, window, keep::checkpoints);
  }
  check_gradients<fo_pooling<>>(1, 3, keep::states);  // shorter than its window
}

TEST_CASE("a QRNN layer continues from the previous chunk", "[sequential][gated]") {
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
  // An empty stream starts from zeros.
  qrnn_stream<double> fresh;
  matrix y, z;
  s.layers[0].forward(s.u, 2, fresh, s.kept[0], y);
  qrnn_stream<double> zero{matrix::Zero(2, 3), matrix::Zero(4, 3)};
  s.layers[0].forward(s.u, 2, zero, s.kept[0], z);
  CHECK((y.array() == z.array()).all());
}

TEST_CASE("both memory policies of a QRNN layer give the same gradients", "[sequential][gated]") {
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

// ---- aliasing ----------------------------------------------------------------------------------

TEST_CASE("outputs of a QRNN layer may overwrite its inputs", "[sequential][gated]") {
  for (const std::int64_t channels : {3, 2, 5})
    for (const std::int64_t window : {1, 2, 4})
      for (const std::int64_t steps : {1, 2, 6}) {
        qrnn_layer<double> layer({.inputs = 3, .channels = channels, .window = window});
        std::mt19937 engine(1);
        layer.randomise(engine);
        qrnn_stream<double> apart, together;
        qrnn_memory<double> memory, memory_together;
        INFO(channels << " channels, window " << window << ", " << steps << " steps");
        for (unsigned chunk = 0; chunk < 3; ++chunk) {
          const matrix u = random_matrix(steps * 2, 3, chunk);
          matrix y, h = u;
          layer.forward(u, 2, apart, memory, y);
          layer.forward(h, 2, together, memory_together, h);
          CHECK(agree(h, y));
          CHECK(together.past == apart.past);
          CHECK(agree(together.state, apart.state));
        }
      }
}

TEST_CASE("input gradients of a QRNN layer may overwrite inputs or output gradients",
          "[sequential][gated]") {
  qrnn_layer<double> layer({.inputs = 3, .channels = 3, .window = 3});
  std::mt19937 engine(1);
  layer.randomise(engine);
  const matrix u = random_matrix(8, 3, 1), weight = random_matrix(8, 3, 2);
  const auto run = [&](matrix& inputs, matrix& y_grad, matrix& u_grad) {
    qrnn_stream<double> s;
    qrnn_memory<double> memory;
    matrix y;
    auto g = layer.zeros();
    layer.forward(inputs, 2, s, memory, y);
    layer.backward(inputs, 2, memory, y_grad, g, &u_grad);
    std::vector<double> all;
    g.for_each([&](std::span<double> x) { all.insert(all.end(), x.begin(), x.end()); });
    all.insert(all.end(), u_grad.data(), u_grad.data() + u_grad.size());
    return matrix(Eigen::Map<matrix>(all.data(), 1, static_cast<Eigen::Index>(all.size())));
  };
  matrix u0 = u, grad0 = weight, u_grad, u1 = u, grad1 = weight, u2 = u, grad2 = weight;
  const auto apart = run(u0, grad0, u_grad);
  CHECK(agree(run(u1, grad1, u1), apart));
  CHECK(agree(run(u2, grad2, grad2), apart));
}

TEST_CASE("a QRNN layer rejects aliasing that is not supported", "[sequential][gated]") {
  const qrnn_layer<double> layer({.inputs = 2, .channels = 2, .window = 2});
  qrnn_stream<double> s;
  qrnn_memory<double> memory;
  matrix u = random_matrix(4, 2, 1), y;
  layer.forward(u, 2, s, memory, y);
  const auto refuses = [](const std::string& argument, const auto& call) {
    CHECK(tested::refused(call) == argument);
  };
  refuses("u", [&] { layer.forward(memory.states, 2, s, memory, y); });
  refuses("u", [&] { layer.forward(s.state, 2, s, memory, y); });
  refuses("y", [&] { layer.forward(u, 2, s, memory, memory.states); });
  refuses("y", [&] { layer.forward(u, 2, s, memory, s.past); });
  refuses("stream", [&] { layer.forward(u, 2, memory.start, memory, y); });
  refuses("batch", [&] { layer.forward(matrix::Zero(0, 2), 0, s, memory, y); });
  auto g = layer.zeros();
  refuses("u", [&] { layer.backward(memory.states, 2, memory, y, g, nullptr); });
  refuses("y_grad", [&] { layer.backward(u, 2, memory, memory.states, g, nullptr); });
  refuses("u_grad", [&] { layer.backward(u, 2, memory, y, g, &memory.pre); });
  auto changing = layer;
  refuses("gradients", [&] { changing.backward(u, 2, memory, y, changing.weights, nullptr); });
  refuses("y", [&] { changing.forward(u, 2, s, memory, changing.weights.taps[1]); });
  refuses("u_grad", [&] { changing.backward(u, 2, memory, y, g, &changing.weights.taps[0]); });
  refuses("u_grad", [&] { layer.backward(u, 2, memory, y, g, &g.taps[1]); });
  // Part of the gradients, with the shape of one step's inputs and outputs.
  const auto part = g.taps[0].leftCols(2);
  layer.forward(u.topRows(2), 2, s, memory, y);
  refuses("u", [&] { layer.backward(part, 2, memory, y, g, nullptr); });
  refuses("y_grad", [&] { layer.backward(u.topRows(2), 2, memory, part, g, nullptr); });
  decltype(g) empty;
  refuses("gradients", [&] { layer.backward(u.topRows(2), 2, memory, y, empty, nullptr); });
}

TEST_CASE("a call of a QRNN layer with 0 steps changes neither stream nor gradients",
          "[sequential][gated]") {
  for (const std::int64_t window : {1, 3})
    for (const keep what : {keep::nothing, keep::states, keep::checkpoints})
      for (const bool begun : {false, true}) {
        qrnn_layer<double> layer({.inputs = 3, .channels = 2, .window = window}, what);
        std::mt19937 engine(1);
        layer.randomise(engine);
        qrnn_stream<double> carried, before{matrix::Zero(2, 2), matrix::Zero((window - 1) * 2, 3)};
        if (begun)
          before = carried = {random_matrix(2, 2, 3), random_matrix((window - 1) * 2, 3, 4)};
        qrnn_memory<double> memory;
        const matrix u(0, 3), y_grad(0, 2);
        matrix y(4, 4), u_grad(4, 4);
        INFO("window " << window << ", keep " << static_cast<int>(what) << ", begun " << begun);
        layer.forward(u, 2, carried, memory, y);
        CHECK((y.rows() == 0 && y.cols() == 2));
        CHECK(carried.state == before.state);
        CHECK(carried.past == before.past);
        if (what == keep::nothing) continue;
        auto g = layer.zeros();
        g.for_each([](std::span<double> numbers) { std::fill(numbers.begin(), numbers.end(), 7); });
        layer.backward(u, 2, memory, y_grad, g, &u_grad);
        CHECK((u_grad.rows() == 0 && u_grad.cols() == 3));
        g.for_each([](std::span<double> numbers) {
          CHECK(std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 7; }));
        });
      }
}

// ---- arguments ---------------------------------------------------------------------------------

TEST_CASE("QRNN layers reject invalid arguments", "[sequential][gated]") {
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
  refuses("batch", matrix::Zero(4, 3), 0, {});
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

// ---- the language model ------------------------------------------------------------------------

template <keep Keep>
void check_model(std::int64_t steps) {
  text_model<double> model(
      {.characters = 4, .embedding = 3, .channels = 3, .layers = 2, .window = 2}, Keep);
  check_text_gradients(model, steps);
}

TEST_CASE("gradients of a language model equal central differences", "[tiled][gated]") {
  check_model<keep::states>(7);
  check_model<keep::checkpoints>(5);
}

TEST_CASE("missing and damaged model files are rejected", "[tiled][gated]") {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / "scanrec_text_model_test.bin";
  text_model<float> model(
      {.characters = 3, .embedding = 2, .channels = 4, .layers = 2, .window = 3}, keep::states);
  std::mt19937 random(1);
  model.randomise(random);
  save_model(path, "abc", model);
  auto [alphabet, again] = load_model(path, keep::states);
  CHECK(alphabet == "abc");
  std::vector<float> x, y;
  model.for_each([&](std::span<float> v) { x.insert(x.end(), v.begin(), v.end()); });
  again.for_each([&](std::span<float> v) { y.insert(y.end(), v.begin(), v.end()); });
  CHECK((x == y));

  const auto size = fs::file_size(path);
  const auto refused = [&](const std::string& why) {
    try {
      load_model(path, keep::states);
      FAIL("not refused: " << why);
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()).find(why) != std::string::npos);
    }
  };
  fs::resize_file(path, size - 1);
  refused("bytes, and should have " + std::to_string(size));
  fs::resize_file(path, 40);
  refused("not a text model");
  std::ofstream(path) << "a shopping list that is longer than any header of a model file would be, "
                         "so that all of it can be read";
  refused("not a text model");
  save_model(path, "abc", model);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(16);
    const std::int64_t absurd = std::int64_t{1} << 60;
    file.write(reinterpret_cast<const char*>(&absurd), sizeof absurd);
  }
  refused("damaged header");
  fs::remove(path);
  refused("cannot be read");
}

}  // namespace
