// SPDX-License-Identifier: BSD-3-Clause
// A QRNN layer. A causal convolution of the inputs, computed by matrix products for each tap, gives
// packed pre-activations. A gated scan then processes the pre-activations.
//
// Rows of matrices are time-major: step t of sequence b is row t * batch + b. A matrix product can
// then apply a tap to all sequences at once, and the rows of a step are contiguous.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/detail/problem/check_layers.hpp>
#include <scanrec/error.hpp>
#include <scanrec/gated_scan.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Sizes of a QRNN layer.
struct qrnn_sizes {
  std::int64_t inputs = 1, channels = 1;
  std::int64_t window = 2;  ///< taps: each step reads its own input and window - 1 earlier ones
};

/// The data that a forward call stores for the backward call.
enum class keep {
  nothing,      ///< for inference
  states,       ///< memory::store
  checkpoints,  ///< memory::recompute
};

/// Weights of a QRNN layer, or their gradients: a bias and, for each tap, a matrix with `inputs`
/// rows and arrays * channels columns, where `arrays` is the number of arrays of the cell. The tap
/// of the current step is the first.
template <class R>
struct qrnn_parameters {
  using matrix = Eigen::Matrix<R, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  std::vector<matrix> taps;
  Eigen::Matrix<R, 1, Eigen::Dynamic> bias;

  /// Calls f(std::span<R>) for every array, always in the same order; for optimisers and files.
  template <class F>
  void for_each(F f) {
    for (matrix& tap : taps) f(std::span<R>(tap.data(), static_cast<std::size_t>(tap.size())));
    f(std::span<R>(bias.data(), static_cast<std::size_t>(bias.size())));
  }
};

/// The data that a stream carries from one call to the next: the states, and the inputs that the
/// window still needs. An empty stream starts from zeros.
template <class R>
struct qrnn_stream {
  using matrix = typename qrnn_parameters<R>::matrix;
  matrix state;  ///< batch x channels
  matrix past;   ///< (window - 1) * batch x inputs
};

/// The data that forward() stores for backward(): the pre-activations, the stream before the chunk,
/// and states or checkpoints as chosen by `keep`.
template <class R>
struct qrnn_memory {
  using matrix = typename qrnn_parameters<R>::matrix;
  matrix pre, states;
  std::vector<R> checkpoints;
  qrnn_stream<R> start;
};

/// A layer for cells whose arrays are all computed by matrix products: QRNN pooling or minGRU.
template <class R, gated_cell Cell = fo_pooling<>>
class qrnn_layer {
 public:
  using parameters = qrnn_parameters<R>;
  using stream = qrnn_stream<R>;
  using memory_type = qrnn_memory<R>;
  using matrix = typename parameters::matrix;
  using rows = Eigen::Ref<const matrix, 0, Eigen::OuterStride<>>;
  static constexpr auto arrays = static_cast<std::int64_t>(Cell::names.size());

  /// Throws argument_error unless all sizes are positive.
  explicit qrnn_layer(const qrnn_sizes& sizes, keep what = keep::states, Cell cell = {})
      : sizes_(sizes), keep_(what), cell_(cell) {
    if (sizes.inputs < 1 || sizes.channels < 1 || sizes.window < 1)
      throw argument_error("qrnn_layer", "sizes", "inputs, channels and window of 1 or more",
                           std::to_string(sizes.inputs) + ", " + std::to_string(sizes.channels) +
                               ", " + std::to_string(sizes.window));
    weights = zeros();
  }

  parameters weights;  ///< weights of the layer

  [[nodiscard]] const qrnn_sizes& sizes() const { return sizes_; }
  /// Zero parameters with the sizes of this layer, to which backward() can add gradients.
  [[nodiscard]] parameters zeros() const {
    parameters p;
    p.taps.assign(static_cast<std::size_t>(sizes_.window),
                  matrix::Zero(sizes_.inputs, arrays * sizes_.channels));
    p.bias = decltype(p.bias)::Zero(arrays * sizes_.channels);
    return p;
  }
  /// Draws weights that keep the variance of their inputs.
  template <class Generator>
  void randomise(Generator& generator) {
    std::normal_distribution<double> normal(
        0, 1 / std::sqrt(static_cast<double>(sizes_.inputs * sizes_.window)));
    for (matrix& tap : weights.taps)
      for (Eigen::Index i = 0; i < tap.size(); ++i)
        tap.data()[i] = static_cast<R>(normal(generator));
    weights.bias.setZero();
  }

