// SPDX-License-Identifier: BSD-3-Clause
// Why a view cannot be made of what is given. Included by views.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace scanrec {
struct extents;
struct strides;
}  // namespace scanrec

namespace scanrec::detail {

/// The type at a place of a list; void behind the last.
template <std::size_t I, class... Types>
struct type_at : std::type_identity<void> {};
template <class First, class... Rest>
struct type_at<0, First, Rest...> : std::type_identity<First> {};
template <std::size_t I, class First, class... Rest>
requires(I > 0) struct type_at<I, First, Rest...> : type_at<I - 1, Rest...> {
};

/// The type of the elements of what converts to a span: const where they cannot be written.
template <class Range>
using span_element = typename decltype(std::span(std::declval<Range&>()))::element_type;
template <class Range>
concept spannable = requires {
  typename span_element<Range>;
};

template <class A>
concept a_container = requires(const A& a) {
  a.data();
  a.size();
}
|| requires(const A& a) {
  a.begin();
  a.size();
};

/// Whether a container ends with the expression that it is in; Range is A or A&, as deduced.
template <class Range>
concept a_temporary = !std::is_lvalue_reference_v<Range> && spannable<Range> &&
                      !std::is_const_v<span_element<Range>> &&
                      !std::is_constructible_v<std::span<span_element<Range>>, Range>;
/// A container, of which there is no view with elements of type T.
template <class Range, class T>
concept no_span_for = a_container<std::remove_cvref_t<Range>> &&
    (a_temporary<Range> || !std::is_convertible_v<Range, std::span<T>>);

template <class A>
concept a_view = requires(const A& a) {
  a.data;
  a.shape;
  a.strides;
};
template <class A>
concept a_shape = std::is_convertible_v<A, extents>;
/// What a view is made of.
template <class... Given>
struct makes_a_view : std::false_type {};
template <class First>
struct makes_a_view<First> : std::bool_constant<spannable<First> || a_view<First>> {};
template <class First, class Second>
struct makes_a_view<First, Second>
    : std::bool_constant<(spannable<First> && std::is_integral_v<Second>) ||
                         ((spannable<First> ||
                           std::is_pointer_v<std::decay_t<First>>)&&a_shape<Second>)> {};
template <class First, class Second, class Third>
struct makes_a_view<First, Second, Third>
    : std::bool_constant<makes_a_view<First, Second>::value && a_shape<Second> &&
                         std::is_convertible_v<Third, strides>> {};
template <class First, class... Rest>
inline constexpr bool makes_a_state_view =
    sizeof...(Rest) == 0
        ? a_view<First>
        : makes_a_view<First,
                       Rest...>::value&& a_shape<typename type_at<1, First, Rest..., void>::type>;
/// Stands for the elements of what is no view.
struct no_element {};

}  // namespace scanrec::detail

// Of a container: what its elements are, and how long it lives. Macros, since the words of an
// assertion are a literal.
#define SCANREC_EXPLAIN_CONTAINER_(Range, view)                                                \
  static_assert(!::scanrec::detail::a_temporary<Range>,                                        \
                "scanrec: " view                                                               \
                ": argument 'data': expected a container that outlives the view, got a "       \
                "temporary");                                                                  \
  static_assert(::scanrec::detail::spannable<std::remove_reference_t<Range>>,                  \
                "scanrec: " view                                                               \
                ": argument 'data': expected elements that lie together, as of a std::vector " \
                "(not of bool), std::array or std::span, got a container of others")
#define SCANREC_EXPLAIN_ELEMENTS_(Range, T, view)                                              \
  SCANREC_EXPLAIN_CONTAINER_(Range, view);                                                     \
  if constexpr (::scanrec::detail::spannable<std::remove_reference_t<Range>>) {                \
    using element = ::scanrec::detail::span_element<std::remove_reference_t<Range>>;           \
    static_assert(std::is_same_v<const element, const T>,                                      \
                  "scanrec: " view                                                             \
                  ": argument 'data': expected elements of the type that the view is of, got " \
                  "a container of others");                                                    \
    static_assert(!std::is_same_v<element, const T> || std::is_const_v<T>,                     \
                  "scanrec: " view                                                             \
                  ": argument 'data': expected elements that can be written, got const ones "  \
                  "(of which there is a " view "<const T>)");                                  \
  }
/// ... of what a view is to be deduced from; `most` arguments follow the first.
#define SCANREC_EXPLAIN_VIEW_(Given, view, forms)                                               \
  using first = std::decay_t<typename ::scanrec::detail::type_at<0, Given...>::type>;           \
  using second = typename ::scanrec::detail::type_at<1, Given...>::type;                        \
  using third = typename ::scanrec::detail::type_at<2, Given...>::type;                         \
  constexpr bool container = ::scanrec::detail::a_container<first>;                             \
  constexpr bool array = container || std::is_pointer_v<first>;                                 \
  if constexpr (container) {                                                                    \
    SCANREC_EXPLAIN_CONTAINER_(first&, view);                                                   \
  }                                                                                             \
  static_assert(array, "scanrec: " view                                                         \
                       ": argument 'data': expected a container or a pointer, got another "     \
                       "type");                                                                 \
  static_assert(!std::is_pointer_v<first> || ::scanrec::detail::a_shape<second>,                \
                "scanrec: " view                                                                \
                ": argument 'shape': expected extents behind a pointer, as "                    \
                "extents{.time = 20, .channel = 3}, got none, or a number");                    \
  static_assert(!(std::is_integral_v<second> && std::is_integral_v<third>),                     \
                "scanrec: " view                                                                \
                ": argument 'shape': expected extents, as extents{.time = 20, .channel = 3}, "  \
                "got numbers");                                                                 \
  static_assert(!::scanrec::detail::a_shape<third>,                                             \
                "scanrec: " view                                                                \
                ": argument 'strides': expected strides, as strides{.time = 3, .channel = 1}, " \
                "got extents");                                                                 \
  static_assert(!array || std::is_integral_v<third> || ::scanrec::detail::a_shape<third> ||     \
                    (std::is_pointer_v<first> && !::scanrec::detail::a_shape<second>) ||        \
                    (container && !::scanrec::detail::spannable<first>),                        \
                "scanrec: " view ": expected " forms ", got something else")
