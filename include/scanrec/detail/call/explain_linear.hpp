// SPDX-License-Identifier: BSD-3-Clause
// What is told of calls of linear_scan, linear_scan_vjp and linear_scan_jvp that do not fit, and of
// plans and problems of the first.
#pragma once

#include <type_traits>

#include <scanrec/detail/call/explain.hpp>
#include <scanrec/detail/call/explain_options.hpp>
#include <scanrec/detail/call/linear.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class Gate>
struct value_asked : std::type_identity<void> {};
template <sequence_of_elements Gate>
struct value_asked<Gate> : std::type_identity<value_of<Gate>> {};
template <class Given>
using option_views_of = option_views<typename value_asked<typename Given::template at<0>>::type>;

template <class Given>
struct given_scan_options {
  using views = option_views_of<Given>;
  given_order order{};
  given_initial_state<typename views::states_to_read> initial_state{};
  given_final_state<typename views::states_to_write> final_state{};
  given_resets<sequence_view<const bool>> resets{};
  given_reverse reverse{};
};
template <class Given>
struct given_vjp_options {
  using views = option_views_of<Given>;
  given_order order{};
  given_initial_state<typename views::states_to_read> initial_state{};
  given_final_grad<typename views::states_to_read> final_grad{};
  given_resets<sequence_view<const bool>> resets{};
  given_convention convention{};
  given_reverse reverse{};
};
template <class Given>
struct given_jvp_options {
  using views = option_views_of<Given>;
  given_order order{};
  given_initial_state<typename views::states_to_read> initial_state{};
  given_initial_tangent<typename views::states_to_read> initial_tangent{};
  given_final_tangent<typename views::states_to_write> final_tangent{};
  given_resets<sequence_view<const bool>> resets{};
  given_reverse reverse{};
};

/// The views of the gradients of a call.
template <class Gate, class State, class StateGrad>
struct gradients_asked {
  using gate = void;
  using input = void;
  using initial = void;
};
template <sequence_of_elements Gate, sequence_argument State, sequence_argument StateGrad>
struct gradients_asked<Gate, State, StateGrad> {
  using all = default_gradients<Gate, State, StateGrad>;
  using gate = decltype(all::gate_grad);
  using input = decltype(all::input_grad);
  using initial = decltype(all::initial_grad);
};
template <class Given>
struct given_scan_gradients {
  using asked = gradients_asked<typename Given::template at<0>, typename Given::template at<1>,
                                typename Given::template at<2>>;
  given_gate_grad<typename asked::gate> gate_grad{};
  given_input_grad<typename asked::input> input_grad{};
  given_initial_grad<typename asked::initial> initial_grad{};
  given_update update{};
};

template <class Given>
inline constexpr bool arrays_of_a_scan = sequence_of_elements<typename Given::template at<0>>&&
    sequence_beside<typename Given::template at<1>, typename Given::template at<0>>&&
        writable_sequence_beside<typename Given::template at<2>, typename Given::template at<0>>;
template <class Given>
inline constexpr bool arrays_of_an_adjoint =
    sequence_of_elements<typename Given::template at<0>>&& sequence_argument<
        typename Given::template at<1>>&& sequence_argument<typename Given::template at<2>>;
template <class Given>
inline constexpr bool arrays_of_a_tangent =
    arrays_of_an_adjoint<Given>&& sequence_argument<typename Given::template at<3>>&&
        writable_sequence_argument<typename Given::template at<4>>;

}  // namespace scanrec::detail::inline SCANREC_ABI

// Words of assertions are literals, hence macros.
#define SCANREC_EXPLAIN_SCAN_ARRAYS_(given, call)                                              \
  static_assert(given::count >= 3, "scanrec: " call                                            \
                                   ": expected gate, input, state (a backend before, options " \
                                   "behind), got fewer arguments");                            \
  using gate = typename given::template at<0>;                                                 \
  using input = typename given::template at<1>;                                                \
  using state = typename given::template at<2>;                                                \
  SCANREC_EXPECT_TO_READ(gate, call, "gate");                                                  \
  SCANREC_EXPECT_TO_READ(input, call, "input");                                                \
  SCANREC_EXPECT_TO_WRITE(state, call, "state");                                               \
  SCANREC_EXPECT_COMPUTED_AS(gate, input, call, "input");                                      \
  SCANREC_EXPECT_COMPUTED_AS(gate, state, call, "state")
