// SPDX-License-Identifier: BSD-3-Clause
// Checks the arguments of causal_conv1d and its adjoint, and builds the problem for their kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include <scanrec/causal_conv1d_arrays.hpp>
#include <scanrec/detail/problem/call_arrays.hpp>
#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A reset mask with one value per step for all channels.
struct step_resets {
  const bool* data = nullptr;
  std::int64_t batch_stride = 0, time_stride = 0;

  [[nodiscard]] bool present() const { return data != nullptr; }
  [[nodiscard]] bool at(std::int64_t batch, std::int64_t time) const {
    return data[batch * batch_stride + time * time_stride];
  }
};

/// A call of causal_conv1d. Taps are on the `group` axis of the weight.
template <class V>
struct causal_conv1d_problem {
  using value = V;
  std::int64_t batch = 0, time = 0, channels = 0;
  std::int64_t width = 1;
  std::int64_t initial_steps = 0, final_steps = 0;  // steps of `initial` and of `final_state`
  bool silu = false;
  row_array<V> x, out, initial, final_state;
  value_array<V> weight, bias;
  step_resets resets;
};

/// A call of causal_conv1d_vjp. `final_steps` is the number of steps of final_grad.
template <class V>
struct causal_conv1d_vjp_problem : causal_conv1d_problem<V> {
  row_array<V> out_grad, final_grad, x_grad, initial_grad;
  value_array<V> weight_grad, bias_grad;
  bool update = false;  // add to the gradients
};

/// Collects the arrays of a call and checks them.
template <class V>
class causal_conv1d_call : call_arrays<V> {
  using base = call_arrays<V>;

 public:
  causal_conv1d_call(const char* name, const causal_conv1d_arrays<V>& arrays)
      : base(name), shape_(arrays.x.shape()), width_(arrays.weight.shape.group) {
    this->require("x", !arrays.x.absent());
    if (shape_.batch < 0 || shape_.time < 0 || shape_.channel < 0)
      this->refuse("x", "extents of 0 or more", text(shape_));
    if (shape_.group != 1) this->refuse("x", "one group", text(shape_));
    this->require("weight", !arrays.weight.absent());
    if (width_ < 1 || width_ > most_width)
      this->refuse("weight", text("1 to ", most_width, " taps on its group axis"),
                   text(arrays.weight.shape));
    std::int64_t bytes = sizeof(double);
    for (const std::int64_t n : {shape_.batch, shape_.time, shape_.channel})
      bytes = clipped_product(bytes, std::max<std::int64_t>(n, 1));
    if (bytes >= most_array_bytes) this->refuse("x", "fewer than 2^52 bytes", text(shape_));
  }

  // rows(), state(), per_channel() and resets() check an array and return its form for kernels.
  template <class E>
  row_array<V> rows(const char* name, const stored_sequence<E>& of) {
    return this->template checked_rows<E>(name, of, shape_);
  }
  /// A state with width - 1 steps or more.
  template <class E>
  row_array<V> state(const char* name, const stored_sequence<E>& of, std::int64_t& steps) {
    if (of.absent()) return {};
    extents wanted = shape_;
    wanted.time = of.shape().time;
    if (wanted.time < width_ - 1)
      this->refuse(name,
                   text("at least ", width_ - 1, " steps, since 'weight' has ", width_, " taps"),
                   text(wanted.time));
    steps = wanted.time;
    return this->template checked_rows<E>(name, of, wanted);
  }
  template <class E>
  value_array<V> per_channel(const char* name, const state_view<E>& of, std::int64_t taps = 1) {
    return this->values(name, of, {.channel = shape_.channel, .group = taps});
  }
  step_resets resets(const sequence_view<const bool>& of) {
    this->check(use_of("resets", of, access::read), {.batch = shape_.batch, .time = shape_.time});
    return {of.data, of.strides.batch, of.strides.time};
  }
  void take(const causal_conv1d_arrays<V>& arrays, causal_conv1d_problem<V>& p) {
    p.batch = shape_.batch, p.time = shape_.time, p.channels = shape_.channel;
    p.width = width_, p.silu = arrays.activation == conv1d_activation::silu;
    p.x = rows("x", arrays.x);
    p.weight = per_channel("weight", arrays.weight, width_);
    p.bias = per_channel("bias", arrays.bias);
  }
  using base::check_apart, base::refuse;

 private:
  static constexpr std::int64_t most_width = std::numeric_limits<std::int16_t>::max();
  extents shape_;
  std::int64_t width_;
};

template <class V>
causal_conv1d_problem<V> make_causal_conv1d(const causal_conv1d_arrays<V>& arrays,
                                            const stored_sequence<V>& out,
                                            const causal_conv1d_options<V>& options) {
  causal_conv1d_call<V> c("causal_conv1d", arrays);
  causal_conv1d_problem<V> p;
  c.take(arrays, p);
  p.initial = c.state("initial_state", options.initial_state, p.initial_steps);
  p.resets = c.resets(options.resets);
  p.out = c.rows("out", out);
  p.final_state = c.state("final_state", options.final_state, p.final_steps);
  c.check_apart(std::array<in_place_pair, 1>{{{"final_state", "initial_state"}}});
  return p;
}

template <class V>
causal_conv1d_vjp_problem<V> make_causal_conv1d_vjp(const causal_conv1d_arrays<V>& arrays,
                                                    const stored_sequence<const V>& out_grad,
                                                    const causal_conv1d_gradients<V>& gradients,
                                                    const causal_conv1d_vjp_options<V>& options) {
  causal_conv1d_call<V> c("causal_conv1d_vjp", arrays);
  causal_conv1d_vjp_problem<V> p;
  c.take(arrays, p);
  p.initial = c.state("initial_state", options.initial_state, p.initial_steps);
  p.resets = c.resets(options.resets);
  p.out_grad = c.rows("out_grad", out_grad);
  p.final_grad = c.state("final_grad", options.final_grad, p.final_steps);
  p.x_grad = c.rows("x_grad", gradients.x);
  p.weight_grad = c.per_channel("weight_grad", gradients.weight, p.width);
  p.bias_grad = c.per_channel("bias_grad", gradients.bias);
  const std::int64_t steps = p.initial_steps;
  p.initial_grad = c.state("initial_grad", gradients.initial_state, p.initial_steps);
  if (p.initial_grad.present() && p.initial.present() && p.initial_steps != steps)
    c.refuse("initial_grad", text(steps, " steps like 'initial_state'"), text(p.initial_steps));
  p.update = gradients.update == update::accumulate;
  c.check_apart(std::array<in_place_pair, 0>{});
  return p;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
