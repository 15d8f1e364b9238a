// SPDX-License-Identifier: BSD-3-Clause
// Checks the arguments of linear_attention and its adjoint, and builds the problem for their
// kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <scanrec/detail/problem/call_arrays.hpp>
#include <scanrec/detail/recurrence/reset_field.hpp>
#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/linear_attention_arrays.hpp>
#include <scanrec/linear_attention_stream.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A call of linear_attention. Sequences are in scan order. Heads are on the `group` axis, and the
/// rows of states are on the `time` axis.
template <class V>
struct linear_attention_problem {
  using value = V;
  std::int64_t batch = 0, time = 0;
  int dk = 1, dv = 1;
  int heads = 1;  // of values and states
  int key_heads = 1, query_heads = 1;
  bool logarithms = false;  // of gates
  bool key_gates = false;   // a gate per key channel instead of one per head
  bool normalise = false;
  V scale = 1;
  row_array<V> q, k, v, gate, beta, out;
  row_array<V> initial, final_state, states;
  std::int64_t interval = 0;  // of `states`
  recurrence::reset_field resets;
  linear_attention_stream<V>* stream = nullptr;

  /// Number of query heads that read the state of one head.
  [[nodiscard]] int queries() const { return std::max(1, query_heads / heads); }
  [[nodiscard]] int out_heads() const { return std::max(query_heads, heads); }
  [[nodiscard]] int key_head(int head) const { return head / (heads / key_heads); }
  [[nodiscard]] int query_head(int out_head) const {
    return out_head / (out_heads() / query_heads);
  }
};

/// A call of linear_attention_vjp.
template <class V>
struct linear_attention_vjp_problem : linear_attention_problem<V> {
  row_array<V> out_grad, final_grad;
  row_array<V> q_grad, k_grad, v_grad, gate_grad, beta_grad, initial_grad;
  bool update = false;  // add to the gradients
};

/// Collects the arrays of a call and checks them.
template <class V>
class linear_attention_call : call_arrays<V> {
  using base = call_arrays<V>;

 public:
  linear_attention_call(const char* name, const linear_attention_arrays<V>& arrays, direction order)
      : base(name, order == direction::reverse) {
    this->require("value", !arrays.value.absent());
    this->require("key", !arrays.key.absent());
    this->require("query", !arrays.query.absent());
    value_ = arrays.value.shape(), key_ = arrays.key.shape(), query_ = arrays.query.shape();
    if (value_.batch < 0 || value_.time < 0) refuse("value", "extents of 0 or more", text(value_));
    for (const auto& [argument, shape] :
         {named_shape{"value", value_}, {"key", key_}, {"query", query_}}) {
      if (shape.channel < 1 || shape.channel > most_width)
        refuse(argument, text("1 to ", most_width, " channels"), text(shape));
      if (shape.group < 1 || shape.group > most_heads)
        refuse(argument, text("1 to ", most_heads, " heads on its group axis"), text(shape));
    }
    if (value_.group % key_.group != 0)
      refuse("key", text("a number of heads that divides ", value_.group, ", the heads of 'value'"),
             text(key_.group));
    if (value_.group % query_.group != 0 && query_.group % value_.group != 0)
      refuse("query",
             text("a number of heads that divides ", value_.group,
                  ", the heads of 'value', or is a multiple of it"),
             text(query_.group));
    // Sequences and states. States at intervals have at most a 32nd of as many steps.
    const std::int64_t heads = std::max(value_.group, query_.group);
    const std::int64_t width = std::max(value_.channel, key_.channel);
    for (const std::int64_t step :
         {width, value_.channel * key_.channel / attention_limits::steps}) {
      std::int64_t bytes = sizeof(double) * std::max<std::int64_t>(step, 1);
      for (const std::int64_t n : {value_.batch, value_.time, heads})
        bytes = clipped_product(bytes, std::max<std::int64_t>(n, 1));
      if (bytes >= most_array_bytes)
        refuse("value", "fewer than 2^52 bytes, also in states at intervals of 32 steps",
               text(value_));
    }
  }

