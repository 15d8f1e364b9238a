// SPDX-License-Identifier: BSD-3-Clause
// Why no overload takes the arguments of a call. Beside the overloads of a call is one that takes
// anything: it is the worst match, so it is chosen where no other is viable, and its assertions say
// which argument is not what it should be. That is shorter than the list of overloads that a
// compiler gives. Where options in braces are looked at, overloads are told apart by rules that not
// all front ends share: for nvcc, whose own takes some of what fits for what does not, there are
// none.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <scanrec/concepts.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail {

/// The arguments of a call, without the backend in front.
template <class... Given>
struct given_arrays {
  static constexpr std::size_t count = sizeof...(Given);
  template <std::size_t I>
  using at = typename type_at<I, Given...>::type;
};
template <backend First, class... Rest>
struct given_arrays<First, Rest...> : given_arrays<Rest...> {};

// What a call is given by mistake.
template <class A>
concept a_number = std::is_arithmetic_v<A>;
template <class A>
concept a_view_of_no_elements = sequence<A> && !sequence_of_elements<A>;
template <class A>
concept a_view_to_read = sequence<A> && !writable_sequence_argument<A>;
/// A matrix of Eigen, or of another library that counts rows.
template <class A>
concept a_matrix = requires(const A& a) {
  a.rows();
  a.cols();
};
template <class A>
concept an_mdspan = requires(const A& a) {
  a.data_handle();
  a.extent(0);
};
template <class A>
inline constexpr bool is_state_view = false;
template <class T>
inline constexpr bool is_state_view<state_view<T>> = true;
template <class A>
concept a_view_of_states = is_state_view<A>;
/// What has words of its own.
template <class A>
concept no_view = a_container<A> || a_matrix<A> || an_mdspan<A> || std::is_pointer_v<A> ||
    a_number<A> || a_view_of_states<A> || a_view_of_no_elements<A>;

/// What a call may begin with, by mistake or not. Types of other libraries may have overloads of
/// their own, which need conversions: nothing is explained to them.
template <class A>
concept may_begin_a_call = backend<A> || sequence_argument<A> || no_view<A>;

}  // namespace scanrec::detail

// Of the argument at a place, which is called so: what it may be is in the words. A macro, since
// the words of an assertion are a literal.
#define SCANREC_EXPECT_ANY_VIEW_(type, call, name)                                             \
  static_assert(!::scanrec::detail::a_matrix<type>,                                            \
                "scanrec: " call ": argument '" name                                           \
                "': expected a view, as as_sequence(x) of <scanrec/eigen.hpp>, got a matrix"); \
  static_assert(!::scanrec::detail::an_mdspan<type>,                                           \
                "scanrec: " call ": argument '" name                                           \
                "': expected a view, as view_of(x) of <scanrec/mdspan.hpp>, got an mdspan");   \
  static_assert(!::scanrec::detail::a_container<type> || ::scanrec::detail::a_matrix<type>,    \
                "scanrec: " call ": argument '" name                                           \
                "': expected a view of an array, as "                                          \
                "sequence_view(x, channels) or sequence_view(x, extents), got a container");   \
  static_assert(!std::is_pointer_v<type>, "scanrec: " call ": argument '" name                 \
                                          "': expected a view of an array, as "                \
                                          "sequence_view(x, extents), got a pointer");         \
  static_assert(!::scanrec::detail::a_number<type>,                                            \
                "scanrec: " call ": argument '" name                                           \
                "': expected a view of an array, as "                                          \
                "sequence_view(&x, extents, strides{}) of one number for all, got a number");  \
  static_assert(!::scanrec::detail::a_view_of_states<type>,                                    \
                "scanrec: " call ": argument '" name                                           \
                "': expected a sequence_view(x, extents), got a state_view")
/// ... of numbers.
#define SCANREC_EXPECT_VIEW_(type, call, name)                   \
  SCANREC_EXPECT_ANY_VIEW_(type, call, name);                    \
  static_assert(!::scanrec::detail::a_view_of_no_elements<type>, \
                "scanrec: " call ": argument '" name             \
                "': expected elements of float, double, "        \
                "complex of them, bfloat16, float16 or uint32_t, got a view of others")
/// ... is read.
#define SCANREC_EXPECT_TO_READ(type, call, name)                               \
  SCANREC_EXPECT_VIEW_(type, call, name);                                      \
  static_assert(::scanrec::sequence<type> || ::scanrec::detail::no_view<type>, \
                "scanrec: " call ": argument '" name "': expected a sequence_view")
/// ... is read, or `none`.
#define SCANREC_EXPECT_IF_ANY(type, call, name)                                         \
  SCANREC_EXPECT_VIEW_(type, call, name);                                               \
  static_assert(::scanrec::sequence_argument<type> || ::scanrec::detail::no_view<type>, \
                "scanrec: " call ": argument '" name "': expected a sequence_view or none")
/// ... is written, or `none`.
#define SCANREC_EXPECT_TO_WRITE(type, call, name)                                           \
  SCANREC_EXPECT_VIEW_(type, call, name);                                                   \
  static_assert(!::scanrec::detail::a_view_to_read<type>,                                   \
                "scanrec: " call ": argument '" name                                        \
                "': expected elements that can be written, "                                \
                "got a view of const ones");                                                \
  static_assert(::scanrec::writable_sequence_argument<type> || ::scanrec::sequence<type> || \
                    ::scanrec::detail::no_view<type>,                                       \
                "scanrec: " call ": argument '" name "': expected a sequence_view or none")
/// ... has the compute type of the first.
#define SCANREC_EXPECT_COMPUTED_AS(first, type, call, name)                                   \
  static_assert(                                                                              \
      !::scanrec::sequence_of_elements<first> || ::scanrec::detail::computed_as<type, first>, \
      "scanrec: " call ": argument '" name                                                    \
      "': expected the compute type of the first "                                            \
      "array (float for bfloat16 and float16; complex beside complex; a vector beside "       \
      "a matrix), got another")
