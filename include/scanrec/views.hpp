// SPDX-License-Identifier: BSD-3-Clause
// Views: pointer + extents + strides over (group, batch, time, channel); layout, packing,
// broadcast, parts and turns.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <scanrec/detail/call/explain_views.hpp>
#include <scanrec/detail/config.hpp>
#include <scanrec/error.hpp>

namespace scanrec {

/// Sizes of a problem, or of an array: how many positions each axis has. An axis that is left out
/// has one.
///
/// `group` is one more outer axis, for heads or a vectorised-over axis.
/// Designated initialisers read best: `extents{.batch = 8, .time = 4096, .channel = 256}`.
struct extents {
  std::int64_t batch = 1;
  std::int64_t time = 1;
  std::int64_t channel = 1;
  std::int64_t group = 1;

  SCANREC_INLINE friend constexpr bool operator==(const extents& x, const extents& y) {
    return x.batch == y.batch && x.time == y.time && x.channel == y.channel && x.group == y.group;
  }
};

/// Strides of an array: how many elements apart two neighbours on an axis are. An axis that is left
/// out has a stride of 0: one element for all its positions.
///
/// A type apart from `extents`, whose axes default to 1 and which cannot stand in for it.
struct strides {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t channel = 0;
  std::int64_t group = 0;

