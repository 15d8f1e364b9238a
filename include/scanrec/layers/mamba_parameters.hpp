// SPDX-License-Identifier: BSD-3-Clause
// Sizes and weights of a Mamba layer.
#pragma once

#include <cstdint>
#include <span>

#include <Eigen/Core>

#include <scanrec/detail/config.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Sizes of a Mamba layer. The layer has `channels` inputs and as many outputs.
struct mamba_sizes {
  std::int64_t channels = 1;
  std::int64_t expand = 2;   ///< channels of the scan / channels of the layer
  std::int64_t states = 16;  ///< states of each channel of the scan
  std::int64_t window = 4;   ///< taps of the convolution
  std::int64_t rank = 0;     ///< rank of the projection to delta; 0: channels / 16, rounded up

  [[nodiscard]] std::int64_t inner() const { return expand * channels; }
  [[nodiscard]] std::int64_t delta_rank() const { return rank > 0 ? rank : (channels + 15) / 16; }
};

/// Weights of a Mamba layer, or their gradients. layers/mamba.hpp has the formulas with the
/// matrices W, M, R and W'. In the sizes below, inner is mamba_sizes::inner() and rank is
/// mamba_sizes::delta_rank().
template <class R>
struct mamba_parameters {
  using matrix = Eigen::Matrix<R, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using row = Eigen::Matrix<R, 1, Eigen::Dynamic>;
  matrix input;       ///< W, channels x 2 inner: u, then z
  matrix taps;        ///< window x inner, the current step first
  row taps_bias;      ///< inner
  matrix projection;  ///< M, inner x (rank + 2 states): low, B, C
  matrix delta;       ///< R, rank x inner
  row delta_bias;     ///< inner
  matrix log_decay;   ///< inner x states: A = -exp(log_decay)
  row d;              ///< D, inner
  matrix output;      ///< W', inner x channels

  /// Calls f(std::span<R>) for every array, always in the same order; for optimisers and files.
  template <class F>
  void for_each(F f) {
    const auto all = [&](auto& m) {
      f(std::span<R>(m.data(), static_cast<std::size_t>(m.size())));
    };
    all(input), all(taps), all(taps_bias), all(projection), all(delta), all(delta_bias);
    all(log_decay), all(d), all(output);
  }
};

}  // namespace scanrec::inline SCANREC_ABI
