// SPDX-License-Identifier: BSD-3-Clause
// What is told of calls of s5() and s5_vjp() that do not fit. Included by s5.hpp.
#pragma once

#include <complex>
#include <type_traits>

#include <scanrec/detail/call/explain.hpp>
#include <scanrec/detail/call/explain_options.hpp>
#include <scanrec/s5_system.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class A>
struct s5_value : std::type_identity<void> {};
template <class R>
struct s5_value<s5_system<R>> : std::type_identity<R> {};
template <class A>
concept a_state_space = !std::is_void_v<typename s5_value<A>::type>;
/// Behind a backend a system or a view: others may take more, as that for GPUs does.
template <class First, class... Rest>
concept may_be_a_call_of_s5 = a_state_space<First> ||(may_begin_a_call<First> && !backend<First>) ||
                              (backend<First> &&
                               (a_state_space<typename type_at<0, Rest..., void>::type> ||
                                sequence_argument<typename type_at<0, Rest..., void>::type> ||
                                a_container<typename type_at<0, Rest..., void>::type>));
/// Whether a view of such elements is asked for and given; so where nothing is known of the system.
template <class Given, class System, class Asked>
concept s5_array = !a_state_space<System> || std::is_convertible_v<const Given&, Asked>;

template <class System>
struct s5_asked {
  using real = typename s5_value<System>::type;
  using to_read = sequence_view<const real>;
  using to_write = sequence_view<real>;
  using states = sequence_view<std::complex<real>>;
  using states_to_read = sequence_view<const std::complex<real>>;
  using initial = state_view<const std::complex<real>>;
  using final = state_view<std::complex<real>>;
};
template <class System>
requires(!a_state_space<System>) struct s5_asked<System> {
  using to_read = void;
  using to_write = void;
  using states = void;
  using states_to_read = void;
  using initial = void;
  using final = void;
};

SCANREC_GIVEN_SEQUENCE_(gates, "complex numbers of the type of the system");
template <class System>
struct given_s5_options {
  using asked = s5_asked<System>;
  given_initial_state<typename asked::initial> initial_state{};
  given_final_state<typename asked::final> final_state{};
  given_resets<sequence_view<const bool>> resets{};
  given_intervals<typename asked::to_read> intervals{};
  given_gates<typename asked::states> gates{};
  given_reverse reverse{};
};

// The calls convert their views, so that an overload for anything would be the better match where
// they do: it is one only where the arrays do not fit, and has the calls' own parameters where they
// do.
template <class Given, int At, class Asked>
concept s5_array_at = std::is_convertible_v<typename Given::template at<At>, Asked>;
template <class First, class... Rest>
concept fits_s5 = a_state_space<typename given_arrays<First, Rest...>::template at<0>>&& requires {
  requires s5_array_at < given_arrays<First, Rest...>,
  1, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::to_read > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  2, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::states > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  3, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::to_write > ;
};
template <class First, class... Rest>
concept fits_s5_vjp =
    a_state_space<typename given_arrays<First, Rest...>::template at<0>>&& requires {
  requires s5_array_at < given_arrays<First, Rest...>,
  1, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::to_read > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  2, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::states_to_read > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  3, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::to_read > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  4, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::states > ;
  requires s5_array_at < given_arrays<First, Rest...>,
  6, typename s5_asked<typename given_arrays<First, Rest...>::template at<0>>::to_write > ;
};

}  // namespace scanrec::detail::inline SCANREC_ABI

#define SCANREC_EXPLAIN_SYSTEM_(given, call)                                                 \
  using system = typename given::template at<0>;                                             \
  static_assert(detail::a_state_space<system>,                                               \
                "scanrec: " call                                                             \
                ": argument 'system': expected an s5_system<float>, as make_s5 or make_lru " \
                "(s5_init.hpp) make, or of double, got something else");
