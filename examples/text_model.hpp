// SPDX-License-Identifier: BSD-3-Clause
// A character language model: an embedding, QRNN layers or Mamba blocks, and a softmax over the
// next character.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <Eigen/Core>
#include <scanrec/layers/qrnn.hpp>

#include "mamba_block.hpp"

struct text_sizes {
  std::int64_t characters = 0;  // number of distinct characters
  std::int64_t embedding = 48, channels = 256, layers = 2, window = 2;
};

// make_layer returns layer number i, begin_layer initialises a layer, and is_mamba is true for
// Mamba blocks.
template <class R>
scanrec::qrnn_layer<R> make_layer(std::type_identity<scanrec::qrnn_layer<R>>, const text_sizes& s,
                                  std::int64_t i, scanrec::keep what) {
  return scanrec::qrnn_layer<R>(
      {.inputs = i == 0 ? s.embedding : s.channels, .channels = s.channels, .window = s.window},
      what);
}
/// `embedding` must equal `channels`, since a block adds its output to its input. A block always
/// keeps checkpoints, not states.
template <class R>
mamba_block<R> make_layer(std::type_identity<mamba_block<R>>, const text_sizes& s, std::int64_t,
                          scanrec::keep) {
  if (s.embedding != s.channels)
    throw scanrec::argument_error("mamba_block", "embedding", std::to_string(s.channels),
                                  std::to_string(s.embedding));
  return mamba_block<R>({.channels = s.channels, .window = s.window});
}
template <class R, class Generator>
void begin_layer(scanrec::qrnn_layer<R>& layer, Generator& generator) {
  layer.randomise(generator);
  const std::int64_t C = layer.sizes().channels;
  layer.weights.bias.segment(C, C).setConstant(R(1));  // forget gates: a longer initial memory
}
template <class R, class Generator>
void begin_layer(mamba_block<R>& block, Generator& generator) {
  block.randomise(generator);
}
template <class Layer>
inline constexpr bool is_mamba = false;
template <class R>
inline constexpr bool is_mamba<mamba_block<R>> = true;

/// The parameters of a model, or their gradients.
template <class R, class Layer = scanrec::qrnn_layer<R>>
struct text_parameters {
  using matrix = typename scanrec::qrnn_parameters<R>::matrix;
  matrix embedding;  // characters x embedding
  std::vector<typename Layer::parameters> layers;
  matrix output;  // channels x characters
  Eigen::Matrix<R, 1, Eigen::Dynamic> output_bias;

  /// Calls f(span of numbers) for every array, always in the same order.
  template <class F>
  void for_each(F f) {
    const auto all = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    all(embedding);
    for (auto& layer : layers) layer.for_each(f);
    all(output), all(output_bias);
  }
};

template <class R, class Layer = scanrec::qrnn_layer<R>>
class text_model {
 public:
  using parameters = text_parameters<R, Layer>;
  using matrix = typename parameters::matrix;
  using layer = Layer;
  using streams = std::vector<typename Layer::stream>;

  text_model(const text_sizes& sizes, scanrec::keep what) : sizes_(sizes) {
    for (std::int64_t i = 0; i < sizes.layers; ++i)
      layers_.push_back(make_layer(std::type_identity<Layer>{}, sizes, i, what));
    kept_.resize(layers_.size()), outputs_.resize(layers_.size());
    embedding_ = matrix::Zero(sizes.characters, sizes.embedding);
    output_ = matrix::Zero(sizes.channels, sizes.characters);
    output_bias_ = decltype(output_bias_)::Zero(sizes.characters);
  }

  [[nodiscard]] const text_sizes& sizes() const { return sizes_; }
  [[nodiscard]] streams fresh_streams() const { return streams(layers_.size()); }

