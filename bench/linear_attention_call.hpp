// SPDX-License-Identifier: BSD-3-Clause
// Calls of linear attention on packed arrays, for the benchmarks.
#pragma once

#include <cmath>
#include <cstdint>

#include <scanrec/linear_attention.hpp>

namespace bench {

/// The arrays of a call. T: element type, V: compute type. Queries, keys, values and outputs are
/// (batch, time, heads, d), gates (batch, time, heads, gate_channels), where gate_channels is 1 or
/// d, betas (batch, time, heads), and states (batch, heads, d, d). All are contiguous. A null
/// pointer stands for an absent array.
template <class T, class V = scanrec::compute_t<T>>
struct attention_call {
  std::int64_t batch = 1, time = 1, heads = 1, d = 1, gate_channels = 1;
  T *query = nullptr, *key = nullptr, *value = nullptr, *gate = nullptr, *beta = nullptr;
  T* out = nullptr;
  // Of vjp.
  T *out_grad = nullptr, *query_grad = nullptr, *key_grad = nullptr, *value_grad = nullptr;
  T *gate_grad = nullptr, *beta_grad = nullptr;
  // Of forward; vjp only reads initial_state.
  V *initial_state = nullptr, *final_state = nullptr;

  void forward(const scanrec::tiled& on) const {
    scanrec::linear_attention_options<V> options;
    options.initial_state = states(initial_state), options.final_state = states(final_state);
    scanrec::linear_attention(on, arrays(), rows(out, d), options);
  }
  void vjp(const scanrec::tiled& on) const {
    scanrec::linear_attention_gradients<V> gradients;
    gradients.query = rows(query_grad, d), gradients.key = rows(key_grad, d);
    gradients.value = rows(value_grad, d);
    gradients.gate = rows(gate_grad, gate_channels), gradients.beta = rows(beta_grad, 1);
    scanrec::linear_attention_vjp_options<V> options;
    options.initial_state = states(initial_state);
    scanrec::linear_attention_vjp(on, arrays(), rows(out_grad, d), gradients, options);
  }

 private:
  [[nodiscard]] scanrec::sequence_view<T> rows(T* x, std::int64_t channels) const {
    if (x == nullptr) return {};
    const scanrec::extents shape{batch, time, channels, heads};
    return {x, shape, scanrec::heads_inside(shape)};
  }
  [[nodiscard]] scanrec::sequence_view<V> states(V* x) const {
    if (x == nullptr) return {};
    const scanrec::extents shape{batch, d, d, heads};
    return {x, shape, scanrec::heads_outside(shape)};
  }
  [[nodiscard]] scanrec::linear_attention_arrays<V> arrays() const {
    scanrec::linear_attention_arrays<V> all;
    all.query = rows(query, d), all.key = rows(key, d), all.value = rows(value, d);
    all.gate = rows(gate, gate_channels), all.beta = rows(beta, 1);
    all.scale = static_cast<V>(1 / std::sqrt(static_cast<double>(d)));
    return all;
  }
};

}  // namespace bench