  SCANREC_INLINE friend constexpr bool operator==(const strides& x, const strides& y) {
    return x.batch == y.batch && x.time == y.time && x.channel == y.channel && x.group == y.group;
  }
};

namespace detail {
inline namespace SCANREC_ABI {
inline void append(text& t, const extents& e) {
  append(t, text("(batch ", e.batch, ", time ", e.time, ", channel ", e.channel));
  if (e.group != 1) append(t, text(", group ", e.group));
  append(t, ")");
}
inline void append(text& t, const strides& s) {
  append(t, text("(batch ", s.batch, ", time ", s.time, ", channel ", s.channel));
  if (s.group != 0) append(t, text(", group ", s.group));
  append(t, ")");
}
}  // namespace SCANREC_ABI
}  // namespace detail

inline namespace SCANREC_ABI {
/// "(batch 8, time 4096, channel 256)", with the group where it is not 1.
inline std::string to_string(const extents& e) { return detail::text(e).c_str(); }
/// The same for strides, with the group where it is not 0.
inline std::string to_string(const strides& s) { return detail::text(s).c_str(); }
}  // namespace SCANREC_ABI

namespace detail {
inline namespace SCANREC_ABI {
/// What stands for numbers of elements that are beyond any array.
inline constexpr std::int64_t beyond_count = std::numeric_limits<std::int64_t>::max();

/// a * b, or `most` where that is less: as many stand for more than any machine has, and what
/// cannot have them is refused. Strides of axes with one position may be anything.
SCANREC_INLINE constexpr std::int64_t clipped_product(std::int64_t a, std::int64_t b,
                                                      std::int64_t most = beyond_count) {
  std::int64_t product = 0;
  const bool wraps = __builtin_mul_overflow(a, b, &product);
  return wraps || product > most ? most : product;
}
}  // namespace SCANREC_ABI
}  // namespace detail

/// Strides of a contiguous channels-last array (group, batch, time, channel), channel fastest.
SCANREC_INLINE constexpr strides channels_last(const extents& shape) {
  const std::int64_t row = detail::clipped_product(shape.time, shape.channel);
  return {.batch = row,
          .time = shape.channel,
          .channel = 1,
          .group = detail::clipped_product(shape.batch, row)};
}

/// Strides of a contiguous time-contiguous array (group, batch, channel, time), time fastest.
SCANREC_INLINE constexpr strides time_contiguous(const extents& shape) {
  const std::int64_t row = detail::clipped_product(shape.time, shape.channel);
  return {.batch = row,
          .time = 1,
          .channel = shape.time,
          .group = detail::clipped_product(shape.batch, row)};
}

namespace detail {
inline namespace SCANREC_ABI {
/// Whether an array has no place at all. An empty axis with a zero stride takes none away: what a
/// gradient is the sum over may be nothing, and the sum is written.
constexpr bool placeless(const extents& shape, const scanrec::strides& strides) {
  const auto none = [](std::int64_t n, std::int64_t stride) { return n <= 0 && stride != 0; };
  return none(shape.batch, strides.batch) || none(shape.time, strides.time) ||
         none(shape.channel, strides.channel) || none(shape.group, strides.group);
}

/// Elements from the first to one past the last that a non-negative-stride view touches, or
/// beyond_count.
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
    throw argument_error(view, "strides", "strides of 0 or more over a span",
                         text(strides).c_str());
  const std::int64_t needed = span_needed(shape, strides);
  if (needed == beyond_count)
    throw argument_error(view, "shape", "a last element within 2^63 of the first",
                         text(shape, " with strides ", strides).c_str());
  if (static_cast<std::int64_t>(size) < needed)
    throw argument_error(view, "data",
                         text("a span of at least ", needed, " elements for shape ", shape,
                              " with strides, counted in elements, ", strides)
                             .c_str(),
                         text(size).c_str());
}

/// Where a part of an array begins, `positions` along an axis. What has no place stays where it is:
/// there may be no such address.
template <class T>
constexpr T* moved(T* data, const extents& shape, const scanrec::strides& strides,
                   std::int64_t positions, std::int64_t stride) {
  return data == nullptr || placeless(shape, strides) ? data : data + positions * stride;
}

/// The steps of one sequence that has all elements of a span.
constexpr std::int64_t steps_of(std::size_t size, std::int64_t channels) {
  const auto elements = static_cast<std::int64_t>(size);
  if (channels < 1)
    throw argument_error("sequence_view", "channels", "1 or more", text(channels).c_str());
  if (elements % channels != 0)
    throw argument_error("sequence_view", "data",
                         text("a multiple of ", channels, " elements").c_str(),
                         text(elements).c_str());
  return elements / channels;
}

/// Throws unless [first, last) is a range of the positions of an axis with so many.
constexpr void check_range(const char* part, std::int64_t first, std::int64_t last,
                           std::int64_t count) {
  if (first < 0 || first > count)
    throw argument_error(part, "first", text("0 to ", count).c_str(), text(first).c_str());
  if (last < first || last > count)
    throw argument_error(part, "last", text(first, " to ", count).c_str(), text(last).c_str());
}

/// The strides with which an array has another shape, by zeros.
constexpr strides broadcast_strides(const extents& from, scanrec::strides strides,
                                    const extents& to) {
  if (to.batch < 0 || to.time < 0 || to.channel < 0 || to.group < 0)
    throw argument_error("broadcast_to", "shape", "extents of 0 or more", text(to).c_str());
  bool fits = true;
  const auto stretch = [&fits](std::int64_t n, std::int64_t& stride, std::int64_t wanted) {
    if (n == wanted) return;
    fits = fits && (n == 1 || (n > 1 && stride == 0));  // of no element there are no more
    stride = 0;
  };
  const scanrec::strides given = strides;
  stretch(from.batch, strides.batch, to.batch), stretch(from.time, strides.time, to.time);
  stretch(from.channel, strides.channel, to.channel);
  stretch(from.group, strides.group, to.group);
  if (!fits)
    throw argument_error(
        "broadcast_to", "view",
        text("shape ", to, ", or an extent of 1 or a stride of 0 where it has another").c_str(),
        text("shape ", from, " with strides ", given).c_str());
  return strides;
}
}  // namespace SCANREC_ABI
}  // namespace detail

