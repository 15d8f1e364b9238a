// SPDX-License-Identifier: BSD-3-Clause
// The reset mask of a call as kernels see it, in scan order.
#pragma once

#include <cstdint>

#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/position.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Resets in scan order. A reset at step t cuts t - 1 from t. A forward call and its adjoint find
/// the reset of a step's link at that step, a reverse call and its adjoint one step off, hence
/// `shift`. At the edge of the sequence these read the reset after the last step, if there is one.
struct reset_field {
  input_field<bool> reset_mask;
  int shift = 0;  // 0: the reset of this step; -1 or +1: of its neighbour in scan order
  std::int64_t step_without_reset =
      -1;  // the step whose mark would lie outside of the array; -1: none

  SCANREC_HD SCANREC_INLINE bool present() const { return reset_mask.present(); }
  /// Whether a reset is read before the first step in scan order, or after the last.
  bool before_first() const { return shift < 0 && step_without_reset < 0; }
  bool after_last() const { return shift > 0 && step_without_reset < 0; }

  /// Whether a channel is reset from the step before, of fields that point at the first element.
  SCANREC_HD SCANREC_INLINE bool at(std::int64_t batch, std::int64_t time,
                                    std::int64_t channel) const {
    const scanrec::strides& by = reset_mask.strides;
    return time != step_without_reset &&
           reset_mask.data[batch * by.batch + (time + shift) * by.time + channel * by.channel];
  }

  /// 1 in the lanes that are reset, 0 in the others.
  template <class Mask, lane_axis Axis, assume Assume>
  SCANREC_HD SCANREC_INLINE Mask load(position<Axis, Assume> at) const {
    if (at.time == step_without_reset) return simd::constant<Mask>(0);
    return reset_mask.template load_neighbour<Mask>(at, shift);
  }
  /// Whether any of `lanes` steps from a place on is reset, or has no neighbour to look at.
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool any(position<lane_axis::time, Assume> at) const {
    if (at.time <= step_without_reset && step_without_reset < at.time + Lanes) return true;
    const bool* first = reset_mask.data + shift * reset_mask.strides.time;
    return reset_mask.strides.time == 0 ? *first : simd::any_set<Lanes>(first + at.index);
  }
};

/// The resets of a scan whose resets are in scan order. `call` is the direction of the forward
/// call, for its adjoint, too; `adjoint` is true for scans that run against it; `one_more` if there
/// is a mark after the last step.
inline reset_field resets_of(const input_field<bool>& reset_mask, direction call, bool adjoint,
                             std::int64_t steps, bool one_more) {
  reset_field resets{reset_mask};
  if (call == direction::forward) return resets;
  // The link from t + 1 to t, which the reset at t + 1 cuts. A reverse call takes it at step t, one
  // step after t + 1 in scan order; its adjoint, in time order, at step t, one step before.
  resets.shift = adjoint ? 1 : -1;
  if (!one_more) resets.step_without_reset = adjoint ? steps - 1 : 0;
  return resets;
}

}  // namespace scanrec::inline SCANREC_ABI::recurrence
