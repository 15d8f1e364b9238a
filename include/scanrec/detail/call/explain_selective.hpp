// SPDX-License-Identifier: BSD-3-Clause
// What is told of calls of selective_scan and selective_scan_vjp that do not fit. Included by
// selective_scan.hpp.
#pragma once

#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/call/explain.hpp>
#include <scanrec/detail/call/explain_options.hpp>
#include <scanrec/selective_arrays.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

template <class A>
struct selective_value : std::type_identity<void> {};
template <class V>
struct selective_value<selective_arrays<V>> : std::type_identity<V> {};
template <class A>
concept arrays_of_a_selective_scan = !std::is_void_v<typename selective_value<A>::type>;
/// Not another backend: that for GPUs has calls of its own.
template <class A>
concept may_begin_a_selective_call = arrays_of_a_selective_scan<A> || std::is_same_v<A, tiled> ||
    std::is_same_v<A, sequential> ||(may_begin_a_call<A> && !backend<A>);

/// The types of members of options and gradients, where there are arrays.
template <class Value>
struct selective_asked {
  using to_read = state_view<const Value>;
  using to_write = state_view<Value>;
  using real_to_write = state_view<real_part_of<Value>>;
  using steps_to_write = sequence_view<Value>;
  using steps_to_read = sequence_view<const Value>;
  using intervals = sequence_view<real_part_of<Value>>;
  using stored = stored_sequence<real_part_of<Value>>;
  using mixing = mixing_view<Value>;
};
template <>
struct selective_asked<void> {
  using to_read = void;
  using to_write = void;
  using real_to_write = void;
  using steps_to_write = void;
  using steps_to_read = void;
  using intervals = void;
  using stored = void;
  using mixing = void;
};
template <class Arrays>
using selective_asked_of = selective_asked<typename selective_value<Arrays>::type>;

SCANREC_GIVEN_SEQUENCE_(checkpoints, "the type of states");
SCANREC_GIVEN_SEQUENCE_(u, "what computes in the type of the arrays");
SCANREC_GIVEN_SEQUENCE_(delta, "what computes in the type of the arrays");
SCANREC_GIVEN_SEQUENCE_(z, "what computes in the type of the arrays");
SCANREC_GIVEN_STATE_(a);
SCANREC_GIVEN_STATE_(skip);
SCANREC_GIVEN_STATE_(delta_bias);
SCANREC_GIVEN_VIEW_(b, "sequence_view or state_view", a_number, "number",
                    "what computes in the type of the arrays");
SCANREC_GIVEN_VIEW_(c, "sequence_view or state_view", a_number, "number",
                    "what computes in the type of the arrays");

template <class Arrays>
struct given_selective_options {
  using asked = selective_asked_of<Arrays>;
  given_order order{};
  given_initial_state<typename asked::to_read> initial_state{};
  given_final_state<typename asked::to_write> final_state{};
  given_resets<sequence_view<const bool>> resets{};
  given_checkpoints<typename asked::steps_to_write> checkpoints{};
  given_reverse reverse{};
};
template <class Arrays>
struct given_selective_vjp_options {
  using asked = selective_asked_of<Arrays>;
  given_order order{};
  given_initial_state<typename asked::to_read> initial_state{};
  given_final_grad<typename asked::to_read> final_grad{};
  given_resets<sequence_view<const bool>> resets{};
  given_checkpoints<typename asked::steps_to_read> checkpoints{};
  given_reverse reverse{};
};
template <class Arrays>
struct given_selective_gradients {
  using asked = selective_asked_of<Arrays>;
  given_u<typename asked::stored> u{};
  given_delta<typename asked::stored> delta{};
  given_a<typename asked::to_write> a{};
  given_b<typename asked::mixing> b{};
  given_c<typename asked::mixing> c{};
  given_skip<typename asked::real_to_write> skip{};
  given_z<typename asked::stored> z{};
  given_delta_bias<typename asked::real_to_write> delta_bias{};
  given_initial_state<typename asked::to_write> initial_state{};
  given_intervals<typename asked::intervals> intervals{};
  given_update update{};
};

template <class Given>
inline constexpr bool begins_a_selective_scan =
    arrays_of_a_selective_scan<typename Given::template at<0>>;
/// Whether outputs, or their gradients, are views of what computes in the type of the arrays.
template <class Output, class Arrays>
concept output_of_selective =
    std::is_convertible_v<Output, typename selective_asked_of<Arrays>::stored>;
template <class Output, class Arrays>
concept output_to_read_of_selective =
    std::is_convertible_v<Output, stored_sequence<const typename Arrays::real>>;
// The calls convert their views, so that an overload for anything would be the better match where
// they do: it is one only where the arrays do not fit, and has the calls' own parameters where they
// do.
template <class First, class... Rest>
concept fits_selective_scan =
    (!backend<First> || runs_selective_scans<First>)&&begins_a_selective_scan<given_arrays<
        First,
        Rest...>>&& output_of_selective<typename given_arrays<First, Rest...>::template at<1>,
                                        typename given_arrays<First, Rest...>::template at<0>>;
template <class First, class... Rest>
concept fits_selective_scan_vjp =
    (!backend<First> || runs_selective_scans<First>)&&begins_a_selective_scan<given_arrays<
        First, Rest...>>&& output_to_read_of_selective<typename given_arrays<First, Rest...>::
                                                           template at<1>,
                                                       typename given_arrays<
                                                           First, Rest...>::template at<0>>;

}  // namespace scanrec::detail::inline SCANREC_ABI

