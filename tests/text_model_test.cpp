// SPDX-License-Identifier: BSD-3-Clause
// The language model of the examples: gradients of the whole model against central differences, and
// files that are not what they should be.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "../examples/model_file.hpp"
#include "../examples/text_model.hpp"
#include "catch.hpp"
#include "central_difference.hpp"

namespace {

template <scanrec::keep Keep>
void check_model(std::int64_t steps) {
  text_model<double> model(
      {.characters = 4, .embedding = 3, .channels = 3, .layers = 2, .window = 2}, Keep);
  std::mt19937 random(1);
  model.randomise(random);
  std::vector<int> now(static_cast<std::size_t>(2 * steps)), next(now.size());
  for (std::size_t i = 0; i < now.size(); ++i)
    now[i] = static_cast<int>(random() % 4), next[i] = static_cast<int>(random() % 4);
  const auto loss = [&] {
    auto streams = model.fresh_streams();
    model.forward(now, 2, streams);
    return model.loss(next);
  };
  loss();
  auto g = model.zeros();
  model.backward(now, next, 2, g);
  check_all_gradients(model, g, loss);
}

TEST_CASE("gradients of a language model are central differences", "[tiled][gated]") {
  check_model<scanrec::keep::states>(7);
  check_model<scanrec::keep::checkpoints>(5);
}

TEST_CASE("a model file is whole or refused", "[tiled][gated]") {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / "scanrec_text_model_test.bin";
  text_model<float> model(
      {.characters = 3, .embedding = 2, .channels = 4, .layers = 2, .window = 3},
      scanrec::keep::states);
  std::mt19937 random(1);
  model.randomise(random);
  save_model(path, "abc", model);
  auto [alphabet, again] = load_model(path, scanrec::keep::states);
  CHECK(alphabet == "abc");
  std::vector<float> x, y;
  model.for_each([&](std::span<float> v) { x.insert(x.end(), v.begin(), v.end()); });
  again.for_each([&](std::span<float> v) { y.insert(y.end(), v.begin(), v.end()); });
  CHECK((x == y));

  const auto size = fs::file_size(path);
  const auto refused = [&](const std::string& why) {
    try {
      load_model(path, scanrec::keep::states);
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
