// SPDX-License-Identifier: BSD-3-Clause
// Views: pointer, extents and strides over (group, batch, time, channel), with slicing,
// broadcasting and reversal.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/view_checks.hpp>
#include <scanrec/detail/view_data.hpp>
#include <scanrec/error.hpp>
#include <scanrec/extents.hpp>

namespace scanrec {

/// A non-owning array over (group, batch, time, channel): element (g, b, t, c) is at
/// `data[g * strides.group + b * strides.batch + t * strides.time + c * strides.channel]`.
///
/// Strides are in elements. A negative stride runs through an axis backwards. With a zero stride,
/// an array that is read is broadcast along the axis, and a gradient receives the sum over the
/// axis. A default-constructed view represents an absent array.
template <class T>
struct sequence_view {
  T* data = nullptr;
  extents shape{0, 0, 0, 0};
  scanrec::strides strides{};

  SCANREC_INLINE constexpr sequence_view() = default;
  /// A contiguous channels-last array.
  SCANREC_INLINE constexpr sequence_view(T* first, const extents& shape_of)
      : sequence_view(first, shape_of, channels_last(shape_of)) {}
  SCANREC_INLINE constexpr sequence_view(T* first, const extents& shape_of,
                                         const scanrec::strides& strides_of)
      : data(first), shape(shape_of), strides(strides_of) {}
  /// A view of a span. Throws argument_error if the span is too small or a stride is negative.
  SCANREC_INLINE sequence_view(std::span<T> elements, const extents& shape_of)
      : sequence_view(elements, shape_of, channels_last(shape_of)) {}
  SCANREC_INLINE sequence_view(std::span<T> elements, const extents& shape_of,
                               const scanrec::strides& strides_of)
      : sequence_view(elements.data(), shape_of, strides_of) {
    detail::check_span("sequence_view", elements.size(), shape_of, strides_of);
  }
  /// The whole span as one sequence of one channel with elements.size() steps.
  SCANREC_INLINE constexpr explicit sequence_view(std::span<T> elements)
      : sequence_view(elements, 1) {}
  /// The whole span as one sequence, channel fastest, with `channels` channels and
  /// elements.size() / channels steps. Throws argument_error if channels is less than 1 or does not
  /// divide the size.
  ///
  /// This is a template so that a braced second argument means extents.
  template <std::integral Count>
  SCANREC_INLINE constexpr sequence_view(std::span<T> elements, Count channels)
      : sequence_view(elements.data(), {.time = detail::steps_of(
                                            elements.size(), static_cast<std::int64_t>(channels)),
                                        .channel = static_cast<std::int64_t>(channels)}) {}
  /// Reports at compile time why a container cannot be viewed, for example a temporary one.
  template <class Container>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, const extents&) {
    detail::check_container<Container, T>();
  }
  template <class Container>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, const extents&,
                                                           const scanrec::strides&) {
    detail::check_container<Container, T>();
  }
  template <class Container, std::integral Count>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, Count) {
    detail::check_container<Container, T>();
  }
  /// Converts a view of mutable elements to a view of const elements.
  template <class U>
  requires(std::is_same_v<const U, T>) SCANREC_INLINE
      constexpr sequence_view(const sequence_view<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  /// Whether the view represents an absent array.
  [[nodiscard]] SCANREC_INLINE constexpr bool absent() const {
    return data == nullptr && shape == extents{0, 0, 0, 0};
  }

  /// Element (group, batch, time, channel), without bounds checks.
  [[nodiscard]] SCANREC_HD SCANREC_INLINE constexpr T& at(std::int64_t batch, std::int64_t time,
                                                          std::int64_t channel,
                                                          std::int64_t group = 0) const {
    return data[group * strides.group + batch * strides.batch + time * strides.time +
                channel * strides.channel];
  }

  /// Steps [first, last) of every sequence: (batch, last - first, channel), with the same strides.
  /// No data moves. Throws argument_error unless 0 <= first <= last <= shape.time.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view steps(std::int64_t first,
                                                             std::int64_t last) const {
    detail::check_range("steps", first, last, shape.time);
    sequence_view part = *this;
    part.shape.time = last - first;
    part.data = detail::moved(data, part.shape, strides, first, strides.time);
    return part;
  }
  /// Channels [first, last) of every step: (batch, time, last - first), with the same strides. No
  /// data moves. Throws argument_error unless 0 <= first <= last <= shape.channel.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view channels(std::int64_t first,
                                                                std::int64_t last) const {
    detail::check_range("channels", first, last, shape.channel);
    sequence_view part = *this;
    part.shape.channel = last - first;
    part.data = detail::moved(data, part.shape, strides, first, strides.channel);
    return part;
  }
  /// The same elements in reverse time order: step t of the result is step shape.time - 1 - t of
  /// this view. The time stride is negated; no data moves. Without resets, a scan over reversed
  /// views is a scan in direction::reverse over the views themselves. With resets it is not: in
  /// both directions, a reset at step t separates steps t - 1 and t of the array. In a reversed
  /// mask, that reset would separate steps t and t + 1 of the array.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view reversed() const {
    sequence_view turned = *this;
    turned.data = detail::moved(data, shape, strides, shape.time - 1, strides.time);
    // Unsigned, because with fewer than two steps the stride may be the lowest number, whose
    // negation overflows.
    turned.strides.time = static_cast<std::int64_t>(-static_cast<std::uint64_t>(strides.time));
    return turned;
  }
};

