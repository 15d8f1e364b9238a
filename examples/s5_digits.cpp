// SPDX-License-Identifier: BSD-3-Clause
// Classify handwritten digits pixel by pixel: S5 layers read an image as a sequence of 64 numbers.
//
// The last fifth of data/digits.csv is held out. The rows of the file are ordered by its 13
// writers, so most held-out digits are from writers that the model has not seen.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "adam.hpp"
#include "digits_model.hpp"

constexpr std::size_t pixels = 64;

struct digits {
  std::vector<float> images;  // 64 numbers each, between -1 and 1
  std::vector<int> labels;
};

digits read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  digits d;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    std::istringstream fields(line);
    std::vector<int> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(std::stoi(field));
    if (values.size() != pixels + 1 || values.back() < 0 || values.back() > 9)
      throw std::runtime_error(path + ", row " + std::to_string(row) +
                               ": not 64 pixels and a digit");
    for (std::size_t i = 0; i < pixels; ++i)
      d.images.push_back(static_cast<float>(values[i]) / 8.0f - 1.0f);
    d.labels.push_back(values.back());
  }
  return d;
}

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "use: s5_digits digits.csv [folder for confusion.csv] [epochs]\n");
    return 2;
  }
  const digits all = read_digits(argv[1]);
  const std::string out = argc > 2 ? argv[2] : ".";
  const int epochs = argc > 3 ? std::stoi(argv[3]) : 30;
  const std::size_t train = all.labels.size() * 4 / 5, batch = 32;

  std::mt19937 random(1);
  digits_model<float> model({.channels = 64, .states = 64, .layers = 4, .bidirectional = true},
                            random);
  std::size_t parameters = 0;
  model.for_each([&](std::span<float> x) { parameters += x.size(); });
  std::printf("%zu digits to learn from, %zu parameters\n", train, parameters);

  basic_adam<float> optimiser(parameters, 0);
  auto gradients = model.zeros();
  std::vector<std::size_t> order(train);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<float> images(batch * pixels);
  std::vector<int> labels(batch);
  std::uniform_int_distribution<int> shift(-1, 1);
  const auto start = std::chrono::steady_clock::now();
  const std::size_t steps = train / batch;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    double loss = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < batch; ++i) {
        // Shift every image by at most a pixel, so that the images of two epochs differ.
        const std::size_t n = order[step * batch + i];
        const int right = shift(random), down = shift(random);
        for (int y = 0; y < 8; ++y)
          for (int x = 0; x < 8; ++x) {
            const int from_x = x - right, from_y = y - down;
            const bool inside = from_x >= 0 && from_x < 8 && from_y >= 0 && from_y < 8;
            images[i * pixels + static_cast<std::size_t>(8 * y + x)] =
                inside ? all.images[n * pixels + static_cast<std::size_t>(8 * from_y + from_x)]
                       : -1;
          }
        labels[i] = all.labels[n];
      }
      model.forward(images, static_cast<std::int64_t>(batch));
      loss += model.loss(labels);
      model.backward(labels, gradients);
      const double done = (epoch + static_cast<double>(step) / static_cast<double>(steps)) / epochs;
      optimiser.rate = 4e-3 * std::min(1.0, done / 0.05) * 0.5 * (1 + std::cos(3.1416 * done));
      std::vector<std::span<float>> pieces;
      gradients.for_each([&](std::span<float> x) { pieces.push_back(x); });
      std::size_t first = 0, piece = 0;
      optimiser.begin_step();
      model.for_each([&](std::span<float> x) {
        optimiser.move(first, x, pieces[piece++]);
        first += x.size();
      });
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if ((epoch + 1) % 5 == 0 || epoch + 1 == epochs)
      std::printf("epoch %2d  %3.0f s  loss %.3f\n", epoch + 1, seconds,
                  loss / static_cast<double>(steps));
    std::fflush(stdout);
  }

  const std::size_t held = all.labels.size() - train;
  const auto& logs = model.forward({all.images.data() + train * pixels, held * pixels},
                                   static_cast<std::int64_t>(held));
  int confusion[10][10] = {}, right = 0;
  for (std::size_t i = 0; i < held; ++i) {
    Eigen::Index best = 0;
    logs.row(static_cast<Eigen::Index>(i)).maxCoeff(&best);
    ++confusion[all.labels[train + i]][best];
    right += all.labels[train + i] == best;
  }
  std::printf("held out: %d of %zu right, %.1f %%\n", right, held,
              100.0 * right / static_cast<double>(held));
  std::ofstream file(out + "/confusion.csv");
  for (const auto& row : confusion)
    for (int c = 0; c < 10; ++c) file << row[c] << (c < 9 ? ',' : '\n');
  if (!file) throw std::runtime_error(out + "/confusion.csv: cannot be written");
} catch (const std::exception& e) {
  std::fprintf(stderr, "s5_digits: %s\n", e.what());
  return 1;
}
