// SPDX-License-Identifier: BSD-3-Clause
// Memory policies: the states that a forward call keeps for its backward pass.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/views.hpp>

namespace scanrec::memory {

/// Keeps the state of every step.
///
/// Memory  one (batch, time, channel) array.
template <class T>
struct store {
  sequence_view<T> states;  ///< (batch, time, channel), in any type that computes as the rest
};
template <class T>
store(sequence_view<T>) -> store<T>;

inline namespace SCANREC_ABI {
/// Steps between two checkpoints.
inline constexpr std::int64_t checkpoint_interval = 128;
}  // namespace SCANREC_ABI

/// Keeps the state before every `interval` steps, counted from the end of the scan. The backward
/// pass recomputes the states in between, one interval at a time, in cache.
///
/// Memory  `checkpoint_extents(shape)` in the compute type: 1/128 of the elements of an array of
///         states, and in the backward pass one interval per thread. Recomputed states are rounded
///         to the type of the pre-activations, so that `store` in that type gives the same bits
///         wherever lanes process time serially.
template <class T>
struct recompute {
  static constexpr std::int64_t interval = checkpoint_interval;
  sequence_view<T> checkpoints;  ///< of shape checkpoint_extents(shape); absent up to 128 steps
};
template <class T>
recompute(sequence_view<T>) -> recompute<T>;

/// The extents of the checkpoints of a call with sequences of this shape. Up to `interval` steps
/// there are no checkpoints.
SCANREC_INLINE constexpr extents checkpoint_extents(extents shape) {
  shape.time = shape.time > 0 ? (shape.time - 1) / checkpoint_interval : 0;
  return shape;
}

}  // namespace scanrec::memory
