// SPDX-License-Identifier: BSD-3-Clause
// Compile-time checks of the arguments from which views are made. Included by views.hpp.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace scanrec::detail {

/// The element type of a range that converts to a span; const if elements cannot be written.
template <class Range>
using span_element = typename decltype(std::span(std::declval<Range&>()))::element_type;
template <class Range>
concept spannable = requires {
  typename span_element<Range>;
};
template <class A>
concept a_container = requires(const A& a) {
  a.size();
};
/// A container whose elements are not contiguous.
template <class Range>
concept no_array = a_container<std::remove_cvref_t<Range>> && !spannable<Range>;
/// An array followed by integers, or by nothing, instead of extents.
template <class Data, class... Rest>
concept only_counts = (spannable<Data> ||
                       std::is_pointer_v<std::remove_cvref_t<Data>>)&&(std::integral<Rest>&&...);

/// Whether the argument is a temporary container of mutable elements, which the view would outlive.
/// Range is deduced from a forwarding reference: A for a temporary, A& for a variable.
template <class Range>
concept a_temporary = !std::is_lvalue_reference_v<Range> && spannable<Range> &&
                      !std::is_const_v<span_element<Range>> &&
                      !std::is_constructible_v<std::span<span_element<Range>>, Range>;
/// A container from which no view with elements of type T can be made.
template <class Range, class T>
concept no_span_for = a_container<std::remove_cvref_t<Range>> &&
    (a_temporary<Range> || !std::is_convertible_v<Range, std::span<T>>);

/// Stands for the element type of a view if none can be deduced. Such a view reports the error by
/// check_data().
struct no_element {};

/// Reports why no view with elements of type T can be made from a container.
template <class Range, class T>
constexpr void check_container() {
  static_assert(
      !a_temporary<Range>,
      "scanrec: a view of a container: expected a container that outlives the view, got a "
      "temporary");
  static_assert(a_temporary<Range> || std::is_convertible_v<Range, std::span<const T>>,
                "scanrec: a view of a container: expected contiguous elements of the view's "
                "element type");
  static_assert(a_temporary<Range> || !std::is_convertible_v<Range, std::span<const T>>,
                "scanrec: a view of a container: expected elements that can be written, or a view "
                "of const elements");
}
/// Reports why no view can be deduced from the arguments of its constructor.
template <class Data>
constexpr void check_data() {
  static_assert(!no_array<const Data&>,
                "scanrec: a view of a container: expected contiguous elements, as in "
                "std::vector (not of bool), std::array or std::span");
  static_assert(no_array<const Data&>,
                "scanrec: a view: expected extents after the data, such as extents{.time = 20, "
                ".channel = 3}, got none, or plain numbers");
}

}  // namespace scanrec::detail
