// SPDX-License-Identifier: BSD-3-Clause
// The options of the calls, as structs with defaults: name those that differ.
#pragma once

#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/sequence_view.hpp>

namespace scanrec {

/// Whether gradients replace what is there or add to it.
enum class update { overwrite, accumulate };

/// What a complex adjoint does with the factors it multiplies by.
enum class conjugation {
  hermitian,  ///< conjugates gate and state: the adjoint of the complex inner product; PyTorch's
  plain,      ///< no conjugate: the transpose of the complex-linear map; JAX's
};

/// Options of linear_scan; T is the compute type (float for bfloat16 and float16 data).
template <class T>
struct scan_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};  ///< state before the first step; absent: 0
  state_view<T> final_state{};          ///< receives the last state, before rounding to storage
  /// (batch, time or time + 1, 1 or channel): a sequence starts here. The mark behind the last step
  /// says that one starts after this: it cuts a reverse scan from its initial state.
  sequence_view<const bool> resets{};
};

/// Gradients wanted of linear_scan_vjp; those left absent are not computed. A zero stride receives
/// the sum over its axis, accumulated in the wide type.
template <class Gate, class Input = Gate>
struct scan_gradients {
  sequence_view<Gate> gate_grad{};
  sequence_view<Input> input_grad{};
  state_view<compute_t<Input>> initial_grad{};
  scanrec::update update = update::overwrite;
};

/// Options of linear_scan_vjp. `order` and `resets` are those of the forward call.
template <class T>
struct vjp_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};  ///< that of the forward call; absent: 0
  state_view<const T> final_grad{};     ///< gradient of the final state; absent: 0
  sequence_view<const bool> resets{};
  conjugation convention = conjugation::hermitian;
};

/// Options of linear_scan_jvp. `order` and `resets` are those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};    ///< that of the forward call; absent: 0
  state_view<const T> initial_tangent{};  ///< absent: 0
  state_view<T> final_tangent{};
  sequence_view<const bool> resets{};
};

}  // namespace scanrec