  /// Computes the outputs y of the layer for inputs u with steps * batch rows. Continues from the
  /// stream `carried` and updates it for the next chunk.
  ///
  /// Aliasing y may be u. No other arguments may share memory, and y may not share memory with the
  ///          weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void forward(const rows& u, std::int64_t batch, stream& carried, memory_type& memory,
               matrix& y) const {
    const std::int64_t steps = check("forward", u, batch, carried);
    using detail::memory_of;
    if (&carried == &memory.start)
      throw argument_error("qrnn_layer::forward", "stream", "a stream other than memory.start",
                           "memory.start");
    for (const auto& argument : {memory_of("u", u), memory_of("y", y)}) {
      check_apart_from_memory("qrnn_layer::forward", argument, memory);
      detail::check_apart("qrnn_layer::forward", argument,
                          {memory_of("stream", carried.state), memory_of("stream", carried.past)});
    }
    detail::check_apart("qrnn_layer::forward", memory_of("y", y), "the weights", weights);
    const std::int64_t C = sizes_.channels, w = sizes_.window;
    if (carried.state.size() == 0) carried.state = matrix::Zero(batch, C);
    if (carried.past.size() == 0) carried.past = matrix::Zero((w - 1) * batch, sizes_.inputs);
    memory.start = carried;

    memory.pre.resize(steps * batch, arrays * C);
    memory.pre.rowwise() = weights.bias;
    for_taps(u, memory.start.past, batch, [&](std::int64_t tap, auto inputs, std::int64_t first) {
      memory.pre.middleRows(first, inputs.rows()).noalias() +=
          inputs * weights.taps[static_cast<std::size_t>(tap)];
    });
    // The stream is updated before y is written, because y may be u.
    const std::int64_t fresh = std::min(steps, w - 1) * batch, old = (w - 1) * batch - fresh;
    if (old > 0) carried.past.topRows(old) = memory.start.past.bottomRows(old);
    if (fresh > 0) carried.past.bottomRows(fresh) = u.bottomRows(fresh);
    y.resize(steps * batch, C);
    const gated_options<R> options{.initial_state = state_of(memory.start.state),
                                   .final_state = state_of(carried.state)};
    const auto gates = packed<Cell>(view(memory.pre, batch));
    switch (keep_) {
      case keep::nothing:
        gated_scan(cell_, gates, view(y, batch), none, options);
        break;
      case keep::states:
        memory.states.resize(steps * batch, C);
        gated_scan(cell_, gates, view(y, batch), memory::store{view(memory.states, batch)},
                   options);
        break;
      case keep::checkpoints:
        gated_scan(cell_, gates, view(y, batch),
                   memory::recompute{checkpoints(memory, steps, batch)}, options);
        break;
    }
  }

  /// Runs one step of a stream: u and y have one row per sequence.
  void step(const rows& u, stream& carried, memory_type& scratch, matrix& y) const {
    forward(u, u.rows(), carried, scratch, y);
  }

  /// Given the gradient of y, adds the gradients of the weights to `gradients` and writes the
  /// gradient of u, unless u_grad is null. The stream before the chunk is treated as constant: no
  /// gradient flows into the previous chunk. Overwrites `memory`: the gradients of the
  /// pre-activations replace the pre-activations.
  ///
  /// Aliasing u_grad may be u or y_grad. No other arguments may share memory, and u_grad may not
  ///          share memory with the weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void backward(const rows& u, std::int64_t batch, memory_type& memory, const rows& y_grad,
                parameters& gradients, matrix* u_grad) const {
    const std::int64_t steps = check("backward", u, batch, memory.start);
    const std::int64_t C = sizes_.channels;
    const auto refuse = [](const char* argument, const char* expected, std::int64_t got) {
      throw argument_error("qrnn_layer::backward", argument, expected,
                           std::to_string(got) + " rows");
    };
    if (keep_ == keep::nothing)
      refuse("memory", "the memory of a layer that keeps states or checkpoints", 0);
    if (memory.pre.rows() != steps * batch)
      refuse("memory", "the memory of forward() on the same chunk", memory.pre.rows());
    if (y_grad.rows() != steps * batch || y_grad.cols() != C)
      refuse("y_grad", "a row per step and sequence, and a column per channel", y_grad.rows());
    using detail::memory_of;
    detail::check_gradients("qrnn_layer::backward", gradients, weights);
    const auto check_apart = [&](const detail::named_memory& argument) {
      check_apart_from_memory("qrnn_layer::backward", argument, memory);
      detail::check_apart("qrnn_layer::backward", argument, "gradients", gradients);
    };
    check_apart(memory_of("u", u)), check_apart(memory_of("y_grad", y_grad));
    if (u_grad) {
      const auto written = memory_of("u_grad", *u_grad);
      check_apart(written);
      detail::check_apart("qrnn_layer::backward", written, "the weights", weights);
    }

    const auto gates = packed<Cell>(view(memory.pre, batch));
    const auto grad = sequence_view<const R>(y_grad.data(), extents_of(steps, batch, C),
                                             strides_of(y_grad.outerStride(), batch));
    const gated_vjp_options<R> options{.initial_state = state_of(memory.start.state)};
    if (keep_ == keep::states)
      gated_scan_vjp(cell_, gates, memory::store{view(memory.states, batch)}, grad,
                     gated_gradients<Cell, R>{.arrays = gates}, options);
    else
      gated_scan_vjp(cell_, gates, memory::recompute{checkpoints(memory, steps, batch)}, grad,
                     gated_gradients<Cell, R>{.arrays = gates}, options);

    gradients.bias += memory.pre.colwise().sum();
    for_taps(u, memory.start.past, batch, [&](std::int64_t tap, auto inputs, std::int64_t first) {
      gradients.taps[static_cast<std::size_t>(tap)].noalias() +=
          inputs.transpose() * memory.pre.middleRows(first, inputs.rows());
    });
    if (!u_grad) return;
    // u_grad is written only now, because it may be u. Tap k of step t + k reads the input of step
    // t.
    u_grad->setZero(steps * batch, sizes_.inputs);
    for (std::int64_t tap = 0; tap < std::min(sizes_.window, steps); ++tap) {
      const std::int64_t seen = (steps - tap) * batch;
      u_grad->topRows(seen).noalias() +=
          memory.pre.bottomRows(seen) * weights.taps[static_cast<std::size_t>(tap)].transpose();
    }
  }

 private:
  // Calls f(tap, rows of inputs, first row of the pre-activations that these inputs contribute to).
  // For each tap, the inputs of the previous chunk come first, then those of this chunk.
  template <class F>
  void for_taps(const rows& u, const matrix& past, std::int64_t batch, F f) const {
    const std::int64_t steps = u.rows() / batch, w = sizes_.window;
    for (std::int64_t tap = 0; tap < w; ++tap) {
      const std::int64_t before = std::min(tap, steps) * batch;
      if (before > 0) f(tap, rows(past.middleRows((w - 1 - tap) * batch, before)), 0);
      if (steps > tap) f(tap, rows(u.topRows((steps - tap) * batch)), tap * batch);
    }
  }
  std::int64_t check(const char* call, const rows& u, std::int64_t batch, const stream& s) const {
    const std::string name = std::string("qrnn_layer::") + call;
    const auto refuse = [&](const char* argument, const std::string& expected, std::int64_t r,
                            std::int64_t c) {
      throw argument_error(name.c_str(), argument, expected,
                           std::to_string(r) + " x " + std::to_string(c));
    };
    detail::check_batch(name, batch);
    if (u.rows() % batch != 0 || u.cols() != sizes_.inputs)
      refuse("u",
             "a multiple of " + std::to_string(batch) + " rows of " +
                 std::to_string(sizes_.inputs) + " inputs",
             u.rows(), u.cols());
    if (s.state.size() != 0 && (s.state.rows() != batch || s.state.cols() != sizes_.channels))
      refuse("stream", "a state per sequence", s.state.rows(), s.state.cols());
    if (s.past.size() != 0 &&
        (s.past.rows() != (sizes_.window - 1) * batch || s.past.cols() != sizes_.inputs))
      refuse("stream", "window - 1 inputs of every sequence", s.past.rows(), s.past.cols());
    return u.rows() / batch;
  }
  static void check_apart_from_memory(const char* call, const detail::named_memory& argument,
                                      const memory_type& memory) {
    using detail::memory_of;
    detail::check_apart(
        call, argument,
        {memory_of("memory.pre", memory.pre), memory_of("memory.states", memory.states),
         memory_of("memory.checkpoints", memory.checkpoints),
         memory_of("memory.start", memory.start.state),
         memory_of("memory.start", memory.start.past)});
  }
  static extents extents_of(std::int64_t steps, std::int64_t batch, std::int64_t channels) {
    return {.batch = batch, .time = steps, .channel = channels};
  }
  static strides strides_of(std::int64_t row, std::int64_t batch) {
    return {.batch = row, .time = row * batch, .channel = 1};
  }
  static sequence_view<R> view(matrix& m, std::int64_t batch) {
    return {m.data(), extents_of(m.rows() / batch, batch, m.cols()), strides_of(m.cols(), batch)};
  }
  static state_view<R> state_of(matrix& m) { return {m.data(), extents_of(1, m.rows(), m.cols())}; }
  sequence_view<R> checkpoints(memory_type& memory, std::int64_t steps, std::int64_t batch) const {
    const extents shape = memory::checkpoint_extents(extents_of(steps, batch, sizes_.channels));
    memory.checkpoints.resize(static_cast<std::size_t>(shape.batch * shape.time * shape.channel));
    return {memory.checkpoints.data(), shape};
  }

  qrnn_sizes sizes_;
  keep keep_;
  Cell cell_;
};

}  // namespace scanrec::inline SCANREC_ABI