#define SCANREC_EXPLAIN_SELECTIVE_(given, call, last)                                              \
  using arrays = typename given::template at<0>;                                                   \
  static_assert(detail::arrays_of_a_selective_scan<arrays>,                                        \
                "scanrec: " call                                                                   \
                ": argument 'arrays': expected selective_arrays<float>{.u = view, .delta = view, " \
                "...}, or of double or complex, got something else");                              \
  using output = typename given::template at<1>;                                                   \
  static_assert(!std::is_same_v<output, none_t>,                                                   \
                "scanrec: " call ": argument '" last                                               \
                "': expected a sequence_view, {} where there is none, got none");                  \
  SCANREC_EXPECT_ANY_VIEW_(output, call, last)

#if !defined(__CUDACC__)  // see explain.hpp
namespace scanrec::inline SCANREC_ABI {

// ---- selective_scan: arrays that do not fit, then options ---------------------------------------

template <detail::may_begin_a_selective_call First, class... Rest>
requires(!detail::fits_selective_scan<First, Rest...>) void selective_scan(const First&,
                                                                           const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_SELECTIVE_(given, "selective_scan", "out");
  static_assert(!detail::a_view_to_read<output>,
                "scanrec: selective_scan: argument 'out': expected elements that can be written, "
                "got a view of const ones");
  static_assert(!sequence<output> || detail::a_view_to_read<output>,
                "scanrec: selective_scan: argument 'out': expected elements that compute in the "
                "real type of the arrays (float, bfloat16 and float16 in float), got others");
  static_assert(given::count < 0,
                "scanrec: selective_scan: expected arrays, out (a backend before, options behind)");
}
template <class V, class Wrong, class... Rest>
requires(!std::is_convertible_v<const Wrong&, selective_options<V>>) void selective_scan(
    const selective_arrays<V>&,
    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>&, const Wrong&,
    const Rest&...) {
  static_assert(std::is_void_v<Wrong>,
                "scanrec: selective_scan: argument 'options': expected them in braces, as "
                "{.initial_state = view}, or selective_options of the type of the arrays");
}
template <class V, class... Rest>
void selective_scan(
    const selective_arrays<V>&,
    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>&,
    const std::type_identity_t<detail::given_selective_options<selective_arrays<V>>>&,
    const Rest&...) {
  SCANREC_EXPLAIN_BRACES_("selective_scan", "options", "selective_options",
                          arrays_of_a_selective_scan<selective_arrays<V>>);
}
template <runs_selective_scans First, class V, class... Rest>
void selective_scan(
    const First&, const selective_arrays<V>&,
    const std::type_identity_t<stored_sequence<detail::real_part_of<V>>>&,
    const std::type_identity_t<detail::given_selective_options<selective_arrays<V>>>&,
    const Rest&...) {
  SCANREC_EXPLAIN_BRACES_("selective_scan", "options", "selective_options",
                          arrays_of_a_selective_scan<selective_arrays<V>>);
}

// ---- selective_scan_vjp: arrays that do not fit, then gradients and options
// ----------------------

template <detail::may_begin_a_selective_call First, class... Rest>
requires(!detail::fits_selective_scan_vjp<First, Rest...>) void selective_scan_vjp(const First&,
                                                                                   const Rest&...) {
  using given = detail::given_arrays<First, Rest...>;
  SCANREC_EXPLAIN_SELECTIVE_(given, "selective_scan_vjp", "out_grad");
  static_assert(
      !sequence<output>,
      "scanrec: selective_scan_vjp: argument 'out_grad': expected elements that compute "
      "in the real type of the arrays (float, bfloat16 and float16 in float), got others");
  static_assert(given::count < 0,
                "scanrec: selective_scan_vjp: expected arrays, out_grad, gradients (a backend "
                "before, options behind)");
}
template <detail::may_begin_a_selective_call First, class Second, class... Rest>
requires(!backend<First> &&
         !detail::fits_selective_scan_vjp<
             First, Second>) void selective_scan_vjp(const First&, const Second&,
                                                     const std::type_identity_t<
                                                         detail::given_selective_gradients<First>>&,
                                                     const Rest&...) {
  using given = detail::given_arrays<First, Second>;
  SCANREC_EXPLAIN_SELECTIVE_(given, "selective_scan_vjp", "out_grad");
  static_assert(given::count < 0,
                "scanrec: selective_scan_vjp: expected arrays, out_grad, gradients (a backend "
                "before, options behind)");
}
template <class V, class... Rest>
void selective_scan_vjp(
    const selective_arrays<V>&,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>&,
    const std::type_identity_t<detail::given_selective_gradients<selective_arrays<V>>>&,
    const Rest&...) {
  SCANREC_EXPLAIN_BRACES_("selective_scan_vjp", "gradients", "selective_gradients",
                          arrays_of_a_selective_scan<selective_arrays<V>>);
}
template <class V, class... Rest>
void selective_scan_vjp(
    const selective_arrays<V>&,
    const std::type_identity_t<stored_sequence<const detail::real_part_of<V>>>&,
    const std::type_identity_t<detail::given_selective_gradients<selective_arrays<V>>>&,
    const std::type_identity_t<detail::given_selective_vjp_options<selective_arrays<V>>>&,
    const Rest&...) {
  SCANREC_EXPLAIN_BRACES_("selective_scan_vjp", "options", "selective_vjp_options",
                          arrays_of_a_selective_scan<selective_arrays<V>>);
}

}  // namespace scanrec::inline SCANREC_ABI
#endif
