// SPDX-License-Identifier: BSD-3-Clause
// A classifier of sequences of numbers: S5 layers, the mean over time, and a softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Core>
#include <scanrec/layers/s5.hpp>
#include <scanrec/s5_init.hpp>

struct digits_sizes {
  std::int64_t channels = 32, states = 32, blocks = 1, layers = 3, classes = 10;
  bool bidirectional = false;
  double least_step = 0.01, most_step = 0.5;
};

/// The parameters of a model, or their gradients.
template <class R>
struct digits_parameters {
  using matrix = typename scanrec::s5_parameters<R>::matrix;
  using row = typename scanrec::s5_parameters<R>::row;
  row encoder, encoder_bias;  // map a number to channels
  std::vector<scanrec::s5_parameters<R>> layers;
  matrix output;  // channels x classes
  row output_bias;

  /// Calls f(span of numbers) for every array, always in the same order.
  template <class F>
  void for_each(F f) {
    const auto all = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    all(encoder), all(encoder_bias);
    for (auto& layer : layers) layer.for_each(f);
    all(output), all(output_bias);
  }
};

template <class R>
class digits_model {
 public:
  using parameters = digits_parameters<R>;
  using matrix = typename parameters::matrix;

  template <class Generator>
  digits_model(const digits_sizes& sizes, Generator& random) {
    const auto H = sizes.channels;
    std::normal_distribution<double> normal;
    const auto draw = [&](auto& m, double deviation) {
      for (Eigen::Index i = 0; i < m.size(); ++i)
        m.data()[i] = static_cast<R>(deviation * normal(random));
    };
    own_.encoder.resize(H), own_.encoder_bias.resize(H);
    draw(own_.encoder, 1), draw(own_.encoder_bias, 1);
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      layers_.emplace_back(scanrec::make_s5<R>({.channels = H,
                                                .states = sizes.states,
                                                .blocks = sizes.blocks,
                                                .bidirectional = sizes.bidirectional,
                                                .least_step = sizes.least_step,
                                                .most_step = sizes.most_step},
                                               random));
      layers_.back().randomise(random);
    }
    kept_.resize(layers_.size());
    own_.output.resize(H, sizes.classes);
    draw(own_.output, 1 / std::sqrt(static_cast<double>(H)));
    own_.output_bias.setZero(sizes.classes);
  }

  /// Calls f(span of numbers) for every array of parameters, in the order of digits_parameters.
  template <class F>
  void for_each(F f) {
    const auto all = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    all(own_.encoder), all(own_.encoder_bias);
    for (auto& layer : layers_) layer.weights.for_each(f);
    all(own_.output), all(own_.output_bias);
  }
  [[nodiscard]] parameters zeros() const {
    parameters p = own_;
    p.encoder.setZero(), p.encoder_bias.setZero(), p.output.setZero(), p.output_bias.setZero();
    for (const auto& layer : layers_) p.layers.push_back(layer.zeros());
    return p;
  }

  /// Log-probabilities of the classes for `batch` sequences of equal length, which follow one
  /// another in `numbers`.
  const matrix& forward(std::span<const R> numbers, std::int64_t batch) {
    const auto rows = static_cast<Eigen::Index>(numbers.size()), steps = rows / batch;
    numbers_ = Eigen::Map<const Eigen::Matrix<R, Eigen::Dynamic, 1>>(numbers.data(), rows);
    outputs_.noalias() = numbers_ * own_.encoder;
    outputs_.rowwise() += own_.encoder_bias;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].forward(outputs_, batch, kept_[i], next_);
      outputs_.swap(next_);
    }
    means_.resize(batch, outputs_.cols());
    for (std::int64_t b = 0; b < batch; ++b)
      means_.row(b) = outputs_.middleRows(b * steps, steps).colwise().mean();
    logits_.noalias() = means_ * own_.output;
    logits_.rowwise() += own_.output_bias;
    logits_.colwise() -= logits_.rowwise().maxCoeff().eval();
    logits_.colwise() -= logits_.array().exp().rowwise().sum().log().matrix().eval();
    return logits_;
  }
  /// The mean loss in nats of the last forward(), if `classes` are the right classes.
  [[nodiscard]] R loss(std::span<const int> classes) const {
    R sum = 0;
    for (std::size_t i = 0; i < classes.size(); ++i)
      sum -= logits_(static_cast<Eigen::Index>(i), classes[i]);
    return sum / static_cast<R>(classes.size());
  }
  /// Writes the gradients of loss(classes) to `g`, for the sequences of the last forward(). Call it
  /// once per forward(), after loss(): it overwrites the log-probabilities.
  void backward(std::span<const int> classes, parameters& g) {
    g.for_each([](std::span<R> x) { std::fill(x.begin(), x.end(), R(0)); });
    const auto batch = static_cast<std::int64_t>(classes.size()), steps = outputs_.rows() / batch;
    logits_ = logits_.array().exp().matrix();
    for (std::size_t i = 0; i < classes.size(); ++i)
      logits_(static_cast<Eigen::Index>(i), classes[i]) -= 1;
    logits_ /= static_cast<R>(batch);
    g.output.noalias() = means_.transpose() * logits_;
    g.output_bias = logits_.colwise().sum();
    const matrix mean_grad = logits_ * own_.output.transpose() / static_cast<R>(steps);
    grad_.resize(outputs_.rows(), outputs_.cols());
    for (std::int64_t b = 0; b < batch; ++b)
      grad_.middleRows(b * steps, steps).rowwise() = mean_grad.row(b);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      layers_[i].backward(batch, kept_[i], grad_, g.layers[i], next_);
      grad_.swap(next_);
    }
    g.encoder = numbers_.transpose() * grad_;
    g.encoder_bias = grad_.colwise().sum();
  }

 private:
  parameters own_;  // without the parameters of the layers
  std::vector<scanrec::s5_layer<R>> layers_;
  // Results of the last forward(), and work arrays.
  Eigen::Matrix<R, Eigen::Dynamic, 1> numbers_;
  std::vector<scanrec::s5_memory<R>> kept_;
  matrix outputs_, next_, means_, logits_, grad_;
};