/// A non-owning array over (group, batch, channel): one state per sequence. The time entries of
/// `shape` and `strides` are ignored, so that the extents of sequences can be passed.
template <class T>
struct state_view {
  T* data = nullptr;
  extents shape{0, 0, 0, 0};
  scanrec::strides strides{};

  SCANREC_INLINE constexpr state_view() = default;
  /// A contiguous (group, batch, channel) array, channel fastest.
  SCANREC_INLINE constexpr state_view(T* first, const extents& shape_of)
      : state_view(first, shape_of, contiguous(shape_of)) {}
  SCANREC_INLINE constexpr state_view(T* first, const extents& shape_of,
                                      const scanrec::strides& strides_of)
      : data(first), shape(one_step(shape_of)), strides(strides_of) {
    strides.time = 0;
  }
  /// A view of a span. Throws argument_error if the span is too small or a stride is negative.
  SCANREC_INLINE state_view(std::span<T> elements, const extents& shape_of)
      : state_view(elements, shape_of, contiguous(shape_of)) {}
  SCANREC_INLINE state_view(std::span<T> elements, const extents& shape_of,
                            const scanrec::strides& strides_of)
      : state_view(elements.data(), shape_of, strides_of) {
    detail::check_span("state_view", elements.size(), shape, strides);
  }
  /// Reports at compile time why a container cannot be viewed, for example a temporary one.
  template <class Container>
  requires detail::no_span_for<Container, T> state_view(Container&&, const extents&) {
    detail::check_container<Container, T>();
  }
  template <class Container>
  requires detail::no_span_for<Container, T> state_view(Container&&, const extents&,
                                                        const scanrec::strides&) {
    detail::check_container<Container, T>();
  }
  template <class U>
  requires(std::is_same_v<const U, T>) SCANREC_INLINE
      constexpr state_view(const state_view<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  [[nodiscard]] SCANREC_INLINE constexpr bool absent() const {
    return data == nullptr && shape == extents{0, 0, 0, 0};
  }

  /// Element (group, batch, channel), without bounds checks.
  [[nodiscard]] SCANREC_HD SCANREC_INLINE constexpr T& at(std::int64_t batch, std::int64_t channel,
                                                          std::int64_t group = 0) const {
    return data[group * strides.group + batch * strides.batch + channel * strides.channel];
  }

  /// Channels [first, last) of every state: (batch, last - first), with the same strides. No data
  /// moves. Throws argument_error unless 0 <= first <= last <= shape.channel.
  [[nodiscard]] SCANREC_INLINE constexpr state_view channels(std::int64_t first,
                                                             std::int64_t last) const {
    detail::check_range("channels", first, last, shape.channel);
    state_view part = *this;
    part.shape.channel = last - first;
    part.data = detail::moved(data, part.shape, strides, first, strides.channel);
    return part;
  }

 private:
  SCANREC_INLINE static constexpr extents one_step(extents e) {
    e.time = 1;
    return e;
  }
  SCANREC_INLINE static constexpr scanrec::strides contiguous(const extents& e) {
    return channels_last(one_step(e));
  }
};

// Deduction from ranges that convert to a span: std::vector, std::array, C arrays and spans. (If
// extents follow a C array, the array decays to a pointer, so its size is not checked.)
template <class Range>
sequence_view(Range&&) -> sequence_view<detail::span_element<Range>>;
template <class Range, std::integral Count>
sequence_view(Range&&, Count) -> sequence_view<detail::span_element<Range>>;
template <class Range>
sequence_view(Range&&, extents) -> sequence_view<detail::span_element<Range>>;
template <class Range>
sequence_view(Range&&, extents, strides) -> sequence_view<detail::span_element<Range>>;
template <class Range>
state_view(Range&&, extents) -> state_view<detail::span_element<Range>>;
template <class Range>
state_view(Range&&, extents, strides) -> state_view<detail::span_element<Range>>;

// Compile-time errors for arguments that cannot be viewed. The guides deduce no_element for them,
// and the constructors of these views report the error.
template <>
struct sequence_view<detail::no_element> {
  template <class Data, class... Rest>
  explicit sequence_view(const Data&, const Rest&...) {
    detail::check_data<Data>();
  }
};
template <>
struct state_view<detail::no_element> {
  template <class Data, class... Rest>
  explicit state_view(const Data&, const Rest&...) {
    detail::check_data<Data>();
  }
};
template <class Data, class... Rest>
requires(detail::no_array<Data> ||
         (detail::only_counts<Data, Rest...> && (sizeof...(Rest) > 1 || !detail::spannable<Data>)))
    sequence_view(Data&&, Rest...)
->sequence_view<detail::no_element>;
template <class Data, class... Rest>
requires(detail::no_array<Data> || detail::only_counts<Data, Rest...>) state_view(Data&&, Rest...)
->state_view<detail::no_element>;

/// Broadcasts a view to `shape`. An axis whose extent differs from that of `shape` gets the extent
/// of `shape` and a stride of 0. Such an axis must have an extent of 1, or a stride of 0 and a
/// positive extent. No data moves. All positions along a broadcast axis share one element, and a
/// gradient receives the sum over the axis.
///
/// Throws argument_error if an axis cannot be broadcast, or if `shape` has a negative extent.
template <class T>
[[nodiscard]] SCANREC_INLINE constexpr sequence_view<T> broadcast_to(const sequence_view<T>& view,
                                                                     const extents& shape) {
  return {view.data, shape, detail::broadcast_strides(view.shape, view.strides, shape)};
}
/// Broadcasts states over (batch, channel, group); the time extent of `shape` is ignored.
template <class T>
[[nodiscard]] SCANREC_INLINE constexpr state_view<T> broadcast_to(const state_view<T>& view,
                                                                  const extents& shape) {
  extents states = shape;
  states.time = view.shape.time;
  return {view.data, states, detail::broadcast_strides(view.shape, view.strides, states)};
}

/// Represents an absent array, such as a state that is not wanted or a tangent that is zero.
struct none_t {
  [[nodiscard]] SCANREC_INLINE static constexpr bool absent() { return true; }
};
inline constexpr none_t none{};

}  // namespace scanrec