/// A non-owning array over (group, batch, time, channel): element (g, b, t, c) is at
/// `data[g * strides.group + b * strides.batch + t * strides.time + c * strides.channel]`.
///
/// Strides are in elements and may be negative (an axis read backwards) or zero: a zero stride
/// broadcasts when read, and receives the sum over its axis when it is a gradient that is written.
/// A default-constructed view stands for an absent array.
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
  /// Over a span, whose size is checked. Throws argument_error.
  SCANREC_INLINE sequence_view(std::span<T> elements, const extents& shape_of)
      : sequence_view(elements, shape_of, channels_last(shape_of)) {}
  SCANREC_INLINE sequence_view(std::span<T> elements, const extents& shape_of,
                               const scanrec::strides& strides_of)
      : sequence_view(elements.data(), shape_of, strides_of) {
    detail::check_span("sequence_view", elements.size(), shape_of, strides_of);
  }
  /// All of a span as one sequence of one channel: (time elements.size(), channel 1).
  SCANREC_INLINE constexpr explicit sequence_view(std::span<T> elements)
      : sequence_view(elements, 1) {}
  /// All of a span as one sequence, channel fastest: (time elements.size() / channels, channel
  /// channels). Throws argument_error if channels are fewer than 1, or leave a remainder.
  ///
  /// A template so that braces are extents, as everywhere else.
  template <std::integral Count>
  SCANREC_INLINE constexpr sequence_view(std::span<T> elements, Count channels)
      : sequence_view(elements.data(), {.time = detail::steps_of(
                                            elements.size(), static_cast<std::int64_t>(channels)),
                                        .channel = static_cast<std::int64_t>(channels)}) {}
  /// Not of a container of other elements, and not of a temporary one: says so.
  template <class Container>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, const extents&) {
    SCANREC_EXPLAIN_ELEMENTS_(Container, T, "sequence_view");
  }
  template <class Container>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, const extents&,
                                                           const scanrec::strides&) {
    SCANREC_EXPLAIN_ELEMENTS_(Container, T, "sequence_view");
  }
  template <class Container, std::integral Count>
  requires detail::no_span_for<Container, T> sequence_view(Container&&, Count) {
    SCANREC_EXPLAIN_ELEMENTS_(Container, T, "sequence_view");
  }
  /// A view to read is made from a view to write wherever one is asked for.
  template <class U>
  requires(std::is_same_v<const U, T>) SCANREC_INLINE
      constexpr sequence_view(const sequence_view<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  /// Whether there is an array at all.
  [[nodiscard]] SCANREC_INLINE constexpr bool absent() const {
    return data == nullptr && shape == extents{0, 0, 0, 0};
  }

  /// Element (group, batch, time, channel). Nothing is checked: there must be such an element.
  [[nodiscard]] SCANREC_HD SCANREC_INLINE constexpr T& at(std::int64_t batch, std::int64_t time,
                                                          std::int64_t channel,
                                                          std::int64_t group = 0) const {
    return data[group * strides.group + batch * strides.batch + time * strides.time +
                channel * strides.channel];
  }

  /// Steps [first, last) of every sequence: (batch, last - first, channel), the strides as they
  /// are. No data moves. Throws argument_error unless 0 <= first <= last <= shape.time.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view steps(std::int64_t first,
                                                             std::int64_t last) const {
    detail::check_range("steps", first, last, shape.time);
    sequence_view part = *this;
    part.shape.time = last - first;
    part.data = detail::moved(data, part.shape, strides, first, strides.time);
    return part;
  }
  /// Channels [first, last) of every step: (batch, time, last - first), the strides as they are. No
  /// data moves. Throws argument_error unless 0 <= first <= last <= shape.channel.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view channels(std::int64_t first,
                                                                std::int64_t last) const {
    detail::check_range("channels", first, last, shape.channel);
    sequence_view part = *this;
    part.shape.channel = last - first;
    part.data = detail::moved(data, part.shape, strides, first, strides.channel);
    return part;
  }
  /// The same elements with time running backwards: step t is step shape.time - 1 - t, by a negated
  /// time stride. No data moves. A scan over such views has the results of one in
  /// direction::reverse over the views themselves, but for resets, which cut before a step in
  /// either direction.
  [[nodiscard]] SCANREC_INLINE constexpr sequence_view reversed() const {
    sequence_view turned = *this;
    turned.data = detail::moved(data, shape, strides, shape.time - 1, strides.time);
    // Unsigned: the stride of an axis without two steps may be any number, the least one too.
    turned.strides.time = static_cast<std::int64_t>(-static_cast<std::uint64_t>(strides.time));
    return turned;
  }
};