  template <class Generator>
  void randomise(Generator& generator) {
    std::normal_distribution<double> normal;
    const auto draw = [&](matrix& m, double deviation) {
      for (Eigen::Index i = 0; i < m.size(); ++i)
        m.data()[i] = static_cast<R>(deviation * normal(generator));
    };
    draw(embedding_, 1);
    draw(output_, 1 / std::sqrt(static_cast<double>(sizes_.channels)));
    for (layer& l : layers_) begin_layer(l, generator);
  }
  /// Calls f(span of numbers) for every array of parameters, in the order of text_parameters.
  template <class F>
  void for_each(F f) {
    const auto all = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    all(embedding_);
    for (layer& l : layers_) l.weights.for_each(f);
    all(output_), all(output_bias_);
  }
  [[nodiscard]] parameters zeros() const {
    parameters p{matrix::Zero(sizes_.characters, sizes_.embedding),
                 {},
                 matrix::Zero(sizes_.channels, sizes_.characters),
                 output_bias_};
    for (const layer& l : layers_) p.layers.push_back(l.zeros());
    p.output_bias.setZero();
    return p;
  }

  /// Log-probabilities of the character after each one of `text`. Rows are time-major: the
  /// character of step t and sequence b is at t * batch + b.
  const matrix& forward(std::span<const int> text, std::int64_t batch, streams& carried) {
    inputs_.resize(static_cast<Eigen::Index>(text.size()), sizes_.embedding);
    for (std::size_t i = 0; i < text.size(); ++i)
      inputs_.row(static_cast<Eigen::Index>(i)) = embedding_.row(text[i]);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      layers_[i].forward(i == 0 ? inputs_ : outputs_[i - 1], batch, carried[i], kept_[i],
                         outputs_[i]);
    logits_.noalias() = outputs_.back() * output_;
    logits_.rowwise() += output_bias_;
    // Subtract the maximum to avoid overflow, then normalise.
    logits_.colwise() -= logits_.rowwise().maxCoeff().eval();
    logits_.colwise() -= logits_.array().exp().rowwise().sum().log().matrix().eval();
    return logits_;
  }

  /// The mean loss in nats. next[i] is the character after character i of the last forward().
  R loss(std::span<const int> next) const {
    R sum = 0;
    for (std::size_t i = 0; i < next.size(); ++i)
      sum -= logits_(static_cast<Eigen::Index>(i), next[i]);
    return sum / static_cast<R>(next.size());
  }

  /// Computes the gradients of loss(next). `text` is that of the last forward(). Overwrites the
  /// log-probabilities, so call loss() before.
  void backward(std::span<const int> text, std::span<const int> next, std::int64_t batch,
                parameters& g) {
    g.for_each([](std::span<R> numbers) { std::fill(numbers.begin(), numbers.end(), R(0)); });
    logits_ = logits_.array().exp().matrix();
    for (std::size_t i = 0; i < next.size(); ++i)
      logits_(static_cast<Eigen::Index>(i), next[i]) -= 1;
    logits_ /= static_cast<R>(next.size());
    g.output.noalias() = outputs_.back().transpose() * logits_;
    g.output_bias = logits_.colwise().sum();
    output_grad_.noalias() = logits_ * output_.transpose();
    for (std::size_t i = layers_.size(); i-- > 0;) {
      layers_[i].backward(i == 0 ? inputs_ : outputs_[i - 1], batch, kept_[i], output_grad_,
                          g.layers[i], &input_grad_);
      output_grad_.swap(input_grad_);
    }
    for (std::size_t i = 0; i < text.size(); ++i)
      g.embedding.row(text[i]) += output_grad_.row(static_cast<Eigen::Index>(i));
  }

 private:
  text_sizes sizes_;
  std::vector<layer> layers_;
  matrix embedding_, output_;
  Eigen::Matrix<R, 1, Eigen::Dynamic> output_bias_;
  // Intermediate results of the last forward() and backward().
  std::vector<typename Layer::memory_type> kept_;
  std::vector<matrix> outputs_;
  matrix inputs_, logits_, output_grad_, input_grad_;
};
