// SPDX-License-Identifier: BSD-3-Clause
// Options of the calls: structs with defaults, for designated initialisers. A state_option<T> is a
// state_view<T>; a sequence_option<T> is a sequence_view<T>.
#pragma once

#include <complex>

#include <scanrec/detail/view_parameter.hpp>
#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

/// Whether gradients overwrite their arrays or are added to them.
enum class update { overwrite, accumulate };

/// Whether a complex adjoint conjugates the factors of its products.
enum class conjugation {
  hermitian,  ///< conjugates gate and state: adjoint under the complex inner product (PyTorch)
  none,       ///< no conjugates: the transpose of the complex-linear map (JAX)
};

/// Options of linear_scan; T is the compute type (float for bfloat16 and float16 data).
template <class T>
struct scan_options {
  direction order = direction::forward;
  /// State before the first step of the scan, which in reverse order is the last step in time;
  /// absent: 0.
  detail::state_option<const T> initial_state{};
  /// Receives the last state of the scan, without rounding to a 16-bit type.
  detail::state_option<T> final_state{};
  /// Reset mask, (batch, time or time + 1, 1 or channel): true where a sequence starts. The
  /// optional reset after the last step in time makes a reverse scan ignore its initial state.
  detail::sequence_option<const bool> resets{};
};

/// The gradients that linear_scan_vjp computes; an absent gradient is not computed. A gradient with
/// a zero stride receives the sum over that axis, accumulated in the wide type (double for float).
template <class Gate, class Input = Gate>
struct scan_gradients {
  detail::sequence_option<Gate> gate_grad{};
  detail::sequence_option<Input> input_grad{};
  detail::state_option<compute_t<Input>> initial_grad{};
  scanrec::update update = update::overwrite;
};

/// Options of linear_scan_vjp. `order` and `resets` must be those of the forward call.
template <class T>
struct vjp_options {
  direction order = direction::forward;
  detail::state_option<const T> initial_state{};  ///< as in the forward call; absent: 0
  detail::state_option<const T> final_grad{};     ///< gradient of the final state; absent: 0
  detail::sequence_option<const bool> resets{};
  conjugation convention = conjugation::hermitian;
};

/// Options of linear_scan_jvp. `order` and `resets` must be those of the forward call.
template <class T>
struct jvp_options {
  direction order = direction::forward;
  detail::state_option<const T> initial_state{};    ///< as in the forward call; absent: 0
  detail::state_option<const T> initial_tangent{};  ///< absent: 0
  detail::state_option<T> final_tangent{};
  detail::sequence_option<const bool> resets{};
};

/// Options of gated_scan; T is the compute type (float for bfloat16 and float16 data).
template <class T>
struct gated_options {
  direction order = direction::forward;
  /// State before the first step of the scan, which in reverse order is the last step in time;
  /// absent: 0.
  detail::state_option<const T> initial_state{};
  /// Receives the last state of the scan, without rounding to a 16-bit type.
  detail::state_option<T> final_state{};
  /// Reset mask, as in scan_options.
  detail::sequence_option<const bool> resets{};
  /// (batch, time, channel): where true, the state keeps its value, and no gate acts except an
  /// output gate (Krueger et al., Zoneout, 2017). The other steps are not rescaled.
  detail::sequence_option<const bool> zoneout{};
};

/// Options of gated_scan_vjp. `order`, `resets` and `zoneout` must be those of the forward call.
template <class T>
struct gated_vjp_options {
  direction order = direction::forward;
  detail::state_option<const T> initial_state{};  ///< as in the forward call; absent: 0
  detail::state_option<const T> final_grad{};     ///< gradient of the final state; absent: 0
  detail::sequence_option<const bool> resets{};
  detail::sequence_option<const bool> zoneout{};
};

/// The gradients that gated_scan_vjp computes; an absent gradient is not computed. A gradient with
/// a zero stride receives the sum over that axis, accumulated in the wide type (double for float).
template <class Cell, class T>
struct gated_gradients {
  typename Cell::template arrays<sequence_view<T>> arrays{};  ///< gradients of the pre-activations
  detail::state_option<compute_t<T>> initial_grad{};
  scanrec::update update = update::overwrite;
};

/// Options of s5(), for P states and the real type R. Bidirectional systems take no initial_state
/// and no final_state.
template <class R>
struct s5_options {
  detail::state_option<const std::complex<R>> initial_state{};  ///< (batch, P); absent: 0
  detail::state_option<std::complex<R>> final_state{};
  /// Reset mask, (batch, time or time + 1, 1 or P): true where a sequence starts. The reset after
  /// the last step has no effect, since backward states start from 0 anyway.
  detail::sequence_option<const bool> resets{};
  /// For samples at irregular times, (batch, time, 1): factors that multiply the step sizes at each
  /// sample.
  detail::sequence_option<const R> intervals{};
  /// Required with `intervals`, (batch, time, P): receives the gates of every step, for s5_vjp().
  detail::sequence_option<std::complex<R>> gates{};
};
/// Options of s5_vjp(). `resets`, `initial_state`, `intervals` and `gates` must be those of the
/// forward call.
template <class R>
struct s5_vjp_options {
  detail::state_option<const std::complex<R>> initial_state{};
  detail::state_option<const std::complex<R>> final_grad{};
  /// Receives the gradient of the initial state.
  detail::state_option<std::complex<R>> initial_grad{};
  detail::sequence_option<const bool> resets{};
  detail::sequence_option<const R> intervals{};
  detail::sequence_option<const std::complex<R>> gates{};  ///< as written by s5()
  detail::sequence_option<R> intervals_grad{};  ///< receives the gradient of the intervals
};

}  // namespace scanrec
