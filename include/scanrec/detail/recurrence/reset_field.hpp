// SPDX-License-Identifier: BSD-3-Clause
// The reset mask of a call as kernels see it, in scan order.
#pragma once

#include <cstdint>

#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/position.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// Resets in scan order. A reset at step t in time order stops the carry between t - 1 and t, in
/// both directions. A forward call and its adjoint need this reset at step t. A reverse call and
/// its adjoint need it at step t - 1, hence `shift`. At the last step in time, they need the reset
/// after it, if the mask has one.
struct reset_field {
  input_field<bool> reset_mask;
  int shift = 0;  // 0: the reset of this step; -1 or +1: of its neighbour in scan order
  /// The step whose reset would lie outside of the mask; -1: none.
  std::int64_t step_without_reset = -1;

  SCANREC_HD SCANREC_INLINE bool present() const { return reset_mask.present(); }
  /// Whether a scan reads the entry of the mask before its first step, or (after_last) the entry
  /// after its last step.
  bool before_first() const { return shift < 0 && step_without_reset < 0; }
  bool after_last() const { return shift > 0 && step_without_reset < 0; }

  /// Whether a channel is reset at a step, if the field points at the first element of the mask.
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
  /// Whether any of `Lanes` steps from this position on is reset, or has no entry in the mask.
  template <int Lanes, assume Assume>
  SCANREC_INLINE bool any(position<lane_axis::time, Assume> at) const {
    if (at.time <= step_without_reset && step_without_reset < at.time + Lanes) return true;
    const bool* first = reset_mask.data + shift * reset_mask.strides.time;
    return reset_mask.strides.time == 0 ? *first : simd::any_set<Lanes>(first + at.index);
  }
};

/// The resets of a scan whose mask has strides in scan order. `call` is the direction of the call,
/// or, for an adjoint, of the call that it differentiates. `adjoint` is true for scans that run
/// against that direction. `one_more` is true if the mask has an entry after the last step in time.
inline reset_field resets_of(const input_field<bool>& reset_mask, direction call, bool adjoint,
                             std::int64_t steps, bool one_more) {
  reset_field resets{reset_mask};
  if (call == direction::forward) return resets;
  // A reset at t + 1 masks the link between t and t + 1. A reverse call uses this link at step t,
  // which comes after t + 1 in scan order. Its adjoint runs in time order and uses the link at step
  // t too, which comes before t + 1.
  resets.shift = adjoint ? 1 : -1;
  if (!one_more) resets.step_without_reset = adjoint ? steps - 1 : 0;
  return resets;
}

}  // namespace scanrec::inline SCANREC_ABI::recurrence
