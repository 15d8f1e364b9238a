// SPDX-License-Identifier: BSD-3-Clause
// inclusive_scan and exclusive_scan: prefix scans with any associative operator.
#pragma once

#include <array>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/problem/build.hpp>
#include <scanrec/detail/problem/expect.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/detail/recurrence/operator_scan.hpp>
#include <scanrec/operators.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

/// Options of inclusive_scan and exclusive_scan over elements of type E.
template <class E>
struct prefix_options {
  direction order = direction::forward;     ///< reverse: the last element comes first
  detail::state_option<const E> initial{};  ///< combined before the first element
  detail::state_option<E> final{};          ///< receives initial and all elements, combined
};

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

template <class View>
using element_of = typename sequence_traits<View>::stored;
/// The element type that determines the options of a call. If `Elements` is not a view, the type is
/// float, so that overload resolution finds the call and its checks report the mistake.
template <class Elements>
struct element_or_float : std::type_identity<float> {};
template <sequence Elements>
struct element_or_float<Elements> : std::type_identity<element_of<Elements>> {};
template <class Elements>
using prefix_options_for = prefix_options<typename element_or_float<Elements>::type>;
/// Whether the elements or the results are a view. Distinguishes these calls from those of the
/// standard library.
template <class Elements, class Results>
concept scans_a_view = sequence<Elements> || sequence<Results>;

template <class Op, class Elements, class Results>
constexpr bool fits_operator_scan() {
  constexpr bool elements = sequence<Elements>,
                 results = sequence<Results> && writable_sequence_argument<Results>;
  constexpr bool op =
      !elements || associative_operator<Op, typename element_or_float<Elements>::type>;
  SCANREC_EXPECT(
      op, "inclusive_scan or exclusive_scan", "op",
      "an associative operator before the arrays, such as op::sum{}, that is callable as "
      "op(earlier, later)");
  SCANREC_EXPECT(elements, "inclusive_scan or exclusive_scan", "elements", "a sequence_view");
  SCANREC_EXPECT(results || !op, "inclusive_scan or exclusive_scan", "results",
                 "a sequence_view with elements that can be written");
  if constexpr (elements && results) {
    constexpr bool same = std::is_same_v<element_of<Results>, element_of<Elements>>;
    SCANREC_EXPECT(same, "inclusive_scan or exclusive_scan", "results",
                   "elements of the type of 'elements'");
    return op && same;
  }
  return false;
}

template <class Op, class Elements, class Results, class Then>
void make_operator_scan(const char* name, bool exclusive, const Op& op, const Elements& elements,
                        const Results& results, const prefix_options<element_of<Elements>>& options,
                        Then then) {
  using E = element_of<Elements>;
  problem_builder c(name, elements.shape);
  const int u = c.add("elements", elements, access::read);
  const int u0 = c.add("initial", options.initial, access::read);
  const int x = c.add("results", results, access::write);
  const int xT = c.add("final", options.final, access::write);
  c.require(u, "an array");
  c.require(x, "an array");
  constexpr bool has_identity = operator_with_identity<Op, E>;
  if (!has_identity && (exclusive || (elements.shape.time == 0 && !options.final.absent())))
    c.require(u0, "an array, since the operator has no identity");

  using R = recurrence::operator_scan<Op, E>;
  c.template prepare<R>(
      options.order, std::array<in_place_pair, 2>{{{"results", "elements"}, {"final", "initial"}}});
  R r;
  r.op = &op;
  r.elements = c.template elements<const E>(u);
  r.initial = c.template elements<const E>(u0);
  r.results = c.template elements<E>(x);
  r.final_state = c.template elements<E>(xT);
  r.exclusive = exclusive;
  if constexpr (has_identity) r.before_all = identity_of<E>(op);
  then(r, c.described());
}

}  // namespace scanrec::detail::inline SCANREC_ABI

