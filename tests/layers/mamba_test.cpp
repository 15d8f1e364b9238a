// SPDX-License-Identifier: BSD-3-Clause
// Tests of Mamba layers and of the example language model made of them: values, gradients, streams
// of chunks and of single steps, resets, aliasing, invalid arguments and model files.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include <scanrec/layers/mamba.hpp>

#include "../examples/model_file.hpp"
#include "../examples/text_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"
#include "random_matrix.hpp"
#include "refused.hpp"
#include "text_model_gradients.hpp"

namespace {

using namespace scanrec;
using tested::refused;
using layer_type = mamba_layer<double>;

/// A layer of odd sizes, inputs of two sequences, a stream that has begun, optional resets, and a
/// loss: a weighted sum of the outputs.
struct example {
  static constexpr std::int64_t batch = 2;
  layer_type layer;
  matrix x, weight, y;
  mamba_stream<double> start, carried;
  mamba_memory<double> memory;
  std::unique_ptr<bool[]> reset_mask;
  sequence_view<const bool> resets;

  explicit example(std::int64_t steps, std::int64_t window = 4, bool mask_steps = false,
                   mamba_sizes sizes = {.channels = 3, .expand = 2, .states = 2, .rank = 2})
      : layer((sizes.window = window, sizes)) {
    std::mt19937 engine(1);
    layer.randomise(engine);
    const std::int64_t D = sizes.inner();
    x = random_matrix(steps * batch, sizes.channels, 1);
    weight = random_matrix(steps * batch, sizes.channels, 2);
    // Step sizes large enough for every parameter to matter.
    layer.weights.delta_bias = random_matrix(1, D, 3).row(0);
    layer.weights.d = random_matrix(1, D, 4).row(0);
    start = {random_matrix(batch, D * sizes.states, 5), random_matrix((window - 1) * batch, D, 6)};
    if (mask_steps) {
      reset_mask = std::make_unique<bool[]>(static_cast<std::size_t>(steps * batch));
      for (std::int64_t t = 0; t < steps; ++t)
        for (std::int64_t b = 0; b < batch; ++b)
          reset_mask[static_cast<std::size_t>(b * steps + t)] = (t + 2 * b) % 5 == 3 || t + b == 5;
      resets = {reset_mask.get(), {.batch = batch, .time = steps}};
    }
  }
  double value() {
    carried = start;
    layer.forward(x, batch, carried, memory, y, resets);
    return (y.array() * weight.array()).sum();
  }
};

// ---- values ------------------------------------------------------------------------------------

/// Computes the outputs from the formulas, one number at a time.
matrix outputs_of(const example& e) {
  const mamba_sizes& s = e.layer.sizes();
  const auto& p = e.layer.weights;
  const std::int64_t B = example::batch, T = e.x.rows() / B, D = s.inner(), N = s.states;
  const std::int64_t K = s.delta_rank(), w = s.window;
  const matrix wide = e.x * p.input;
  matrix y = matrix::Zero(e.x.rows(), s.channels);
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  for (std::int64_t b = 0; b < B; ++b) {
    matrix state = e.start.state.row(b);
    std::int64_t begin = -w;  // the convolution reads no steps before it
    for (std::int64_t t = 0; t < T; ++t) {
      if (!e.resets.absent() && e.resets.at(b, t, 0)) begin = t, state.setZero();
      matrix v(1, D), out(1, D);
      for (std::int64_t d = 0; d < D; ++d) {
        double sum = p.taps_bias[d];
        for (std::int64_t k = 0; k < w && t - k >= begin; ++k)
          sum += p.taps(k, d) *
                 (t >= k ? wide((t - k) * B + b, d) : e.start.past((w - 1 + t - k) * B + b, d));
        v(0, d) = silu(sum);
      }
      const matrix low = v * p.projection, delta = low.leftCols(K) * p.delta;
      for (std::int64_t d = 0; d < D; ++d) {
        const double step = std::log1p(std::exp(delta(0, d) + p.delta_bias[d]));
        double sum = p.d[d] * v(0, d);
        for (std::int64_t n = 0; n < N; ++n) {
          double& h = state(0, d * N + n);
          h = std::exp(-step * std::exp(p.log_decay(d, n))) * h + step * low(0, K + n) * v(0, d);
          sum += low(0, K + N + n) * h;
        }
        out(0, d) = sum * silu(wide(t * B + b, D + d));
      }
      y.row(t * B + b) = out * p.output;
    }
  }
  return y;
}

TEST_CASE("outputs of a Mamba layer equal its formulas", "[selective]") {
  for (const bool mask_steps : {false, true})
    for (const std::int64_t window : {1, 4})
      for (const std::int64_t steps : {1, 2, 40}) {
        example e(steps, window, mask_steps);
        e.value();
        INFO(steps << " steps, window " << window << (mask_steps ? ", resets" : ""));
        CHECK((e.y - outputs_of(e)).cwiseAbs().maxCoeff() <= 1e-13);
      }
  // Whole packs of channels and a tail.
  example wide(9, 4, true, {.channels = 19, .expand = 2, .states = 3});
  wide.value();
  CHECK(wide.layer.sizes().delta_rank() == 2);
  CHECK((wide.y - outputs_of(wide)).cwiseAbs().maxCoeff() <= 1e-12);
}

TEST_CASE("initial weights of a Mamba layer follow the paper", "[selective]") {
  mamba_layer<float> layer({.channels = 32, .states = 5});
  std::mt19937 engine(1);
  layer.randomise(engine);
  float least = 1, most = 0;
  for (Eigen::Index d = 0; d < 64; ++d) {
    const float step = std::log1p(std::exp(layer.weights.delta_bias[d]));
    least = std::min(least, step), most = std::max(most, step);
    for (Eigen::Index n = 0; n < 5; ++n)
      CHECK(std::abs(std::exp(layer.weights.log_decay(d, n)) - static_cast<float>(n + 1)) < 1e-5f);
  }
  CHECK((least > 0.999e-3f && least < 2e-3f && most < 1.001e-1f && most > 5e-2f));
  CHECK((layer.weights.d.array() == 1).all());
}

// ---- gradients ---------------------------------------------------------------------------------

void check_gradients(example e) {
  e.value();
  auto g = e.layer.zeros();
  matrix x_grad;
  e.layer.backward(e.x, example::batch, e.memory, e.weight, g, &x_grad, e.resets);
  const auto value = [&] { return e.value(); };
  check_all_gradients(e.layer.weights, g, value);
  for (Eigen::Index i = 0; i < e.x.size(); ++i) {
    const double want = central_difference(e.x.data()[i], value);
    INFO("input " << i);
    CHECK(std::abs(x_grad.data()[i] - want) <= 1e-9 * (1 + std::abs(want)));
  }
}

TEST_CASE("gradients of Mamba layers equal central differences", "[selective]") {
  check_gradients(example(9));
  check_gradients(example(9, 4, true));
  check_gradients(example(2));  // shorter than its window
  check_gradients(example(3, 1));
  check_gradients(example(130));  // with a checkpoint
  // Gradients accumulate.
  example e(5);
  e.value();
  auto once = e.layer.zeros(), twice = e.layer.zeros();
  e.layer.backward(e.x, 2, e.memory, e.weight, once, nullptr);
  for (int i = 0; i < 2; ++i) {
    e.value();
    e.layer.backward(e.x, 2, e.memory, e.weight, twice, nullptr);
  }
  std::vector<double> sums;
  once.for_each([&](std::span<double> v) { sums.insert(sums.end(), v.begin(), v.end()); });
  std::size_t i = 0;
  twice.for_each([&](std::span<double> v) {
    for (const double x : v) CHECK(std::abs(x - 2 * sums[i++]) <= 1e-13);
  });
}

// ---- streams -----------------------------------------------------------------------------------

TEST_CASE("a Mamba layer continues from the previous chunk", "[selective]") {
  for (const bool mask_steps : {false, true}) {
    example e(300, 4, mask_steps);
    e.value();
    for (const std::int64_t chunk : {1, 2, 7, 130}) {
      auto carried = e.start;
      matrix y;
      for (std::int64_t first = 0; first < 300; first += chunk) {
        const std::int64_t steps = std::min<std::int64_t>(chunk, 300 - first);
        const auto part = e.x.middleRows(first * 2, steps * 2);
        if (mask_steps)
          e.layer.forward(part, 2, carried, e.memory, y, e.resets.steps(first, first + steps));
        else if (steps == 1)
          e.layer.step(part, carried, e.memory, y);
        else
          e.layer.forward(part, 2, carried, e.memory, y);
        CHECK((y - e.y.middleRows(first * 2, steps * 2)).cwiseAbs().maxCoeff() <= 1e-13);
      }
      CHECK((carried.state - e.carried.state).cwiseAbs().maxCoeff() <= 1e-13);
      CHECK((carried.past - e.carried.past).cwiseAbs().maxCoeff() <= 1e-13);
    }
  }
  // An empty stream starts from zeros.
  example e(6);
  e.start = {};
  e.value();
  const matrix y = e.y;
  e.start = {matrix::Zero(2, 12), matrix::Zero(6, 6)};
  e.value();
  CHECK((y.array() == e.y.array()).all());
}

TEST_CASE("a reset of a Mamba layer equals a new stream", "[selective]") {
  example e(20, 4, true);
  std::fill_n(e.reset_mask.get(), 40, false);
  e.reset_mask[10] = e.reset_mask[20 + 10] = true;
  e.value();
  mamba_stream<double> fresh;
  matrix y;
  e.layer.forward(e.x.bottomRows(20), 2, fresh, e.memory, y);
  CHECK((y - e.y.bottomRows(20)).cwiseAbs().maxCoeff() <= 1e-13);
  CHECK((fresh.past - e.carried.past).cwiseAbs().maxCoeff() <= 1e-13);
}

// ---- arguments ---------------------------------------------------------------------------------

TEST_CASE("outputs of a Mamba layer may overwrite its inputs, and so may gradients",
          "[selective]") {
  layer_type layer({.channels = 3, .states = 2, .window = 3});
  std::mt19937 engine(1);
  layer.randomise(engine);
  for (const std::int64_t steps : {1, 2, 6}) {
    mamba_stream<double> apart, together;
    mamba_memory<double> memory, memory_together;
    INFO(steps << " steps");
    for (unsigned chunk = 0; chunk < 3; ++chunk) {
      const matrix x = random_matrix(steps * 2, 3, chunk), weight = random_matrix(steps * 2, 3, 9);
      matrix y, x_grad, h = x, h_grad = weight;
      layer.forward(x, 2, apart, memory, y);
      layer.forward(h, 2, together, memory_together, h);
      CHECK(agree(h, y));
      CHECK(agree(together.past, apart.past));
      CHECK(agree(together.state, apart.state));
      auto g = layer.zeros(), again = layer.zeros();
      h = x;
      auto of_weight = memory_together;  // backward() overwrites the original
      layer.backward(x, 2, memory, weight, g, &x_grad);
      layer.backward(h, 2, memory_together, weight, again, &h);
      CHECK(agree(h, x_grad));
      CHECK(agree(again.input, g.input));
      layer.backward(x, 2, of_weight, h_grad, again, &h_grad);
      CHECK(agree(h_grad, x_grad));
    }
  }
}

TEST_CASE("a Mamba layer rejects aliasing that is not supported", "[selective]") {
  layer_type layer({.channels = 3, .states = 2});
  mamba_stream<double> s;
  mamba_memory<double> memory;
  matrix x = random_matrix(4, 3, 1), y;
  layer.forward(x, 2, s, memory, y);
  auto g = layer.zeros();
  CHECK_THROWS_AS(layer.forward(x, 2, memory.start, memory, y), argument_error);
  CHECK_THROWS_AS(layer.forward(x, 2, s, memory, memory.out), argument_error);
  CHECK_THROWS_AS(layer.forward(x, 2, s, memory, s.past), argument_error);
  CHECK_THROWS_AS(layer.forward(memory.low.leftCols(3), 2, s, memory, y), argument_error);
  CHECK_THROWS_AS(layer.backward(x, 2, memory, memory.out.leftCols(3), g, nullptr), argument_error);
  CHECK_THROWS_AS(layer.backward(x, 2, memory, y, g, &memory.wide), argument_error);
  CHECK_THROWS_AS(layer.backward(x, 2, memory, y, layer.weights, nullptr), argument_error);
  CHECK(refused([&] { layer.forward(x, 2, s, memory, layer.weights.input); }) == "y");
  CHECK(refused([&] { layer.backward(x, 2, memory, y, g, &layer.weights.output); }) == "x_grad");
  CHECK(refused([&] { layer.backward(x, 2, memory, y, g, &g.projection); }) == "x_grad");
  const auto part = g.output.topRows(4);  // has as many columns as y
  CHECK(refused([&] { layer.backward(part, 2, memory, y, g, nullptr); }) == "x");
  CHECK(refused([&] { layer.backward(x, 2, memory, part, g, nullptr); }) == "y_grad");
  decltype(g) empty;
  CHECK(refused([&] { layer.backward(x, 2, memory, y, empty, nullptr); }) == "gradients");
  auto others = layer_type({.channels = 3, .states = 3}).zeros();
  CHECK(refused([&] { layer.backward(x, 2, memory, y, others, nullptr); }) == "gradients");
}

TEST_CASE("a call of a Mamba layer with 0 steps changes neither stream nor gradients",
          "[selective]") {
  for (const std::int64_t window : {1, 4})
    for (const bool begun : {false, true})
      for (const int reset_steps : {-1, 0}) {  // no reset mask, or a mask of 0 steps
        example e(0, window);
        mamba_stream<double> carried,
            before{matrix::Zero(2, 12), matrix::Zero((window - 1) * 2, 6)};
        if (begun) before = carried = e.start;
        const bool mark = false;
        sequence_view<const bool> resets;
        if (reset_steps == 0) resets = {&mark, {.batch = 2, .time = 0}};
        matrix x_grad(4, 4);
        e.y = matrix::Zero(4, 4);
        INFO("window " << window << ", begun " << begun << ", resets of " << reset_steps);
        e.layer.forward(e.x, 2, carried, e.memory, e.y, resets);
        CHECK((e.y.rows() == 0 && e.y.cols() == 3));
        CHECK(carried.state == before.state);
        CHECK(carried.past == before.past);
        auto g = e.layer.zeros();
        g.for_each([](std::span<double> numbers) { std::fill(numbers.begin(), numbers.end(), 7); });
        e.layer.backward(e.x, 2, e.memory, e.weight, g, &x_grad, resets);
        CHECK((x_grad.rows() == 0 && x_grad.cols() == 3));
        g.for_each([](std::span<double> numbers) {
          CHECK(std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 7; }));
        });
      }
}

