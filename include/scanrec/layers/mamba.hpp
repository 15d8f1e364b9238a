// SPDX-License-Identifier: BSD-3-Clause
// A Mamba layer: a projection to channels u and gates z, a causal convolution of u, a selective
// scan whose step sizes, B and C are projections of the convolved channels, and an output
// projection.
//
//     u, z = x W              v = silu(u * taps + bias)         * is a convolution in time
//     low, B, C = v M         delta = low R
//     out = selective_scan(v, delta, A, B, C, D, z)             y = out W'
//
// Rows of matrices are time-major: step t of sequence b is row t * batch + b, as in a QRNN layer.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include <scanrec/causal_conv1d.hpp>
#include <scanrec/detail/problem/check_layers.hpp>
#include <scanrec/error.hpp>
#include <scanrec/layers/mamba_parameters.hpp>
#include <scanrec/memory.hpp>
#include <scanrec/selective_scan.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The data that a stream carries from one call to the next: the states, and the inputs that the
/// convolution still needs (0 if a reset follows them). An empty stream starts from zeros.
template <class R>
struct mamba_stream {
  using matrix = typename mamba_parameters<R>::matrix;
  matrix state;  ///< batch x (inner * states), the states of a channel side by side
  matrix past;   ///< (window - 1) * batch x inner
};

/// The data that forward() stores for backward(). `wide` contains u and z of every step, `low`
/// contains low, B and C, and `out` the outputs of the scan. `start` is the stream before the
/// chunk. backward() recomputes the convolution, delta, and the states between checkpoints.
template <class R>
struct mamba_memory {
  using matrix = typename mamba_parameters<R>::matrix;
  matrix wide, low, out;
  std::vector<R> checkpoints;
  mamba_stream<R> start;
};

/// A layer with the recurrence of Mamba.
///
/// Source  Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023),
///         section 3.4.
template <class R>
class mamba_layer {
 public:
  using parameters = mamba_parameters<R>;
  using stream = mamba_stream<R>;
  using memory_type = mamba_memory<R>;
  using matrix = typename parameters::matrix;
  using row = typename parameters::row;
  using rows = Eigen::Ref<const matrix, 0, Eigen::OuterStride<>>;
  using reset_mask = sequence_view<const bool>;

  /// Throws argument_error unless all sizes are positive; the rank may be 0.
  explicit mamba_layer(const mamba_sizes& sizes) : sizes_(sizes) {
    if (sizes.channels < 1 || sizes.expand < 1 || sizes.states < 1 || sizes.window < 1 ||
        sizes.rank < 0)
      throw argument_error(
          "mamba_layer", "sizes",
          "channels, expand, states and window of 1 or more, and a rank of 0 or more",
          std::to_string(sizes.channels) + ", " + std::to_string(sizes.expand) + ", " +
              std::to_string(sizes.states) + ", " + std::to_string(sizes.window) + ", " +
              std::to_string(sizes.rank));
    weights = zeros();
  }

  parameters weights;  ///< weights of the layer

  [[nodiscard]] const mamba_sizes& sizes() const { return sizes_; }
  /// Zero parameters with the sizes of this layer, to which backward() can add gradients.
  [[nodiscard]] parameters zeros() const {
    const std::int64_t C = sizes_.channels, D = sizes_.inner(), N = sizes_.states;
    const std::int64_t K = sizes_.delta_rank();
    return {.input = matrix::Zero(C, 2 * D),
            .taps = matrix::Zero(sizes_.window, D),
            .taps_bias = row::Zero(D),
            .projection = matrix::Zero(D, K + 2 * N),
            .delta = matrix::Zero(K, D),
            .delta_bias = row::Zero(D),
            .log_decay = matrix::Zero(D, N),
            .d = row::Zero(D),
            .output = matrix::Zero(D, C)};
  }
  /// Draws weights. W, M and W' keep the variance of their inputs. A is -1, -2, ..., -states in
  /// every channel, and D is 1. At delta = 0, step sizes are log-uniform between 1e-3 and 1e-1.
  template <class Generator>
  void randomise(Generator& generator) {
    const auto draw = [&](auto& m, auto distribution) {
      for (Eigen::Index i = 0; i < m.size(); ++i)
        m.data()[i] = static_cast<R>(distribution(generator));
    };
    const auto by_rows = [](const matrix& m) {
      return std::normal_distribution<double>(0, 1 / std::sqrt(static_cast<double>(m.rows())));
    };
    const auto within = [](std::int64_t n) {
      const double most = 1 / std::sqrt(static_cast<double>(n));
      return std::uniform_real_distribution<double>(-most, most);
    };
    draw(weights.input, by_rows(weights.input)),
        draw(weights.projection, by_rows(weights.projection));
    draw(weights.output, by_rows(weights.output));
    draw(weights.taps, within(sizes_.window)), draw(weights.taps_bias, within(sizes_.window));
    draw(weights.delta, within(weights.delta.rows()));
    std::uniform_real_distribution<double> log_step(std::log(1e-3), std::log(1e-1));
    draw(weights.delta_bias, [&](Generator& g) {
      const double step = std::exp(log_step(g));
      return step + std::log(-std::expm1(-step));  // softplus of this is the step size
    });
    for (Eigen::Index n = 0; n < weights.log_decay.cols(); ++n)
      weights.log_decay.col(n).setConstant(static_cast<R>(std::log(static_cast<double>(n + 1))));
    weights.d.setOnes();
  }

