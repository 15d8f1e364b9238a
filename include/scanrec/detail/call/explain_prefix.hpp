// SPDX-License-Identifier: BSD-3-Clause
// What is told of calls of inclusive_scan and exclusive_scan that do not fit. Included by
// inclusive_scan.hpp.
#pragma once

#include <type_traits>

#include <scanrec/detail/call/explain.hpp>
#include <scanrec/detail/call/explain_options.hpp>
#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

SCANREC_GIVEN_STATE_(initial);
SCANREC_GIVEN_STATE_(final);

template <class Elements>
struct prefix_asked : option_views<void> {};
template <sequence Elements>
struct prefix_asked<Elements> : option_views<typename sequence_traits<Elements>::stored> {};
/// What other options call the element before the first.
struct given_other_initial {
  constexpr given_other_initial() = default;
  template <class Given>
  constexpr given_other_initial(const Given&) {  // NOLINT(google-explicit-constructor)
    static_assert(std::is_void_v<Given>,
                  "scanrec: option 'initial': expected .initial or .final, got .initial_state or "
                  ".final_state");
  }
};
template <class Elements>
struct given_prefix_options {
  using views = prefix_asked<Elements>;
  given_order order{};
  given_initial<typename views::states_to_read> initial{};
  given_final<typename views::states_to_write> final{};
  given_other_initial initial_state{};
  given_other_initial final_state{};
  given_reverse reverse{};
};
template <class Op, class Elements>
concept operator_on =
    sequence<Elements> && associative_operator<Op, typename sequence_traits<Elements>::stored>;
template <class A>
concept may_be_an_operator = std::is_class_v<A> && !sequence_argument<A> && !no_view<A>;

}  // namespace scanrec::detail::inline SCANREC_ABI

#define SCANREC_EXPLAIN_PREFIX_(given, call)                                                       \
  static_assert(given::count >= 3, "scanrec: " call                                                \
                                   ": expected operator, elements, results (a backend before, "    \
                                   "options behind), got fewer arguments");                        \
  using op = typename given::template at<0>;                                                       \
  using elements = typename given::template at<1>;                                                 \
  using results = typename given::template at<2>;                                                  \
  static_assert(detail::may_be_an_operator<op>,                                                    \
                "scanrec: " call                                                                   \
                ": argument 'op': expected an associative operator before the arrays, as "         \
                "op::sum{} or a lambda of two elements, got something else");                      \
  SCANREC_EXPECT_ANY_VIEW_(elements, call, "elements");                                            \
  SCANREC_EXPECT_ANY_VIEW_(results, call, "results");                                              \
  static_assert(sequence<elements> || detail::no_view<elements>,                                   \
                "scanrec: " call ": argument 'elements': expected a sequence_view");               \
  static_assert(sequence<results> || detail::no_view<results>,                                     \
                "scanrec: " call                                                                   \
                ": argument 'results': expected a sequence_view, got none or another type");       \
  static_assert(!sequence<results> || writable_sequence_argument<results>,                         \
                "scanrec: " call                                                                   \
                ": argument 'results': expected elements that can be written, got a view of "      \
                "const ones");                                                                     \
  if constexpr (sequence<elements> && sequence<results>)                                           \
    static_assert(                                                                                 \
        std::is_same_v<typename detail::sequence_traits<elements>::stored,                         \
                       typename detail::sequence_traits<results>::stored>,                         \
        "scanrec: " call                                                                           \
        ": argument 'results': expected elements of the type of 'elements', got others");          \
  static_assert(                                                                                   \
      !sequence<elements> || !detail::may_be_an_operator<op> || detail::operator_on<op, elements>, \
      "scanrec: " call                                                                             \
      ": argument 'op': expected to be called as op(earlier, later) of two elements, "             \
      "const, and to return one, got what cannot be")

/// The overloads that explain a call with an operator, elements and results.
#define SCANREC_EXPLAIN_PREFIX(call)                                                             \
  template <class First, class... Rest>                                                          \
  requires(                                                                                      \
      detail::may_begin_a_call<First> ||                                                         \
      (sizeof...(Rest) > 0 && ((sequence_argument<Rest> || detail::no_view<Rest>)&&...))) void   \
  call(const First&, const Rest&...) {                                                           \
    using given = detail::given_arrays<First, Rest...>;                                          \
    SCANREC_EXPLAIN_PREFIX_(given, #call);                                                       \
    static_assert(given::count == 3,                                                             \
                  "scanrec: " #call                                                              \
                  ": argument 'options': expected them in braces, as {.initial = view}, or "     \
                  "prefix_options of the type of elements, got something else");                 \
  }                                                                                              \
  template <class First, class Second, class Third, class... Rest>                               \
  requires(!backend<First> && (sequence_argument<Second> || detail::no_view<Second>)) void call( \
      const First&, const Second&, const Third&,                                                 \
      const std::type_identity_t<detail::given_prefix_options<Second>>&, const Rest&...) {       \
    using given = detail::given_arrays<First, Second, Third>;                                    \
    SCANREC_EXPLAIN_PREFIX_(given, #call);                                                       \
    SCANREC_EXPLAIN_BRACES_(#call, "options", "prefix_options", operator_on<op, elements>);      \
  }                                                                                              \
  template <backend First, class Second, class Third, class Fourth, class... Rest>               \
  void call(const First&, const Second&, const Third&, const Fourth&,                            \
            const std::type_identity_t<detail::given_prefix_options<Third>>&, const Rest&...) {  \
    using given = detail::given_arrays<Second, Third, Fourth>;                                   \
    SCANREC_EXPLAIN_PREFIX_(given, #call);                                                       \
    SCANREC_EXPLAIN_BRACES_(#call, "options", "prefix_options", operator_on<op, elements>);      \
  }                                                                                              \
  static_assert(true, "takes the semicolon")

#if !defined(__CUDACC__)  // see explain.hpp
namespace scanrec::inline SCANREC_ABI {

SCANREC_EXPLAIN_PREFIX(inclusive_scan);
SCANREC_EXPLAIN_PREFIX(exclusive_scan);

}  // namespace scanrec::inline SCANREC_ABI
#endif