/// A non-owning array over (group, batch, channel): one state per sequence. The time entries of
/// `shape` and `strides` are ignored, so the extents of the sequences serve as they are.
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
  /// Over a span, whose size is checked. Throws argument_error.
  SCANREC_INLINE state_view(std::span<T> elements, const extents& shape_of)
      : state_view(elements, shape_of, contiguous(shape_of)) {}
  SCANREC_INLINE state_view(std::span<T> elements, const extents& shape_of,
                            const scanrec::strides& strides_of)
      : state_view(elements.data(), shape_of, strides_of) {
    detail::check_span("state_view", elements.size(), shape, strides);
  }
  /// Not of a container alone, whose extents it does not know; nor of one of other elements, nor of
  /// a temporary: says so.
  template <class Container>
  requires detail::a_container<std::remove_cvref_t<Container>>
  explicit state_view(Container&&) {
    static_assert(std::is_void_v<Container>,
                  "scanrec: state_view: argument 'shape': expected extents behind a container, as "
                  "extents{.batch = 8, .channel = 3}, got none");
  }
  template <class Container>
  requires detail::no_span_for<Container, T> state_view(Container&&, const extents&) {
    SCANREC_EXPLAIN_ELEMENTS_(Container, T, "state_view");
  }
  template <class Container>
  requires detail::no_span_for<Container, T> state_view(Container&&, const extents&,
                                                        const scanrec::strides&) {
    SCANREC_EXPLAIN_ELEMENTS_(Container, T, "state_view");
  }
  template <class U>
  requires(std::is_same_v<const U, T>) SCANREC_INLINE
      constexpr state_view(const state_view<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  [[nodiscard]] SCANREC_INLINE constexpr bool absent() const {
    return data == nullptr && shape == extents{0, 0, 0, 0};
  }

  /// Element (group, batch, channel). Nothing is checked: there must be such an element.
  [[nodiscard]] SCANREC_HD SCANREC_INLINE constexpr T& at(std::int64_t batch, std::int64_t channel,
                                                          std::int64_t group = 0) const {
    return data[group * strides.group + batch * strides.batch + channel * strides.channel];
  }

  /// Channels [first, last) of every state: (batch, last - first), the strides as they are. No data
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

// From what converts to a span: std::vector, std::array, a C array, a span. (A C array with extents
// goes by its pointer.)
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

// From anything else: what says what was expected.
template <>
struct sequence_view<detail::no_element> {
  template <class... Given>
  sequence_view(const Given&...) {  // NOLINT(google-explicit-constructor)
    SCANREC_EXPLAIN_VIEW_(Given, "sequence_view",
                          "(x), (x, channels), (x, extents) or (x, extents, strides)");
  }
};
template <>
struct state_view<detail::no_element> {
  template <class... Given>
  state_view(const Given&...) {  // NOLINT(google-explicit-constructor)
    SCANREC_EXPLAIN_VIEW_(Given, "state_view", "(x, extents) or (x, extents, strides)");
  }
};
template <class First, class... Rest>
requires(!detail::makes_a_view<First, Rest...>::value) sequence_view(const First&, const Rest&...)
->sequence_view<detail::no_element>;
template <class First, class... Rest>
requires(!detail::makes_a_state_view<First, Rest...>) state_view(const First&, const Rest&...)
->state_view<detail::no_element>;

/// The view with another shape, of which it is a part that repeats: an axis with an extent of 1, or
/// with a stride of 0, gets the extent of `shape` and a stride of 0. No data moves: what is read is
/// read once, and a gradient receives the sum over the axes that were stretched.
///
/// Throws argument_error if another axis differs from `shape`, or `shape` has an extent below 0.
template <class T>
[[nodiscard]] SCANREC_INLINE constexpr sequence_view<T> broadcast_to(const sequence_view<T>& view,
                                                                     const extents& shape) {
  return {view.data, shape, detail::broadcast_strides(view.shape, view.strides, shape)};
}
/// The same for states, over (batch, channel, group): the time of `shape` is ignored.
template <class T>
[[nodiscard]] SCANREC_INLINE constexpr state_view<T> broadcast_to(const state_view<T>& view,
                                                                  const extents& shape) {
  extents states = shape;
  states.time = view.shape.time;
  return {view.data, states, detail::broadcast_strides(view.shape, view.strides, states)};
}

/// Stands for an array that is not there: a state nobody wants, a tangent that is zero.
struct none_t {
  [[nodiscard]] SCANREC_INLINE static constexpr bool absent() { return true; }
};
inline constexpr none_t none{};

}  // namespace scanrec
