// SPDX-License-Identifier: BSD-3-Clause
// The arguments of linear_attention and its adjoint.
#pragma once

#include <cstdint>

#include <scanrec/extents.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/stored_sequence.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {
/// Steps of a chunk of linear attention, and of its blocks with gates per key, and limits of
/// shapes.
struct attention_limits {
  static constexpr int steps = 32, block = 8;
  static constexpr std::int64_t most_width = 4096, most_heads = 1 << 20;  // dk and dv; heads
};
}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// Strides of a contiguous array (batch, time, heads, channel), with heads on the `group` axis.
SCANREC_INLINE constexpr strides heads_inside(const extents& shape) {
  const std::int64_t step = detail::clipped_product(shape.group, shape.channel);
  return {.batch = detail::clipped_product(shape.time, step),
          .time = step,
          .channel = 1,
          .group = shape.channel};
}
/// Strides of a contiguous array (batch, heads, time, channel), with heads on the `group` axis.
/// With the rows of a matrix state on the `time` axis, this is (batch, heads, dk, dv).
SCANREC_INLINE constexpr strides heads_outside(const extents& shape) {
  const std::int64_t head = detail::clipped_product(shape.time, shape.channel);
  return {.batch = detail::clipped_product(shape.group, head),
          .time = shape.channel,
          .channel = 1,
          .group = head};
}

/// How the gates of linear attention are stored.
enum class gate_form : std::uint8_t {
  logarithm,  ///< the state is multiplied by exp(gate); -infinity: by 0
  factor,     ///< the state is multiplied by the gate, which may be 0 or negative
};

/// The input arrays of linear attention. V is the compute type, float or double. Heads are on the
/// `group` axis. All arrays may have any element type whose compute type is V.
///
/// Shapes  value: (batch, time, dv, heads), with one state of shape (dk, dv) per head.
///         key: (batch, time, dk, key heads). The number of key heads divides `heads`; head h has
///         the keys of key head h / (heads / key heads).
///         query: (batch, time, dk, query heads). The number of query heads divides `heads`, or is
///         a multiple of it. With fewer query heads, several heads have the same queries. With
///         more, several query heads read one state (grouped queries).
///         gate: (batch, time, 1, heads), or (batch, time, dk, heads), a gate per key channel.
///         absent: 1.
///         beta: (batch, time, 1, heads). present: the delta rule.
///         dk and dv are from 1 to 4096. If heads share a gate or beta, pass broadcast_to().
template <class V>
struct linear_attention_arrays {
  stored_sequence<const V> query, key, value;
  stored_sequence<const V> gate{};
  stored_sequence<const V> beta{};
  gate_form gates = gate_form::logarithm;
  V scale = 1;  ///< factor of the queries; most models use 1 / sqrt(dk)
  /// Replaces every query and key x by x / sqrt(sum of x^2 + 1e-6).
  bool normalise = false;
};

template <class V>
class linear_attention_stream;

/// Options of linear_attention. A state has the shape (batch, dk, dv, heads): its rows are on the
/// `time` axis.
template <class V>
struct linear_attention_options {
  direction order = direction::forward;
  stored_sequence<const V> initial_state{};      ///< absent: 0
  stored_sequence<V> final_state{};              ///< receives the last state of the scan
  detail::sequence_option<const bool> resets{};  ///< (batch, time or time + 1, 1), as scan_options
  /// (batch * n, dk, dv, heads), n = time / interval rounded down: element b * n + i of the batch
  /// axis receives the state of sequence b after step (i + 1) * interval of the scan.
  stored_sequence<V> states{};
  std::int64_t interval = 0;  ///< steps between `states`: a positive multiple of 32
  /// The stream that the call continues; absent: none. Only forward in time and without `states`.
  /// `initial_state` may be passed to the first call of the stream.
  linear_attention_stream<V>* stream = nullptr;
};

/// Options of linear_attention_vjp. `order`, `initial_state` and `resets` must be those of the
/// forward call.
template <class V>
struct linear_attention_vjp_options {
  direction order = direction::forward;
  stored_sequence<const V> initial_state{};
  stored_sequence<const V> final_grad{};  ///< gradient of the final state; absent: 0
  detail::sequence_option<const bool> resets{};
  /// From the forward call; absent: recomputed, which takes up to a third more time.
  stored_sequence<const V> states{};
  std::int64_t interval = 0;  ///< of `states`
};

/// The gradients that linear_attention_vjp computes. Each has the name and shape of the array to
/// which it belongs; an absent gradient is not computed. The gradient of the gate is that of the
/// stored number: of the logarithm or of the factor. Zero strides are refused: sum the gradient of
/// a gate or beta that heads share afterwards.
template <class V>
struct linear_attention_gradients {
  stored_sequence<V> query{}, key{}, value{}, gate{}, beta{};
  stored_sequence<V> initial_state{};
  scanrec::update update = update::overwrite;
};

}  // namespace scanrec::inline SCANREC_ABI
