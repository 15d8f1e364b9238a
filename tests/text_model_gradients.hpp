// SPDX-License-Identifier: BSD-3-Clause
// Checks all gradients of a language model of examples/text_model.hpp against central differences,
// on random characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "central_difference.hpp"

/// Uses two random texts of `steps` characters, with an alphabet of four.
template <class Model>
void check_text_gradients(Model& model, std::int64_t steps) {
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