  // These functions check an array and return its form for kernels.
  template <class E>
  row_array<V> queries(const char* name, const stored_sequence<E>& of) {
    return this->template checked_rows<E>(name, of, like_value(key_.channel, query_.group));
  }
  template <class E>
  row_array<V> keys(const char* name, const stored_sequence<E>& of) {
    return this->template checked_rows<E>(name, of, like_value(key_.channel, key_.group));
  }
  template <class E>
  row_array<V> values(const char* name, const stored_sequence<E>& of) {
    return this->template checked_rows<E>(name, of, like_value(value_.channel, value_.group));
  }
  template <class E>
  row_array<V> outputs(const char* name, const stored_sequence<E>& of) {
    const std::int64_t heads = std::max(query_.group, value_.group);
    return this->template checked_rows<E>(name, of, like_value(value_.channel, heads));
  }
  /// One number, or `channels` numbers, per step and head.
  template <class E>
  row_array<V> numbers(const char* name, const stored_sequence<E>& of, std::int64_t channels = 1) {
    return this->template checked_rows<E>(name, of, like_value(channels, value_.group));
  }
  /// `count` states per sequence.
  template <class E>
  row_array<V> matrices(const char* name, const stored_sequence<E>& of, std::int64_t count = 1) {
    return this->template checked_matrix<E>(name, of, state_shape(count));
  }
  recurrence::reset_field resets(const sequence_view<const bool>& of) {
    if (of.absent()) return {};
    const bool one_more = of.shape.time == value_.time + 1;
    this->check(use_of("resets", of, access::read),
                {.batch = value_.batch, .time = value_.time + (one_more ? 1 : 0)},
                ", or one step more");
    if (value_.time == 0) return {};
    recurrence::input_field<bool> mask{of.data, of.strides};
    if (this->reverse_) {
      mask.data += (value_.time - 1) * of.strides.time;
      mask.strides.time = -mask.strides.time;
    }
    return recurrence::resets_of(mask, this->reverse_ ? direction::reverse : direction::forward,
                                 false, value_.time, one_more);
  }
  /// Sets the arrays and sizes that the forward call and its adjoint have in common.
  template <class Options>
  void take(const linear_attention_arrays<V>& arrays, const Options& options,
            linear_attention_problem<V>& p) {
    p.batch = value_.batch, p.time = value_.time;
    p.dk = static_cast<int>(key_.channel), p.dv = static_cast<int>(value_.channel);
    p.heads = static_cast<int>(value_.group), p.key_heads = static_cast<int>(key_.group);
    p.query_heads = static_cast<int>(query_.group);
    p.logarithms = arrays.gates == gate_form::logarithm;
    p.normalise = arrays.normalise, p.scale = arrays.scale;
    p.q = queries("query", arrays.query);
    p.k = keys("key", arrays.key);
    p.v = values("value", arrays.value);
    const std::int64_t gates = arrays.gate.shape().channel;
    if (!arrays.gate.absent() && gates != 1 && gates != p.dk)
      refuse("gate", text("1 or ", p.dk, " channels"), text(arrays.gate.shape()));
    p.key_gates = gates > 1;
    p.gate = numbers("gate", arrays.gate, p.key_gates ? p.dk : 1);
    p.beta = numbers("beta", arrays.beta);
    p.initial = matrices("initial_state", options.initial_state);
    p.resets = resets(options.resets);
    take_states(options.states, options.interval, p);
  }
  template <class E>
  void take_states(const stored_sequence<E>& of, std::int64_t interval,
                   linear_attention_problem<V>& p) {
    if (of.absent()) return;
    if (interval < 1 || interval % attention_limits::steps != 0)
      refuse("interval", "a positive multiple of 32 steps", text(interval));
    const std::int64_t count = p.time / interval;
    if (count == 0 && of.shape() == state_shape(0)) return;
    p.interval = interval;
    p.states = matrices("states", of, count);
  }
  void take_stream(const linear_attention_options<V>& options, linear_attention_problem<V>& p) {
    if (options.stream == nullptr) return;
    p.stream = options.stream;
    const extents wanted = state_shape();
    if (p.stream->shape() != wanted)
      refuse("stream", text("states of shape ", wanted), text(p.stream->shape()));
    if (p.stream->begun() && p.key_gates != p.stream->has_key_gates())
      refuse("gate",
             p.key_gates ? "one channel, or no array, as in earlier calls of the stream"
                         : "as many channels as 'key', as in earlier calls of the stream",
             p.key_gates        ? text(p.dk, " channels")
             : p.gate.present() ? "one channel"
                                : "no array");
    if (p.stream->has_key_gates() && p.logarithms != p.stream->logarithms_)
      refuse("gates", "the gate form of earlier calls of the stream, which have gates per key",
             "another form");
    if (this->reverse_) refuse("order", "forward, since a stream is passed", "reverse");
    if (p.states.present())
      refuse("states", "an absent array, since a stream is passed", "an array");
    if (p.initial.present() && p.stream->begun())
      refuse("initial_state", "an absent array, since the stream has begun", "an array");
  }
  using base::check_apart, base::refuse;