TEST_CASE("Mamba layers reject invalid arguments", "[selective]") {
  CHECK_THROWS_AS(layer_type({.channels = 0}), argument_error);
  CHECK_THROWS_AS(layer_type({.channels = 3, .window = 0}), argument_error);
  CHECK_THROWS_AS(layer_type({.channels = 3, .rank = -1}), argument_error);
  const layer_type layer({.channels = 3, .states = 2});
  mamba_memory<double> memory;
  matrix y(1, 1);
  const bool reset_mask[4] = {};
  const auto refuses = [&](const std::string& argument, const matrix& x, std::int64_t batch,
                           mamba_stream<double> s, const sequence_view<const bool>& resets = {}) {
    try {
      layer.forward(x, batch, s, memory, y, resets);
      FAIL("no error");
    } catch (const argument_error& e) {
      CHECK(std::string(e.what()).find("'" + argument + "'") != std::string::npos);
    }
  };
  refuses("x", matrix::Zero(4, 2), 2, {});
  refuses("x", matrix::Zero(5, 3), 2, {});
  refuses("batch", matrix::Zero(4, 3), 0, {});
  refuses("stream", matrix::Zero(4, 3), 2, {matrix::Zero(3, 12), {}});
  refuses("stream", matrix::Zero(4, 3), 2, {{}, matrix::Zero(2, 6)});
  refuses("resets", matrix::Zero(4, 3), 2, {}, {reset_mask, {.batch = 1, .time = 4}});
  CHECK(y.size() == 1);
  mamba_stream<double> s;
  layer.forward(matrix::Zero(4, 3), 2, s, memory, y);
  auto g = layer.zeros();
  CHECK_THROWS_AS(layer.backward(matrix::Zero(6, 3), 2, memory, matrix::Zero(6, 3), g, nullptr),
                  argument_error);
  CHECK_THROWS_AS(layer.backward(matrix::Zero(4, 3), 2, memory, matrix::Zero(4, 2), g, nullptr),
                  argument_error);
}

