// SPDX-License-Identifier: BSD-3-Clause
// Smooth three noisy signals, and learn the amount of smoothing by gradient descent.
//
//   smooth[t] = decay * smooth[t-1] + (1 - decay) * noisy[t]
//
// The decay of each channel minimises the error of a forecast, in which smooth[t] predicts
// noisy[t+1]. The signals are random walks with noise. Their best decays are known (Kalman, 1960).
// docs/tutorial_cpp.md explains the program.
// [first_include]
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <scanrec/scan.hpp>

using view = scanrec::sequence_view<double>;
// [/first_include]

int main() {
  // [first_data]
  constexpr int steps = 20000, channels = 3;
  const double noise[channels]{0.5, 1.5, 5};
  const scanrec::extents shape{.time = steps, .channel = channels};
  std::vector<double> clean(steps * channels), noisy(clean.size());  // element t * channels + c
  std::mt19937 random(1);
  const auto normal = [&] {  // the sum of twelve uniform numbers: variance 1
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += double(random()) / 4294967296.0;
    return sum;
  };
  for (int i = channels; i < steps * channels; ++i) {
    clean[i] = clean[i - channels] + normal();
    noisy[i] = clean[i] + noise[i % channels] * normal();
  }
  // [/first_data]

  // [first_forward]
  const scanrec::strides per_channel{.batch = 0, .time = 0, .channel = 1};  // the same at all steps
  std::vector<double> logit(channels), decay(channels), input(noisy.size()), smooth(noisy.size());
  const auto forward = [&] {
    for (int c = 0; c < channels; ++c) decay[c] = 1 / (1 + std::exp(-logit[c]));  // in (0, 1)
    for (int i = 0; i < steps * channels; ++i) input[i] = (1 - decay[i % channels]) * noisy[i];
    scanrec::linear_scan(view(decay, shape, per_channel), view(input, shape), view(smooth, shape));
  };
  // [/first_forward]

  // [first_loss]
  std::vector<double> smooth_grad(noisy.size()), input_grad(noisy.size()), decay_grad(channels);
  for (int iteration = 0; iteration <= 80; ++iteration) {
    forward();
    double loss[channels]{};
    for (int i = 0; i < (steps - 1) * channels; ++i) {
      const double error = smooth[i] - noisy[i + channels];
      loss[i % channels] += error * error / (steps - 1);
      smooth_grad[i] = 2 * error / (steps - 1);
    }
    // [/first_loss]

    // [first_vjp]
    scanrec::linear_scan_vjp(
        view(decay, shape, per_channel), view(smooth, shape), view(smooth_grad, shape),
        {.gate_grad = view(decay_grad, shape, per_channel), .input_grad = view(input_grad, shape)});
    for (int i = 0; i < steps * channels; ++i) decay_grad[i % channels] -= input_grad[i] * noisy[i];
    if (iteration % 20 == 0)
      std::printf("iteration %2d: loss %.3f %.3f %.3f\n", iteration, loss[0], loss[1], loss[2]);
    for (int c = 0; c < channels; ++c)  // gradient descent on log(loss)
      logit[c] -= decay_grad[c] / loss[c] * decay[c] * (1 - decay[c]);
  }
  // [/first_vjp]

  for (int c = 0; c < channels; ++c) {
    double error_before = 0, error_after = 0;
    for (int i = c; i < steps * channels; i += channels) {
      error_before += std::pow(noisy[i] - clean[i], 2) / steps;
      error_after += std::pow(smooth[i] - clean[i], 2) / steps;
    }
    const double q = 1 / (noise[c] * noise[c]);  // variance of the walk's steps / of the noise
    const double best = 1 - (std::sqrt(q * q + 4 * q) - q) / 2;
    std::printf("channel %d: decay %.3f (best %.3f), rms error %.2f (before %.2f)\n", c, decay[c],
                best, std::sqrt(error_after), std::sqrt(error_before));
  }
}
