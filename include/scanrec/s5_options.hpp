// SPDX-License-Identifier: BSD-3-Clause
// The options of s5() and s5_vjp(), on CPUs and on GPUs.
#pragma once

#include <complex>

#include <scanrec/sequence_view.hpp>

namespace scanrec::inline SCANREC_ABI {

/// Options of s5(); of systems that run both ways there are no states to start from.
template <class R>
struct s5_options {
  state_view<const std::complex<R>> initial_state{};  ///< (batch, P); absent: 0
  state_view<std::complex<R>> final_state{};
  /// (batch, time or time + 1, 1 or P): a sequence starts here. The mark behind the last step cuts
  /// nothing: states that run backward start there from 0.
  sequence_view<const bool> resets{};
  /// For samples at irregular times, (batch, time, 1): the factor of the step at each.
  sequence_view<const R> intervals{};
  /// With intervals, (batch, time, P): receives the gates of every step, for s5_vjp().
  sequence_view<std::complex<R>> gates{};
};
/// Options of s5_vjp(); `resets`, `initial_state`, `intervals` and `gates` are those of the forward
/// call.
template <class R>
struct s5_vjp_options {
  state_view<const std::complex<R>> initial_state{};
  state_view<const std::complex<R>> final_grad{};
  state_view<std::complex<R>> initial_grad{};  ///< receives the gradient of the initial state
  sequence_view<const bool> resets{};
  sequence_view<const R> intervals{};
  sequence_view<const std::complex<R>> gates{};  ///< what s5() wrote
  sequence_view<R> intervals_grad{};             ///< receives the gradient of the intervals
};

}  // namespace scanrec::inline SCANREC_ABI