  /// Computes the outputs y of the layer for inputs x with steps * batch rows. Continues from the
  /// stream `carried` and updates it for the next chunk. Where `resets` (batch, steps, 1) is
  /// true, a sequence starts, whose states and convolution do not depend on earlier steps.
  ///
  /// Bits     For a sequence in several chunks, scan and convolution have the bits of a single
  ///          call. The matrix products are Eigen's, which may round differently for other numbers
  ///          of rows.
  /// Aliasing y may be x. No other arguments may share memory, and y may not share memory with the
  ///          weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void forward(const rows& x, std::int64_t batch, stream& carried, memory_type& memory, matrix& y,
               const reset_mask& resets = {}) const {
    const std::int64_t steps = check("forward", x, batch, carried, resets);
    using detail::memory_of;
    if (&carried == &memory.start)
      throw argument_error("mamba_layer::forward", "stream", "a stream other than memory.start",
                           "memory.start");
    for (const auto& argument : {memory_of("x", x), memory_of("y", y)}) {
      check_apart_from_memory("mamba_layer::forward", argument, memory);
      detail::check_apart("mamba_layer::forward", argument,
                          {memory_of("stream", carried.state), memory_of("stream", carried.past)});
    }
    detail::check_apart("mamba_layer::forward", memory_of("y", y), "the weights", weights);
    const std::int64_t D = sizes_.inner(), w = sizes_.window;
    if (carried.state.size() == 0) carried.state = matrix::Zero(batch, D * sizes_.states);
    if (carried.past.size() == 0) carried.past = matrix::Zero((w - 1) * batch, D);
    memory.start = carried;

    memory.wide.resize(x.rows(), 2 * D), memory.out.resize(x.rows(), D);
    memory.low.resize(x.rows(), weights.projection.cols());
    memory.wide.noalias() = x * weights.input;
    matrix active(x.rows(), D);
    causal_conv1d(convolution_of(memory, batch), view(active, batch),
                  {.initial_state = past_of(memory.start, batch),
                   .final_state = past_of(carried, batch),
                   .resets = resets});
    memory.low.noalias() = active * weights.projection;
    matrix delta = memory.low.leftCols(sizes_.delta_rank()) * weights.delta;
    const matrix decay = -weights.log_decay.array().exp();
    memory.checkpoints.resize(static_cast<std::size_t>(
        memory::checkpoint_extents(extents_of(batch, steps)).time * batch * D * sizes_.states));
    selective_scan(arrays_of(memory, batch, active, delta, decay), view(memory.out, batch),
                   {.initial_state = state_of(memory.start.state),
                    .final_state = state_of(carried.state),
                    .resets = resets,
                    .checkpoints = checkpoints_of(memory, batch, steps)});
    y.resize(x.rows(), sizes_.channels);
    y.noalias() = memory.out * weights.output;
  }

  /// Runs one step of a stream: x and y have one row per sequence.
  void step(const rows& x, stream& carried, memory_type& scratch, matrix& y) const {
    forward(x, x.rows(), carried, scratch, y);
  }

  /// Given the gradient of y, adds the gradients of the weights to `gradients` and writes the
  /// gradient of x, unless x_grad is null. `resets` must be those of the forward call. The stream
  /// before the chunk is treated as constant: no gradient flows into the previous chunk. Overwrites
  /// u, z and the outputs of the scan in `memory`.
  ///
  /// Aliasing x_grad may be x or y_grad. No other arguments may share memory, and x_grad may not
  ///          share memory with the weights.
  /// Throws   argument_error, before anything is written; std::bad_alloc.
  void backward(const rows& x, std::int64_t batch, memory_type& memory, const rows& y_grad,
                parameters& gradients, matrix* x_grad, const reset_mask& resets = {}) const {
    const std::int64_t steps = check("backward", x, batch, memory.start, resets);
    const std::int64_t D = sizes_.inner(), K = sizes_.delta_rank();
    const auto refuse = [](const char* argument, const char* expected, std::int64_t got) {
      throw argument_error("mamba_layer::backward", argument, expected,
                           std::to_string(got) + " rows");
    };
    if (memory.wide.rows() != x.rows())
      refuse("memory", "the memory of forward() on the same chunk", memory.wide.rows());
    if (y_grad.rows() != x.rows() || y_grad.cols() != sizes_.channels)
      refuse("y_grad", "a row per step and sequence, and a column per channel", y_grad.rows());
    using detail::memory_of;
    detail::check_gradients("mamba_layer::backward", gradients, weights);
    const auto check_apart = [&](const detail::named_memory& argument) {
      check_apart_from_memory("mamba_layer::backward", argument, memory);
      detail::check_apart("mamba_layer::backward", argument, "gradients", gradients);
    };
    check_apart(memory_of("x", x)), check_apart(memory_of("y_grad", y_grad));
    if (x_grad) {
      const auto written = memory_of("x_grad", *x_grad);
      check_apart(written);
      detail::check_apart("mamba_layer::backward", written, "the weights", weights);
    }

    gradients.output.noalias() += memory.out.transpose() * y_grad;
    memory.out.noalias() = y_grad * weights.output.transpose();
    const auto convolution = convolution_of(memory, batch);
    const auto past = past_of(memory.start, batch);
    matrix active(x.rows(), D);
    causal_conv1d(convolution, view(active, batch), {.initial_state = past, .resets = resets});
    matrix delta = memory.low.leftCols(K) * weights.delta;

    // The adjoint of the scan writes the gradients of delta and z over delta and z. In memory.out,
    // the gradient of the convolved channels replaces that of the scan's outputs.
    const matrix decay = -weights.log_decay.array().exp();
    matrix decay_grad(D, sizes_.states), low_grad(x.rows(), memory.low.cols());
    row d_grad(D), bias_grad(D);
    matrix& active_grad = memory.out;
    const auto arrays = arrays_of(memory, batch, active, delta, decay);
    selective_scan_vjp(arrays, view(std::as_const(memory.out), batch),
                       {.u = view(active_grad, batch),
                        .delta = view(delta, batch),
                        .a = state_view<R>(decay_grad.data(), own_extents(), own_strides()),
                        .b = bc_of(low_grad, batch, K),
                        .c = bc_of(low_grad, batch, K + sizes_.states),
                        .d = state_view<R>(d_grad.data(), {.channel = D}),
                        .z = view(memory.wide, batch, D),
                        .delta_bias = state_view<R>(bias_grad.data(), {.channel = D})},
                       {.initial_state = state_of(memory.start.state),
                        .resets = resets,
                        .checkpoints = checkpoints_of(memory, batch, steps)});
    gradients.log_decay.array() += decay_grad.array() * decay.array();
    gradients.d += d_grad, gradients.delta_bias += bias_grad;

    gradients.delta.noalias() += memory.low.leftCols(K).transpose() * delta;
    low_grad.leftCols(K).noalias() = delta * weights.delta.transpose();
    gradients.projection.noalias() += active.transpose() * low_grad;
    active_grad.noalias() += low_grad * weights.projection.transpose();
    matrix taps_grad(sizes_.window, D), &u_grad = active;
    causal_conv1d_vjp(convolution, view(std::as_const(active_grad), batch),
                      {.x = view(u_grad, batch),
                       .weight = taps_of(taps_grad),
                       .bias = state_view<R>(bias_grad.data(), {.channel = D})},
                      {.initial_state = past, .resets = resets});
    gradients.taps += taps_grad, gradients.taps_bias += bias_grad;
    memory.wide.leftCols(D) = u_grad;
    gradients.input.noalias() += x.transpose() * memory.wide;
    if (x_grad) x_grad->noalias() = memory.wide * weights.input.transpose();
  }

 private:
  causal_conv1d_arrays<R> convolution_of(const memory_type& memory, std::int64_t batch) const {
    return {.x = view(memory.wide, batch),
            .weight = taps_of(weights.taps),
            .bias = state_view<const R>(weights.taps_bias.data(), {.channel = sizes_.inner()}),
            .activation = conv1d_activation::silu};
  }
  // The taps in the order of causal_conv1d, which takes the tap of the oldest step first: a view of
  // the rows in reverse order.
  template <class Matrix>
  auto taps_of(Matrix& m) const {
    using number = std::remove_pointer_t<decltype(m.data())>;
    const std::int64_t D = sizes_.inner(), w = sizes_.window;
    return state_view<number>(m.data() + (w - 1) * D, {.channel = D, .group = w},
                              {.channel = 1, .group = -D});
  }
  // The inputs in a stream that the convolution needs before the first step of the next chunk.
  template <class Stream>
  auto past_of(Stream& stream, std::int64_t batch) const {
    using number = std::remove_pointer_t<decltype(stream.past.data())>;
    const std::int64_t D = sizes_.inner();
    return sequence_view<number>(stream.past.data(),
                                 {.batch = batch, .time = sizes_.window - 1, .channel = D},
                                 {.batch = D, .time = batch * D, .channel = 1});
  }
  std::int64_t check(const char* call, const rows& x, std::int64_t batch, const stream& s,
                     const reset_mask& resets) const {
    const std::string full = std::string("mamba_layer::") + call;
    const auto refuse = [&](const char* argument, const std::string& expected,
                            const std::string& got) {
      throw argument_error(full.c_str(), argument, expected, got);
    };
    const auto sizes_of = [](const auto& m) {
      return std::to_string(m.rows()) + " x " + std::to_string(m.cols());
    };
    detail::check_batch(full, batch);
    if (x.rows() % batch != 0 || x.cols() != sizes_.channels)
      refuse("x",
             "a multiple of " + std::to_string(batch) + " rows of " +
                 std::to_string(sizes_.channels) + " channels",
             sizes_of(x));
    if (s.state.size() != 0 &&
        (s.state.rows() != batch || s.state.cols() != sizes_.inner() * sizes_.states))
      refuse("stream", "the states of every sequence", sizes_of(s.state));
    if (s.past.size() != 0 &&
        (s.past.rows() != (sizes_.window - 1) * batch || s.past.cols() != sizes_.inner()))
      refuse("stream", "window - 1 inputs of every sequence", sizes_of(s.past));
    const extents wanted{.batch = batch, .time = x.rows() / batch};
    if (!resets.absent() && !(resets.shape == wanted))
      refuse("resets", to_string(wanted), to_string(resets.shape));
    return x.rows() / batch;
  }
  static void check_apart_from_memory(const char* call, const detail::named_memory& argument,
                                      const memory_type& memory) {
    using detail::memory_of;
    detail::check_apart(
        call, argument,
        {memory_of("memory.wide", memory.wide), memory_of("memory.low", memory.low),
         memory_of("memory.out", memory.out), memory_of("memory.checkpoints", memory.checkpoints),
         memory_of("memory.start", memory.start.state),
         memory_of("memory.start", memory.start.past)});
  }
  extents extents_of(std::int64_t batch, std::int64_t steps) const {
    return {.batch = batch, .time = steps, .channel = sizes_.inner(), .group = sizes_.states};
  }
  extents own_extents() const { return {.channel = sizes_.inner(), .group = sizes_.states}; }
  strides own_strides() const { return {.channel = sizes_.states, .group = 1}; }
  template <class Matrix>
  static auto first_of(Matrix& m, std::int64_t column) {
    return m.data() == nullptr ? m.data() : m.data() + column;
  }
  // A sequence of inner() channels: columns of a matrix from `column` on.
  template <class Matrix>
  auto view(Matrix& m, std::int64_t batch, std::int64_t column = 0) const {
    using number = std::remove_pointer_t<decltype(m.data())>;
    return sequence_view<number>(
        first_of(m, column), {.batch = batch, .time = m.rows() / batch, .channel = sizes_.inner()},
        {.batch = m.cols(), .time = m.cols() * batch, .channel = 1});
  }
  template <class Matrix>
  auto bc_of(Matrix& m, std::int64_t batch, std::int64_t column) const {
    using number = std::remove_pointer_t<decltype(m.data())>;
    return sequence_view<number>(first_of(m, column),
                                 {.batch = batch, .time = m.rows() / batch, .group = sizes_.states},
                                 {.batch = m.cols(), .time = m.cols() * batch, .group = 1});
  }
  template <class Matrix>
  auto state_of(Matrix& m) const {
    using number = std::remove_pointer_t<decltype(m.data())>;
    return state_view<number>(
        m.data(), {.batch = m.rows(), .channel = sizes_.inner(), .group = sizes_.states},
        {.batch = m.cols(), .channel = sizes_.states, .group = 1});
  }
  sequence_view<R> checkpoints_of(memory_type& memory, std::int64_t batch,
                                  std::int64_t steps) const {
    const extents shape = memory::checkpoint_extents(extents_of(batch, steps));
    return {memory.checkpoints.data(), shape, states_last(shape)};
  }
  selective_arrays<R> arrays_of(const memory_type& memory, std::int64_t batch, const matrix& active,
                                const matrix& delta, const matrix& decay) const {
    const std::int64_t D = sizes_.inner(), K = sizes_.delta_rank();
    return {.u = view(active, batch),
            .delta = view(delta, batch),
            .a = state_view<const R>(decay.data(), own_extents(), own_strides()),
            .b = bc_of(memory.low, batch, K),
            .c = bc_of(memory.low, batch, K + sizes_.states),
            .d = state_view<const R>(weights.d.data(), {.channel = D}),
            .z = view(memory.wide, batch, D),
            .delta_bias = state_view<const R>(weights.delta_bias.data(), {.channel = D}),
            .softplus = true};
  }

  mamba_sizes sizes_;
};

}  // namespace scanrec::inline SCANREC_ABI
