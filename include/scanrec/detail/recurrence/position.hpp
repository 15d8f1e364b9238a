// SPDX-License-Identifier: BSD-3-Clause
// The position of a kernel: the lanes and the step that it processes, and its assumptions about
// them.
#pragma once

#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

/// The axis of the lanes of a pack.
enum class lane_axis { channel, time };

/// The assumptions of a kernel about a recurrence.
enum class assume {
  nothing,    // a pack of channels may have lanes past the last channel
  all_lanes,  // no pack has lanes past the last channel
  inside,     // no masks; all neighbours are within the sequence; inputs are present unless
              // optional; outputs are stored, summed or absent, but never added to
  whole,      // all_lanes and inside
  plain,      // whole; also, inputs are present, with contiguous lanes in packs, and outputs are
              // stored, except an absent output_if_given
};
/// Whether a pack of channels may have lanes past the last channel.
SCANREC_HD constexpr bool may_lack_lanes(assume known) {
  return known == assume::nothing || known == assume::inside;
}

/// The position of a kernel: lane i is (time, channel + i), or (time + i, channel).
template <lane_axis Axis, assume Assume = assume::nothing>
struct position {
  static constexpr lane_axis along = Axis;
  std::int64_t time = 0;
  std::int64_t channel = 0;
  std::int64_t row = 0;    // steps from the element that the fields point at; 0 for time packs
  std::int64_t index = 0;  // of a pack: elements from there to the lane with the lowest address;
                           // of a scalar: channels from there
  int count = 1;           // lanes in use; the others compute on zeros, and nothing stores them
  bool reversed = false;   // the first lane has the highest address

  /// Returns the condition. It is false at compile time if `Assume` excludes masks and edges.
  SCANREC_HD static SCANREC_INLINE bool rarely(bool condition) {
    return Assume <= assume::all_lanes && condition;
  }
  /// Returns the condition. It is true at compile time if `Assume` is plain.
  SCANREC_HD static SCANREC_INLINE bool mostly(bool condition) {
    return Assume == assume::plain || condition;
  }
  /// Whether some lanes of a pack of channels are past the last channel. Their elements are not
  /// read or written.
  SCANREC_HD SCANREC_INLINE bool lacks_lanes(int lanes) const {
    return Axis == lane_axis::channel && may_lack_lanes(Assume) && count < lanes;
  }
};

/// Distance from the lanes that are processed to the lanes that are prefetched. If all members are
/// 0, nothing is prefetched.
struct lookahead {
  std::int64_t batch = 0, time = 0, channel = 0, group = 0;
  SCANREC_INLINE explicit operator bool() const { return (batch | time | channel | group) != 0; }
};

/// Number of steps in the lanes at a position.
template <class Lane, lane_axis Axis>
inline constexpr int steps_of = Axis == lane_axis::time ? simd::lane_count<Lane> : 1;

}  // namespace scanrec::inline SCANREC_ABI::recurrence
