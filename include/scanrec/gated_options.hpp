// SPDX-License-Identifier: BSD-3-Clause
// The options of gated_scan and its adjoint, as structs with defaults: name those that differ.
#pragma once

#include <scanrec/element.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/sequence_view.hpp>

namespace scanrec {

/// Options of gated_scan; T is the compute type (float for bfloat16 and float16 data).
template <class T>
struct gated_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};  ///< state before the first step; absent: 0
  state_view<T> final_state{};          ///< receives the last state, before rounding to storage
  sequence_view<const bool> resets{};   ///< as those of scan_options: a sequence starts here
  /// (batch, time, channel): where set, the state stays as it was, whatever the gates say (Krueger
  /// et al., Zoneout, 2017). Nothing is rescaled.
  sequence_view<const bool> zoneout{};
};

/// Options of gated_scan_vjp; `order`, `resets` and `zoneout` are those of the forward call.
template <class T>
struct gated_vjp_options {
  direction order = direction::forward;
  state_view<const T> initial_state{};  ///< that of the forward call; absent: 0
  state_view<const T> final_grad{};     ///< gradient of the final state; absent: 0
  sequence_view<const bool> resets{};
  sequence_view<const bool> zoneout{};
};

/// Gradients wanted of gated_scan_vjp; those left absent are not computed. A zero stride receives
/// the sum over its axis, accumulated in the wide type.
template <class Cell, class T>
struct gated_gradients {
  typename Cell::template arrays<sequence_view<T>> arrays{};  ///< of the pre-activations
  state_view<compute_t<T>> initial_grad{};
  scanrec::update update = update::overwrite;
};

}  // namespace scanrec
