// SPDX-License-Identifier: BSD-3-Clause
// The arguments of causal_conv1d and its adjoint.
#pragma once

#include <cstdint>

#include <scanrec/options.hpp>
#include <scanrec/stored_sequence.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// The activation f that a causal convolution applies to its sums.
enum class conv1d_activation : std::uint8_t { none, silu };

/// The input arrays of a causal convolution. V is the compute type, float or double.
///
/// Shapes  x: (batch, time, channel), in any element type whose compute type is V. weight:
///         (channel, taps), with the taps on the `group` axis, the oldest step's tap first. bias:
///         (channel); absent: 0.
template <class V>
struct causal_conv1d_arrays {
  stored_sequence<const V> x;
  detail::state_option<const V> weight;
  detail::state_option<const V> bias{};
  conv1d_activation activation = conv1d_activation::none;
};

/// Options of causal_conv1d. A state contains the most recent inputs, oldest first. Its shape
/// is (batch, time, channel), with taps - 1 steps or more.
template <class V>
struct causal_conv1d_options {
  stored_sequence<const V> initial_state{};      ///< inputs before the first step; absent: 0
  stored_sequence<V> final_state{};              ///< receives the last inputs; 0 before a reset
  detail::sequence_option<const bool> resets{};  ///< (batch, time, 1): true where a sequence starts
};

/// Options of causal_conv1d_vjp; `initial_state` and `resets` are those of the forward call.
template <class V>
struct causal_conv1d_vjp_options {
  stored_sequence<const V> initial_state{};
  stored_sequence<const V> final_grad{};  ///< gradient of the final state; absent: 0
  detail::sequence_option<const bool> resets{};
};

/// The gradients that causal_conv1d_vjp computes. Each has the name and shape of the array to which
/// it belongs; an absent gradient is not computed.
template <class V>
struct causal_conv1d_gradients {
  stored_sequence<V> x{};
  detail::state_option<V> weight{};
  detail::state_option<V> bias{};
  stored_sequence<V> initial_state{};
  scanrec::update update = update::overwrite;
};

}  // namespace scanrec::inline SCANREC_ABI
