// SPDX-License-Identifier: BSD-3-Clause
// Memory policies, which choose the states that a forward call stores for its backward pass.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/views.hpp>

namespace scanrec::memory {

/// Stores the state of every step.
///
/// Memory  one (batch, time, channel) array.
template <class T>
struct store {
  /// (batch, time, channel), of any element type whose compute type (compute_t) is that of the call
  sequence_view<T> states;
};
template <class T>
store(sequence_view<T>) -> store<T>;

inline namespace SCANREC_ABI {
/// The checkpoint interval, in steps.
inline constexpr std::int64_t checkpoint_interval = 128;
}  // namespace SCANREC_ABI

/// Stores checkpoints: the state before each interval of 128 steps. Intervals are counted from the
/// last step of the scan, so the first one may be shorter; it starts from the initial state and
/// needs no checkpoint. The backward pass recomputes the states between checkpoints, one interval
/// at a time, in cache.
///
/// Memory  `checkpoint_extents(shape)` elements of the compute type, about one per 128 states. The
///         backward pass also needs scratch memory for one interval of states per thread.
///         Recomputed states are rounded to the type of the pre-activations. Both policies
///         therefore give the same bits if `store` uses that type and each SIMD lane processes one
///         sequence in order.
template <class T>
struct recompute {
  static constexpr std::int64_t interval = checkpoint_interval;
  /// Has the extents checkpoint_extents(shape); may be absent if these have 0 steps.
  sequence_view<T> checkpoints;
};
template <class T>
recompute(sequence_view<T>) -> recompute<T>;

/// The extents of the checkpoints for sequences of this shape. There are no checkpoints for up to
/// `interval` steps.
SCANREC_INLINE constexpr extents checkpoint_extents(extents shape) {
  shape.time = shape.time > 0 ? (shape.time - 1) / checkpoint_interval : 0;
  return shape;
}

}  // namespace scanrec::memory
