// SPDX-License-Identifier: BSD-3-Clause
// What a view can be made of, and the sentences for what it cannot. Included by views.hpp.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

namespace scanrec::detail {

/// The type of the elements of what converts to a span: const where they cannot be written.
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
/// A container whose elements do not lie together.
template <class Range>
concept no_array = a_container<std::remove_cvref_t<Range>> && !spannable<Range>;
/// An array with numbers, or nothing, where extents belong.
template <class Data, class... Rest>
concept only_counts = (spannable<Data> ||
                       std::is_pointer_v<std::remove_cvref_t<Data>>)&&(std::integral<Rest>&&...);

/// Whether a container ends with the expression that it is in; Range is A or A&, as deduced.
template <class Range>
concept a_temporary = !std::is_lvalue_reference_v<Range> && spannable<Range> &&
                      !std::is_const_v<span_element<Range>> &&
                      !std::is_constructible_v<std::span<span_element<Range>>, Range>;
/// A container, of which there is no view with elements of type T.
template <class Range, class T>
concept no_span_for = a_container<std::remove_cvref_t<Range>> &&
    (a_temporary<Range> || !std::is_convertible_v<Range, std::span<T>>);

/// Stands for the elements of what is no view.
struct no_element {};

/// Says why a container gives no view with elements of type T.
template <class Range, class T>
constexpr void check_container() {
  static_assert(!a_temporary<Range>,
                "scanrec: a view of a container: expected one that outlives the view, got a "
                "temporary");
  static_assert(a_temporary<Range> || std::is_convertible_v<Range, std::span<const T>>,
                "scanrec: a view of a container: expected elements that lie together, of the type "
                "of the view");
  static_assert(a_temporary<Range> || !std::is_convertible_v<Range, std::span<const T>>,
                "scanrec: a view of a container: expected elements that can be written, or a view "
                "of const ones");
}
/// Says why no view can be deduced from its data and what follows.
template <class Data>
constexpr void check_data() {
  static_assert(!no_array<const Data&>,
                "scanrec: a view of a container: expected elements that lie together, as those of "
                "std::vector (not of bool), std::array or std::span");
  static_assert(no_array<const Data&>,
                "scanrec: a view: expected extents behind the data, as extents{.time = 20, "
                ".channel = 3}, got none, or numbers");
}

}  // namespace scanrec::detail