#define SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, call)                                        \
  static_assert(given::count >= 4,                                                          \
                "scanrec: " call                                                            \
                ": expected gate, state, state_grad, gradients (a backend before, options " \
                "behind; none for an array that is not there), got fewer arguments");       \
  using gate = typename given::template at<0>;                                              \
  using state = typename given::template at<1>;                                             \
  using state_grad = typename given::template at<2>;                                        \
  SCANREC_EXPECT_TO_READ(gate, call, "gate");                                               \
  SCANREC_EXPECT_IF_ANY(state, call, "state");                                              \
  SCANREC_EXPECT_IF_ANY(state_grad, call, "state_grad")
#define SCANREC_EXPLAIN_TANGENT_ARRAYS_(given, call)                                         \
  static_assert(given::count >= 5,                                                           \
                "scanrec: " call                                                             \
                ": expected gate, state, gate_tangent, input_tangent, state_tangent (a "     \
                "backend before, options behind; none for an array that is not there), got " \
                "fewer arguments");                                                          \
  using gate = typename given::template at<0>;                                               \
  using state = typename given::template at<1>;                                              \
  using gate_tangent = typename given::template at<2>;                                       \
  using input_tangent = typename given::template at<3>;                                      \
  using state_tangent = typename given::template at<4>;                                      \
  SCANREC_EXPECT_TO_READ(gate, call, "gate");                                                \
  SCANREC_EXPECT_IF_ANY(state, call, "state");                                               \
  SCANREC_EXPECT_IF_ANY(gate_tangent, call, "gate_tangent");                                 \
  SCANREC_EXPECT_IF_ANY(input_tangent, call, "input_tangent");                               \
  SCANREC_EXPECT_TO_WRITE(state_tangent, call, "state_tangent")

