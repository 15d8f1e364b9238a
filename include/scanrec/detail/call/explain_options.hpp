// SPDX-License-Identifier: BSD-3-Clause
// Why options in braces do not fit. Braces have no type that an overload for anything could deduce,
// so such an overload takes a struct of the same members, each of which takes anything and says
// what it should have been. Where the braces fit, the call is the better match: the other ends in a
// pack of parameters.
#pragma once

#include <type_traits>

#include <scanrec/concepts.hpp>
#include <scanrec/detail/call/explain.hpp>
#include <scanrec/element.hpp>
#include <scanrec/options.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail {

/// Whether a member of type Asked can be made of what is given. Nothing is asked, void, where the
/// arrays are wrong already.
template <class Given, class Asked>
concept fits_option = std::is_void_v<Asked> || std::is_convertible_v<const Given&, Asked>;

/// What a view is of, const or not.
template <class A>
struct viewed_by : std::type_identity<void> {};
template <class T>
struct viewed_by<state_view<T>> : std::type_identity<T> {};
template <class T>
struct viewed_by<sequence_view<T>> : std::type_identity<T> {};
/// A view of the kind that is asked for, but of const elements where they are written.
template <class Given, class Asked>
concept to_read_where_written =
    !std::is_void_v<typename viewed_by<Given>::type> && std::is_convertible_v<Asked, Given>;
template <class A>
concept no_array_option = a_container<A> || a_matrix<A> || std::is_pointer_v<A> || a_number<A> ||
    std::is_same_v<A, none_t>;

/// Views with elements of type T, where there is such a type.
template <class T>
struct option_views {
  using states_to_read = state_view<const T>;
  using states_to_write = state_view<T>;
};
template <>
struct option_views<void> {
  using states_to_read = void;
  using states_to_write = void;
};

}  // namespace scanrec::detail

// A member of options that is a view; `kind` is what `other` would be wrong for.
#define SCANREC_GIVEN_VIEW_(name, kind, is_other, other, elements)                                 \
  template <class Asked>                                                                           \
  struct given_##name {                                                                            \
    constexpr given_##name() = default;                                                            \
    template <class Given>                                                                         \
    constexpr given_##name(const Given&) { /* NOLINT(google-explicit-constructor) */               \
      constexpr bool fits = fits_option<Given, Asked>;                                             \
      static_assert(fits || !(a_container<Given> || a_matrix<Given> || std::is_pointer_v<Given>),  \
                    "scanrec: option '" #name "': expected a " kind                                \
                    "(x, extents), got a container or a pointer");                                 \
      static_assert(fits || !a_number<Given>,                                                      \
                    "scanrec: option '" #name "': expected a " kind                                \
                    "(&x, extents, strides{}) of one element for all, got a number");              \
      static_assert(fits || !std::is_same_v<Given, none_t>,                                        \
                    "scanrec: option '" #name "': expected a " kind                                \
                    ", or to be left out where there is none, got none");                          \
      static_assert(fits || !is_other<Given>,                                                      \
                    "scanrec: option '" #name "': expected a " kind "(x, extents), got a " other); \
      static_assert(fits || !to_read_where_written<Given, Asked>,                                  \
                    "scanrec: option '" #name                                                      \
                    "': expected elements that can be written, "                                   \
                    "got a view of const ones");                                                   \
      static_assert(fits || no_array_option<Given> || is_other<Given> ||                           \
                        to_read_where_written<Given, Asked>,                                       \
                    "scanrec: option '" #name "': expected a " kind " of " elements                \
                    ", got something else, or other elements");                                    \
    }                                                                                              \
  }
#define SCANREC_GIVEN_STATE_(name)                                   \
  SCANREC_GIVEN_VIEW_(name, "state_view", sequence, "sequence_view", \
                      "the compute type of the arrays (float for bfloat16 and float16)")
#define SCANREC_GIVEN_SEQUENCE_(name, elements) \
  SCANREC_GIVEN_VIEW_(name, "sequence_view", a_view_of_states, "state_view", elements)
// ... that is one of a few names.
#define SCANREC_GIVEN_NAME_(name, Enum, names)                                            \
  struct given_##name {                                                                   \
    constexpr given_##name() = default;                                                   \
    template <class Given>                                                                \
    constexpr given_##name(const Given&) { /* NOLINT(google-explicit-constructor) */      \
      static_assert(std::is_same_v<Given, Enum>,                                          \
                    "scanrec: option '" #name "': expected " names ", got another type"); \
    }                                                                                     \
  }
/// Of braces that do not fit, where each of their members does or has words of its own.
#define SCANREC_EXPLAIN_BRACES_(call, name, type, ...)                              \
  static_assert(!(::scanrec::detail::__VA_ARGS__),                                  \
                "scanrec: " call ": argument '" name "': expected members of " type \
                " in their order, got something else (see what is said of it beside this)")

namespace scanrec::detail {

SCANREC_GIVEN_NAME_(order, direction, "direction::forward or direction::reverse");
SCANREC_GIVEN_NAME_(update, scanrec::update, "update::overwrite or update::accumulate");
SCANREC_GIVEN_NAME_(convention, conjugation, "conjugation::hermitian or conjugation::plain");
SCANREC_GIVEN_STATE_(initial_state);
SCANREC_GIVEN_STATE_(final_state);
SCANREC_GIVEN_STATE_(initial_grad);
SCANREC_GIVEN_STATE_(final_grad);
SCANREC_GIVEN_STATE_(initial_tangent);
SCANREC_GIVEN_STATE_(final_tangent);
SCANREC_GIVEN_SEQUENCE_(resets, "bool");
SCANREC_GIVEN_SEQUENCE_(zoneout, "bool");
SCANREC_GIVEN_SEQUENCE_(intervals, "the real type of the arrays");
SCANREC_GIVEN_SEQUENCE_(gate_grad, "the type of the gates");
SCANREC_GIVEN_SEQUENCE_(input_grad, "the type of state_grad");

/// What other libraries call an order.
struct given_reverse {
  constexpr given_reverse() = default;
  template <class Given>
  constexpr given_reverse(const Given&) {  // NOLINT(google-explicit-constructor)
    static_assert(std::is_void_v<Given>,
                  "scanrec: option 'order': expected .order = direction::reverse, got .reverse");
  }
};

}  // namespace scanrec::detail
