// SPDX-License-Identifier: BSD-3-Clause
// Times a training step of the language model of examples/qrnn_text.cpp, without the optimiser.
// Counters: characters per second, and the fraction of the time in the gated scans and their
// adjoints.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "../examples/text_model.hpp"
#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;

constexpr std::int64_t batch = 16, steps = 128, channels = 256, layers = 2, characters = 63;

/// The scans of one layer in a training step. The arrays have the model's sizes and strides.
struct layer_scans {
  qrnn_parameters<float>::matrix pre, states, output, grad;
  extents shape{.batch = batch, .time = steps, .channel = channels};

  layer_scans() : pre(steps * batch, 3 * channels), states(steps * batch, channels) {
    output = states, grad = states;
    fill(pre.data(), pre.size(), false), fill(grad.data(), grad.size(), false);
  }
  sequence_view<float> view(qrnn_parameters<float>::matrix& m, extents of) const {
    return {m.data(), of, {.batch = m.cols(), .time = batch * m.cols(), .channel = 1}};
  }
  void run(keep what) {
    extents wide = shape;
    wide.channel *= 3;
    const auto gates = packed<fo_pooling<>>(view(pre, wide));
    const auto step = [&](const auto& memory) {
      gated_scan(fo_pooling<>{}, gates, view(output, shape), memory);
      gated_scan_vjp(fo_pooling<>{}, gates, memory, view(grad, shape),
                     gated_gradients<fo_pooling<>, float>{.arrays = gates});
    };
    if (what == keep::states)
      step(memory::store{view(states, shape)});
    else
      step(memory::recompute<float>{});
  }
};

void measure_step(runner& by, keep what) {
  text_model<float> model({.characters = characters,
                           .embedding = 48,
                           .channels = channels,
                           .layers = layers,
                           .window = 2},
                          what);
  std::mt19937 random(1);
  model.randomise(random);
  std::vector<int> now(batch * steps), next(now.size());
  for (std::size_t i = 0; i < now.size(); ++i)
    now[i] = static_cast<int>(random() % characters),
    next[i] = static_cast<int>(random() % characters);
  auto gradients = model.zeros();
  auto streams = model.fresh_streams();
  layer_scans scans;
  const auto train = [&] {
    model.forward(now, batch, streams);
    model.backward(now, next, batch, gradients);
  };
  const std::vector<double> seconds = by.medians({train, [&] { scans.run(what); }});
  by.counter("characters/s", static_cast<double>(now.size()) / seconds[0]);
  by.counter("share_of_scans", layers * seconds[1] / seconds[0]);
}

}  // namespace

std::vector<row> bench::rows(bool) {
  std::vector<row> all;
  for (const keep what : {keep::states, keep::checkpoints})
    all.push_back({what == keep::states ? "text_model/store" : "text_model/recompute", 21,
                   [=](runner& by) { measure_step(by, what); }});
  return all;
}
