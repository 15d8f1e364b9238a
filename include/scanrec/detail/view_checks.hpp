// SPDX-License-Identifier: BSD-3-Clause
// Checks of shapes, strides and spans for views, and addresses of slices.
#pragma once

#include <cstddef>
#include <cstdint>

#include <scanrec/detail/config.hpp>
#include <scanrec/error.hpp>
#include <scanrec/extents.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Whether an array has no elements in memory. An empty axis with a zero stride does not make an
/// array empty: a gradient that is a sum over no elements is still written.
constexpr bool placeless(const extents& shape, const scanrec::strides& strides) {
  const auto none = [](std::int64_t n, std::int64_t stride) { return n <= 0 && stride != 0; };
  return none(shape.batch, strides.batch) || none(shape.time, strides.time) ||
         none(shape.channel, strides.channel) || none(shape.group, strides.group);
}

/// The number of elements that a span must have for a view with non-negative strides; beyond_count
/// if that number is too large.
constexpr std::int64_t span_needed(const extents& shape, const scanrec::strides& strides) {
  if (placeless(shape, strides)) return 0;
  std::int64_t needed = 1;
  const auto reach = [&](std::int64_t n, std::int64_t stride) {
    const std::int64_t elements = stride == 0 ? 0 : clipped_product(n - 1, stride);
    if (__builtin_add_overflow(needed, elements, &needed)) needed = beyond_count;
  };
  reach(shape.batch, strides.batch), reach(shape.time, strides.time);
  reach(shape.channel, strides.channel), reach(shape.group, strides.group);
  return needed;
}

inline void check_span(const char* view, std::size_t size, const extents& shape,
                       const scanrec::strides& strides) {
  if (strides.batch < 0 || strides.time < 0 || strides.channel < 0 || strides.group < 0)
    refuse(view, "strides", "strides of 0 or more, since the data is a span", text(strides));
  const std::int64_t needed = span_needed(shape, strides);
  if (needed == beyond_count)
    refuse(view, "shape", "a last element fewer than 2^63 elements after the first",
           text(shape, " with strides ", strides));
  if (static_cast<std::int64_t>(size) < needed)
    refuse(view, "data",
           text("a span of at least ", needed, " elements for shape ", shape,
                " with strides, counted in elements, ", strides),
           text(size));
}

/// The address of a slice that starts at index `positions` of the axis with this stride. `shape` is
/// the shape of the slice. If it has no elements or `data` is null, the address stays `data`, since
/// the new one may be invalid.
template <class T>
constexpr T* moved(T* data, const extents& shape, const scanrec::strides& strides,
                   std::int64_t positions, std::int64_t stride) {
  return data == nullptr || placeless(shape, strides) ? data : data + positions * stride;
}

/// The number of steps if a whole span of `size` elements is one sequence.
constexpr std::int64_t steps_of(std::size_t size, std::int64_t channels) {
  const auto elements = static_cast<std::int64_t>(size);
  if (channels < 1) refuse("sequence_view", "channels", "1 or more", text(channels));
  if (elements % channels != 0)
    refuse("sequence_view", "data", text("a multiple of ", channels, " elements"), text(elements));
  return elements / channels;
}

/// Throws unless 0 <= first <= last <= count.
constexpr void check_range(const char* part, std::int64_t first, std::int64_t last,
                           std::int64_t count) {
  if (first < 0 || first > count) refuse(part, "first", text("0 to ", count), text(first));
  if (last < first || last > count) refuse(part, "last", text(first, " to ", count), text(last));
}

/// The strides that broadcast an array from shape `from` to shape `to`.
constexpr strides broadcast_strides(const extents& from, scanrec::strides strides,
                                    const extents& to) {
  if (to.batch < 0 || to.time < 0 || to.channel < 0 || to.group < 0)
    refuse("broadcast_to", "shape", "extents of 0 or more", text(to));
  bool fits = true;
  const auto broadcast = [&fits](std::int64_t n, std::int64_t& stride, std::int64_t wanted) {
    if (n == wanted) return;
    fits = fits && (n == 1 || (n > 1 && stride == 0));  // an empty axis cannot be broadcast
    stride = 0;
  };
  const scanrec::strides given = strides;
  broadcast(from.batch, strides.batch, to.batch), broadcast(from.time, strides.time, to.time);
  broadcast(from.channel, strides.channel, to.channel);
  broadcast(from.group, strides.group, to.group);
  if (!fits)
    refuse("broadcast_to", "view",
           text("extents that equal those of ", to, ", are 1 or have a stride of 0"),
           text("shape ", from, " with strides ", given));
  return strides;
}

}  // namespace scanrec::detail::inline SCANREC_ABI