namespace scanrec::inline SCANREC_ABI {

/// results[t] = initial op elements[0] op ... op elements[t], for every group, batch and channel.
/// In a reverse scan, t counts from the last element.
///
/// Shapes   elements, results: (batch, time, channel), equal, with any strides. initial, final:
///          (batch, channel); with zero strides all sequences share one element.
/// Backends sequential, tiled, hillis_steele, blelloch.
/// Law      op must be associative (see associative_operator). Each argument is an element or the
///          combination of a block of elements; the two blocks are adjacent, and the first argument
///          is the earlier one in scan order. Several threads call op at once, but never with an
///          identity or uninitialised memory.
/// Aliasing results may be elements, and final may be initial: same pointer, strides and type.
/// Throws   argument_error, before anything is written; std::bad_alloc if the workspace cannot be
///          allocated. An exception of op propagates after all workers have stopped; if several
///          tasks throw, it is that of the first task. The contents of results and final are then
///          unspecified.
/// Cost     1 array read + 1 written. The number of calls of op is n for `sequential`, up to 2n for
///          `tiled` if time is split, 2n for `blelloch`, and n log2 n for `hillis_steele`.
template <backend Backend, class Op, class Elements, class Results>
requires detail::scans_a_view<Elements, Results>
void inclusive_scan(const Backend& backend, const Op& op, const Elements& elements,
                    const Results& results,
                    const detail::prefix_options_for<Elements>& options = {}) {
  if constexpr (detail::fits_operator_scan<Op, Elements, Results>())
    detail::make_operator_scan("inclusive_scan", false, op, elements, results, options,
                               detail::run_on_backend(backend));
}
template <class Op, class Elements, class Results>
requires detail::scans_a_view<Elements, Results>
void inclusive_scan(const Op& op, const Elements& elements, const Results& results,
                    const detail::prefix_options_for<Elements>& options = {}) {
  inclusive_scan(tiled{}, op, elements, results, options);
}

/// results[t] = initial op elements[0] op ... op elements[t - 1]; results[0] = initial, or the
/// identity of op if initial is absent. Otherwise as inclusive_scan.
template <backend Backend, class Op, class Elements, class Results>
requires detail::scans_a_view<Elements, Results>
void exclusive_scan(const Backend& backend, const Op& op, const Elements& elements,
                    const Results& results,
                    const detail::prefix_options_for<Elements>& options = {}) {
  if constexpr (detail::fits_operator_scan<Op, Elements, Results>())
    detail::make_operator_scan("exclusive_scan", true, op, elements, results, options,
                               detail::run_on_backend(backend));
}
template <class Op, class Elements, class Results>
requires detail::scans_a_view<Elements, Results>
void exclusive_scan(const Op& op, const Elements& elements, const Results& results,
                    const detail::prefix_options_for<Elements>& options = {}) {
  exclusive_scan(tiled{}, op, elements, results, options);
}

// ---- descriptions of calls, without running them ----------------------------------------------

/// The problem of an inclusive_scan call with these arguments, for describe() and
/// workspace_bytes().
template <class Op, class Elements, class Results>
[[nodiscard]] problem inclusive_scan_problem(
    const Op& op, const Elements& elements, const Results& results,
    const detail::prefix_options_for<Elements>& options = {}) {
  problem made;
  if constexpr (detail::fits_operator_scan<Op, Elements, Results>())
    detail::make_operator_scan("inclusive_scan", false, op, elements, results, options,
                               [&](const auto&, const problem& p) { made = p; });
  return made;
}
/// The problem of an exclusive_scan call with these arguments.
template <class Op, class Elements, class Results>
[[nodiscard]] problem exclusive_scan_problem(
    const Op& op, const Elements& elements, const Results& results,
    const detail::prefix_options_for<Elements>& options = {}) {
  problem made;
  if constexpr (detail::fits_operator_scan<Op, Elements, Results>())
    detail::make_operator_scan("exclusive_scan", true, op, elements, results, options,
                               [&](const auto&, const problem& p) { made = p; });
  return made;
}

}  // namespace scanrec::inline SCANREC_ABI