/// An array of an element type that the system tells.
#define SCANREC_EXPECT_S5_ARRAY_(place, asked, call, name, elements)                               \
  static_assert(!std::is_same_v<typename given::template at<place>, none_t>,                       \
                "scanrec: " call ": argument '" name                                               \
                "': expected a sequence_view (sequence_view<T>{} where there is none), got none"); \
  SCANREC_EXPECT_ANY_VIEW_(typename given::template at<place>, call, name);                        \
  static_assert(!sequence<typename given::template at<place>> ||                                   \
                    detail::s5_array<typename given::template at<place>, system,                   \
                                     typename detail::s5_asked<system>::asked>,                    \
                "scanrec: " call ": argument '" name "': expected a view of " elements             \
                ", got other elements, or const ones")
#define SCANREC_EXPLAIN_S5_(given)                                                                \
  static_assert(given::count >= 4,                                                                \
                "scanrec: s5: expected system, u, states, y (a backend before, options behind), " \
                "got fewer arguments");                                                           \
  SCANREC_EXPLAIN_SYSTEM_(given, "s5");                                                           \
  SCANREC_EXPECT_S5_ARRAY_(1, to_read, "s5", "u", "the type of the system");                      \
  SCANREC_EXPECT_S5_ARRAY_(2, states, "s5", "states",                                             \
                           "complex numbers of the type of the system, to write");                \
  SCANREC_EXPECT_S5_ARRAY_(3, to_write, "s5", "y", "the type of the system, to write")

#if !defined(__CUDACC__)  // see explain.hpp
namespace scanrec::inline SCANREC_ABI {

template <class First, class... Rest>
requires(detail::may_be_a_call_of_s5<First, Rest...> &&
         !detail::fits_s5<First, Rest...>) void s5(const First&, const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_S5_(given);
  static_assert(given::count < 0,
                "scanrec: s5: expected system, u, states, y (a backend before, options behind)");
}
template <class R, class Wrong, class... Rest>
requires(!std::is_convertible_v<const Wrong&, s5_options<R>>) void s5(
    const s5_system<R>&, const sequence_view<const std::type_identity_t<R>>&,
    const sequence_view<std::complex<std::type_identity_t<R>>>&,
    const sequence_view<std::type_identity_t<R>>&, const Wrong&, const Rest&...) {
  static_assert(std::is_void_v<Wrong>,
                "scanrec: s5: argument 'options': expected them in braces, as {.resets = view}, or "
                "s5_options of the type of the system, got something else");
}
template <class R, class... Rest>
void s5(const s5_system<R>&, const sequence_view<const std::type_identity_t<R>>&,
        const sequence_view<std::complex<std::type_identity_t<R>>>&,
        const sequence_view<std::type_identity_t<R>>&,
        const std::type_identity_t<detail::given_s5_options<s5_system<R>>>&, const Rest&...) {
  SCANREC_EXPLAIN_BRACES_("s5", "options", "s5_options", a_state_space<s5_system<R>>);
}

template <class First, class... Rest>
requires(detail::may_be_a_call_of_s5<First, Rest...> &&
         !detail::fits_s5_vjp<First, Rest...>) void s5_vjp(const First&, const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  static_assert(given::count >= 7,
                "scanrec: s5_vjp: expected system, u, states, y_grad, scratch, gradients, u_grad "
                "(a backend before, options behind), got fewer arguments");
  SCANREC_EXPLAIN_SYSTEM_(given, "s5_vjp");
  SCANREC_EXPECT_S5_ARRAY_(1, to_read, "s5_vjp", "u", "the type of the system");
  SCANREC_EXPECT_S5_ARRAY_(2, states_to_read, "s5_vjp", "states",
                           "complex numbers of the type of the system");
  SCANREC_EXPECT_S5_ARRAY_(3, to_read, "s5_vjp", "y_grad", "the type of the system");
  SCANREC_EXPECT_S5_ARRAY_(4, states, "s5_vjp", "scratch",
                           "complex numbers of the type of the system, to write");
  SCANREC_EXPECT_S5_ARRAY_(6, to_write, "s5_vjp", "u_grad", "the type of the system, to write");
  static_assert(given::count < 0,
                "scanrec: s5_vjp: expected system, u, states, y_grad, scratch, "
                "gradients, u_grad (a backend before, options behind)");
}

}  // namespace scanrec::inline SCANREC_ABI
#endif