// ---- the language model ------------------------------------------------------------------------

TEST_CASE("gradients of a model of Mamba blocks equal central differences", "[selective]") {
  text_model<double, mamba_block<double>> model(
      {.characters = 4, .embedding = 3, .channels = 3, .layers = 2, .window = 3}, keep::states);
  check_text_gradients(model, 7);
}

TEST_CASE("a model file with layers of another kind is rejected", "[selective]") {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / "scanrec_mamba_model_test.bin";
  using mamba_model = text_model<float, mamba_block<float>>;
  const text_sizes sizes{.characters = 3, .embedding = 4, .channels = 4, .layers = 2, .window = 3};
  mamba_model model(sizes, keep::states);
  std::mt19937 random(1);
  model.randomise(random);
  save_model(path, "abc", model);
  auto [alphabet, again] = load_model<mamba_block<float>>(path, keep::states);
  std::vector<float> x, y;
  model.for_each([&](std::span<float> v) { x.insert(x.end(), v.begin(), v.end()); });
  again.for_each([&](std::span<float> v) { y.insert(y.end(), v.begin(), v.end()); });
  CHECK((x == y));
  const auto refused = [&](auto load, const std::string& why) {
    try {
      load();
      FAIL("not refused: " << why);
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()).find(why) != std::string::npos);
    }
  };
  refused([&] { load_model(path, keep::states); }, "of Mamba blocks");
  text_model<float> other(sizes, keep::states);
  save_model(path, "abc", other);
  refused([&] { load_model<mamba_block<float>>(path, keep::states); }, "of QRNN layers");
  fs::remove(path);
  CHECK_THROWS_AS(mamba_model({.characters = 3, .embedding = 2, .channels = 4}, keep::states),
                  argument_error);
}

}  // namespace