/// The overloads that explain a call with the arrays of linear_scan.
#define SCANREC_EXPLAIN_SCAN(call, otherwise)                                              \
  template <detail::may_begin_a_call First, class... Rest>                                 \
  void call(const First&, const Rest&...) {                                                \
    using given = detail::given_arrays<First, Rest...>;                                    \
    SCANREC_EXPLAIN_SCAN_ARRAYS_(given, #call);                                            \
    static_assert(!detail::arrays_of_a_scan<given>, "scanrec: " #call otherwise);          \
  }                                                                                        \
  template <detail::may_begin_a_call First, class Second, class Third, class... Rest>      \
  requires(!backend<First>) void call(                                                     \
      const First&, const Second&, const Third&,                                           \
      const std::type_identity_t<                                                          \
          detail::given_scan_options<detail::given_arrays<First, Second, Third>>>&,        \
      const Rest&...) {                                                                    \
    using given = detail::given_arrays<First, Second, Third>;                              \
    SCANREC_EXPLAIN_SCAN_ARRAYS_(given, #call);                                            \
    SCANREC_EXPLAIN_BRACES_(#call, "options", "scan_options", arrays_of_a_scan<given>);    \
  }                                                                                        \
  template <backend First, class Second, class Third, class Fourth, class... Rest>         \
  void call(const First&, const Second&, const Third&, const Fourth&,                      \
            const std::type_identity_t<                                                    \
                detail::given_scan_options<detail::given_arrays<Second, Third, Fourth>>>&, \
            const Rest&...) {                                                              \
    using given = detail::given_arrays<Second, Third, Fourth>;                             \
    SCANREC_EXPLAIN_SCAN_ARRAYS_(given, #call);                                            \
    SCANREC_EXPLAIN_BRACES_(#call, "options", "scan_options", arrays_of_a_scan<given>);    \
  }                                                                                        \
  static_assert(true, "takes the semicolon")

#if !defined(__CUDACC__)  // see explain.hpp
namespace scanrec::inline SCANREC_ABI {

SCANREC_EXPLAIN_SCAN(
    linear_scan,
    ": argument 'options': expected them in braces, as {.order = direction::reverse, "
    ".initial_state = view}, or scan_options of the compute type, got something else");

// ---- linear_scan_vjp: gradients in braces, and options in braces behind them -------------------

template <detail::may_begin_a_call First, class... Rest>
void linear_scan_vjp(const First&, const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, "linear_scan_vjp");
  static_assert(!detail::arrays_of_an_adjoint<given>,
                "scanrec: linear_scan_vjp: argument 'gradients': expected "
                "{.gate_grad = view, .input_grad = view, ...}, and vjp_options behind it");
}
template <detail::may_begin_a_call First, class Second, class Third, class... Rest>
requires(!backend<First>) void linear_scan_vjp(
    const First&, const Second&, const Third&,
    const std::type_identity_t<
        detail::given_scan_gradients<detail::given_arrays<First, Second, Third>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, Second, Third, void>;
  SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, "linear_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_vjp", "gradients", "scan_gradients",
                          arrays_of_an_adjoint<given>);
}
template <detail::may_begin_a_call First, class Second, class Third, class... Rest>
requires(!backend<First>) void linear_scan_vjp(
    const First&, const Second&, const Third&,
    const std::type_identity_t<
        detail::given_scan_gradients<detail::given_arrays<First, Second, Third>>>&,
    const std::type_identity_t<
        detail::given_vjp_options<detail::given_arrays<First, Second, Third>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, Second, Third, void>;
  SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, "linear_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_vjp", "options", "vjp_options", arrays_of_an_adjoint<given>);
}
template <backend First, class Second, class Third, class Fourth, class... Rest>
void linear_scan_vjp(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<
        detail::given_scan_gradients<detail::given_arrays<Second, Third, Fourth>>>&,
    const Rest&...) {
  using given = detail::given_arrays<Second, Third, Fourth, void>;
  SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, "linear_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_vjp", "gradients", "scan_gradients",
                          arrays_of_an_adjoint<given>);
}
template <backend First, class Second, class Third, class Fourth, class... Rest>
void linear_scan_vjp(
    const First&, const Second&, const Third&, const Fourth&,
    const std::type_identity_t<
        detail::given_scan_gradients<detail::given_arrays<Second, Third, Fourth>>>&,
    const std::type_identity_t<
        detail::given_vjp_options<detail::given_arrays<Second, Third, Fourth>>>&,
    const Rest&...) {
  using given = detail::given_arrays<Second, Third, Fourth, void>;
  SCANREC_EXPLAIN_ADJOINT_ARRAYS_(given, "linear_scan_vjp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_vjp", "options", "vjp_options", arrays_of_an_adjoint<given>);
}

// ---- linear_scan_jvp --------------------------------------------------------------------------

template <detail::may_begin_a_call First, class... Rest>
void linear_scan_jvp(const First&, const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_TANGENT_ARRAYS_(given, "linear_scan_jvp");
  static_assert(!detail::arrays_of_a_tangent<given>,
                "scanrec: linear_scan_jvp: argument 'options': expected them in braces, as "
                "{.final_tangent = view}, or jvp_options of the compute type, got something else");
}
template <detail::may_begin_a_call First, class B, class C, class D, class E, class... Rest>
requires(!backend<First>) void linear_scan_jvp(
    const First&, const B&, const C&, const D&, const E&,
    const std::type_identity_t<detail::given_jvp_options<detail::given_arrays<First, B, C, D, E>>>&,
    const Rest&...) {
  using given = detail::given_arrays<First, B, C, D, E>;
  SCANREC_EXPLAIN_TANGENT_ARRAYS_(given, "linear_scan_jvp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_jvp", "options", "jvp_options", arrays_of_a_tangent<given>);
}
template <backend First, class A, class B, class C, class D, class E, class... Rest>
void linear_scan_jvp(
    const First&, const A&, const B&, const C&, const D&, const E&,
    const std::type_identity_t<detail::given_jvp_options<detail::given_arrays<A, B, C, D, E>>>&,
    const Rest&...) {
  using given = detail::given_arrays<A, B, C, D, E>;
  SCANREC_EXPLAIN_TANGENT_ARRAYS_(given, "linear_scan_jvp");
  SCANREC_EXPLAIN_BRACES_("linear_scan_jvp", "options", "jvp_options", arrays_of_a_tangent<given>);
}

}  // namespace scanrec::inline SCANREC_ABI
#endif
