// SPDX-License-Identifier: BSD-3-Clause
// problem: the description of a call, with the shapes, layouts and uses of its arrays. It is not a
// template over their element types.
//
// Calls describe their arrays in a problem, check it, and bring it to scan order, the order in
// which the scan processes time. Backends plan from it. Code in this file accesses no elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include <scanrec/views.hpp>

namespace scanrec {

/// The order in which a scan processes time.
enum class direction {
  forward,  ///< state[t] depends on state[t-1]
  reverse,  ///< state[t] depends on state[t+1]; no array is copied
};

inline namespace SCANREC_ABI {

/// The direction in which the adjoint of a scan runs.
SCANREC_INLINE constexpr direction opposite(direction order) {
  return order == direction::forward ? direction::reverse : direction::forward;
}

/// How a call uses an array.
enum class access {
  read,
  write,       ///< no two elements share memory
  accumulate,  ///< a gradient, overwritten or added to; zero strides receive sums
};

/// One array of a call.
struct array_use {
  const char* name = "";
  const std::byte* data = nullptr;  // null: absent
  extents shape{0, 0, 0, 0};
  scanrec::strides strides{};  // in elements
  std::int64_t element_bytes = 0;
  std::int64_t wide_bytes = 0;  // of the wide type, in which sums are formed
  std::int64_t alignment = 1;
  const void* type = nullptr;  // one address per element type
  access use = access::read;
  bool sequence = true;                // false: one value per sequence, or checkpoints
  bool given = false;                  // not absent; it may have no elements
  bool in_place = false;               // aliases an array that is read
  bool one_channel_will_do = false;    // a channel extent of 1 is allowed (resets)
  bool one_step_more_will_do = false;  // an additional step is allowed (resets)
  bool one_step_more = false;          // has a reset after the last step of `shape`
  bool makes_factor = false;           // the gates are computed from it
  bool checkpoints = false;            // one value per sequence and checkpoint interval
};

/// The maximum numbers of arrays of a call, and of arrays that it writes.
inline constexpr int most_arrays = 16, most_outputs = 6;

/// The sizes of the parts of a recurrence for one lane. Backends use them to lay out scratch
/// memory.
struct recurrence_sizes {
  std::int64_t compute_bytes = 0;     // a value of the compute type
  std::int64_t sums_bytes = 0;        // running sums of outputs
  std::int64_t carried_bytes = 0;     // a state and running sums
  std::int64_t map_bytes = 0;         // the map of one step, with its reset if there are resets
  std::int64_t step_bytes = 0;        // the values loaded in one step
  std::int64_t carry_bytes = 0;       // a state in the wide type
  std::int64_t carry_map_bytes = 0;   // the map of many steps
  std::int64_t recomputed_bytes = 0;  // a recomputed state; 0: none are recomputed
  std::int64_t alignment = 64;        // of everything a backend stores in scratch
  int pack_lanes = 1;                 // lanes of a SIMD pack along channels
  bool one_by_one = false;            // arrays are never copied to be contiguous for packs
  bool linear = false;                // gate and input are used as loaded, without activations
};

/// The description of a call, as returned by linear_scan_problem and similar functions. See
/// describe().
struct problem : recurrence_sizes {
  const char* call = "";
  extents shape{0, 0, 0, 0};
  std::array<array_use, most_arrays> arrays{};
  int count = 0;
  bool update = false;  // whether gradients are added to, not overwritten

  SCANREC_INLINE const array_use* begin() const { return arrays.data(); }
  SCANREC_INLINE const array_use* end() const { return arrays.data() + count; }
  SCANREC_INLINE array_use* begin() { return arrays.data(); }
  SCANREC_INLINE array_use* end() { return arrays.data() + count; }
};

}  // namespace SCANREC_ABI
}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

/// An axis of extents and of strides.
enum class axis : std::uint8_t { group, batch, time, channel };
inline constexpr std::array<axis, 4> all_axes{axis::group, axis::batch, axis::time, axis::channel};

/// The extent or stride of an axis.
template <class Sizes>
SCANREC_HD SCANREC_INLINE constexpr auto& along(Sizes& sizes, axis a) {
  return a == axis::group   ? sizes.group
         : a == axis::batch ? sizes.batch
         : a == axis::time  ? sizes.time
                            : sizes.channel;
}

/// Minimum alignment of scratch memory. Only elements of an operator may need more.
inline constexpr std::int64_t least_alignment = 64;

/// Upper limit to which sizes in bytes are clipped. No machine has that much memory.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 56;

constexpr std::int64_t element_count(const extents& e) {
  return e.group * e.batch * e.time * e.channel;
}

template <class T>
inline constexpr char type_tag{};

/// Describes a view as an array of a call.
template <class View>
SCANREC_INLINE void describe_view(array_use& array, const char* name, const View& view,
                                  access use) {
  using element = std::remove_const_t<std::remove_pointer_t<decltype(view.data)>>;
  array.name = name;
  array.data = reinterpret_cast<const std::byte*>(view.data);
  array.shape = view.shape, array.strides = view.strides;
  array.element_bytes = sizeof(element), array.alignment = alignof(element);
  array.type = &type_tag<element>;
  array.use = use;
  array.given = !view.absent();
}
template <class View>
SCANREC_INLINE array_use use_of(const char* name, const View& view, access use) {
  array_use array;
  describe_view(array, name, view, use);
  return array;
}

/// Whether the array is broadcast along this axis: one value for all positions.
constexpr bool broadcast_along(const array_use& array, axis a) {
  return along(array.shape, a) != 1 && along(array.strides, a) == 0;
}
inline bool placeless(const array_use& array) { return placeless(array.shape, array.strides); }

inline bool summed(const array_use& array) {
  if (array.use != access::accumulate || !array.given || placeless(array)) return false;
  for (const axis a : all_axes)
    if (broadcast_along(array, a)) return true;
  return false;
}

/// Brings every array to scan order: with `descending`, the time axis is read from its end.
inline void to_scan_order(problem& p, bool descending) {
  if (!descending) return;
  for (array_use& array : p) {
    if (!array.sequence || array.data == nullptr || array.shape.time == 0) continue;
    array.data += (array.shape.time - 1) * array.strides.time * array.element_bytes;
    array.strides.time = -array.strides.time;
  }
}

/// Relabels the axes other than time, which recurrences treat alike. An outer axis that continues
/// the channel axis in every array becomes part of it. For example, time-major arrays (time, batch,
/// channel) then have one channel axis of extent batch * channel. If the channel axis has extent 1,
/// it is swapped with the batch or group axis.
inline void merge_axes(problem& p) {
  const auto swap_axes = [&p](axis a, axis b) {
    std::swap(along(p.shape, a), along(p.shape, b));
    for (array_use& array : p) {
      std::swap(along(array.shape, a), along(array.shape, b));
      std::swap(along(array.strides, a), along(array.strides, b));
    }
  };
  const auto continues = [&p](axis outer) {
    for (const array_use& array : p)
      if (array.data && along(array.strides, outer) != array.strides.channel * p.shape.channel)
        return false;
    return true;
  };
  constexpr axis outer_axes[]{axis::batch, axis::group};
  for (const axis outer : outer_axes) {
    if (along(p.shape, outer) <= 1) continue;
    if (p.shape.channel == 1) {
      swap_axes(axis::channel, outer);
    } else if (continues(outer)) {
      p.shape.channel *= along(p.shape, outer);
      along(p.shape, outer) = 1;
      for (array_use& array : p) {
        array.shape.channel = p.shape.channel;
        along(array.shape, outer) = 1;
      }
    }
  }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