 private:
  static constexpr std::int64_t most_width = attention_limits::most_width,
                                most_heads = attention_limits::most_heads;
  struct named_shape {
    const char* argument;
    extents shape;
  };
  [[nodiscard]] extents state_shape(std::int64_t count = 1) const {
    return {.batch = clipped_product(value_.batch, count),
            .time = key_.channel,
            .channel = value_.channel,
            .group = value_.group};
  }
  [[nodiscard]] extents like_value(std::int64_t channels, std::int64_t heads) const {
    return {.batch = value_.batch, .time = value_.time, .channel = channels, .group = heads};
  }

  extents value_, key_, query_;
};

template <class V>
linear_attention_problem<V> make_linear_attention(const linear_attention_arrays<V>& arrays,
                                                  const stored_sequence<V>& out,
                                                  const linear_attention_options<V>& options) {
  linear_attention_call<V> c("linear_attention", arrays, options.order);
  linear_attention_problem<V> p;
  c.take(arrays, options, p);
  p.out = c.outputs("out", out);
  p.final_state = c.matrices("final_state", options.final_state);
  c.take_stream(options, p);
  c.check_apart(std::array<in_place_pair, 2>{{{"final_state", "initial_state"}, {"out", "value"}}});
  return p;
}

template <class V>
linear_attention_vjp_problem<V> make_linear_attention_vjp(
    const linear_attention_arrays<V>& arrays, const stored_sequence<const V>& out_grad,
    const linear_attention_gradients<V>& gradients,
    const linear_attention_vjp_options<V>& options) {
  linear_attention_call<V> c("linear_attention_vjp", arrays, options.order);
  linear_attention_vjp_problem<V> p;
  c.take(arrays, options, p);
  p.out_grad = c.outputs("out_grad", out_grad);
  p.final_grad = c.matrices("final_grad", options.final_grad);
  p.q_grad = c.queries("query_grad", gradients.query);
  p.k_grad = c.keys("key_grad", gradients.key);
  p.v_grad = c.values("value_grad", gradients.value);
  p.gate_grad = c.numbers("gate_grad", gradients.gate, p.key_gates ? p.dk : 1);
  p.beta_grad = c.numbers("beta_grad", gradients.beta);
  p.initial_grad = c.matrices("initial_grad", gradients.initial_state);
  if (!gradients.gate.absent() && arrays.gate.absent())
    c.refuse("gate_grad", "an absent array, since 'gate' is absent", "an array");
  if (!gradients.beta.absent() && arrays.beta.absent())
    c.refuse("beta_grad", "an absent array, since 'beta' is absent", "an array");
  p.update = gradients.update == update::accumulate;
  c.check_apart(std::array<in_place_pair, 0>{});
  return p;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
