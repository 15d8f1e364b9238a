// SPDX-License-Identifier: BSD-3-Clause
// inclusive_scan and exclusive_scan: prefixes under any associative operator.
#pragma once

#include <array>
#include <type_traits>

#include <scanrec/backends.hpp>
#include <scanrec/detail/call/call.hpp>
#include <scanrec/detail/call/explain_prefix.hpp>
#include <scanrec/detail/call/run.hpp>
#include <scanrec/detail/recurrence/operator_scan.hpp>
#include <scanrec/operators.hpp>
#include <scanrec/options.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

/// Options of inclusive_scan and exclusive_scan over elements of type E.
template <class E>
struct prefix_options {
  direction order = direction::forward;  ///< reverse: the last element comes first
  state_view<const E> initial{};         ///< comes before the first element
  state_view<E> final{};                 ///< receives all elements combined, after the initial one
};

}  // namespace scanrec

namespace scanrec::detail::inline SCANREC_ABI {

template <class View>
using element_of = typename sequence_traits<View>::stored;
/// A view to write, of the type of the elements.
template <class Results, class Elements>
concept results_of = sequence<Results> && writable_sequence_argument<Results> &&
    std::is_same_v<element_of<Results>, element_of<Elements>>;

template <class Op, class Elements, class Results, class Then>
void make_operator_scan(const char* name, bool exclusive, const Op& op, const Elements& elements,
                        const Results& results, const prefix_options<element_of<Elements>>& options,
                        Then then) {
  using E = element_of<Elements>;
  static_assert(std::is_same_v<E, element_of<Results>>,
                "scanrec: elements and results must have the same type");

  call c(name, elements.shape);
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
      options.order == direction::reverse,
      std::array<in_place_pair, 2>{{{"results", "elements"}, {"final", "initial"}}}, false);
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

/// results[t] = initial op elements[0] op ... op elements[t], per group, batch and channel.
///
/// Shapes   elements, results: (batch, time, channel), equal, any strides; initial, final: (batch,
///          channel), where a zero stride gives all sequences one element.
/// Backends sequential, tiled, hillis_steele, blelloch.
/// Law      op must be associative, see associative_operator; it is called with adjacent stretches,
///          the earlier one first, never with an identity or with memory nobody wrote, from several
///          threads at once.
/// Aliasing results may be elements, and final may be initial: same pointer, strides, type.
/// Throws   argument_error before anything is written; std::bad_alloc from the workspace; what op
///          throws, on whatever thread: the first by the order of tasks, once no worker is at work
///          any more. What is in results and final then is unspecified.
/// Cost     1 array read + 1 written, and n calls of op by `sequential`; 2n by `tiled` where time
///          is split and by `blelloch`; n log2 n by `hillis_steele`.
template <backend Backend, class Op, sequence Elements, detail::results_of<Elements> Results>
requires associative_operator<Op, detail::element_of<Elements>>
void inclusive_scan(
    const Backend& backend, const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  detail::make_operator_scan("inclusive_scan", false, op, elements, results, options,
                             detail::run_on_backend(backend));
}
template <class Op, sequence Elements, detail::results_of<Elements> Results>
requires associative_operator<Op, detail::element_of<Elements>>
void inclusive_scan(
    const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  inclusive_scan(tiled{}, op, elements, results, options);
}

/// results[t] = initial op elements[0] op ... op elements[t - 1]; results[0] = initial, or the
/// identity of op. As inclusive_scan in all else.
template <backend Backend, class Op, sequence Elements, detail::results_of<Elements> Results>
requires associative_operator<Op, detail::element_of<Elements>>
void exclusive_scan(
    const Backend& backend, const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  detail::make_operator_scan("exclusive_scan", true, op, elements, results, options,
                             detail::run_on_backend(backend));
}
template <class Op, sequence Elements, detail::results_of<Elements> Results>
requires associative_operator<Op, detail::element_of<Elements>>
void exclusive_scan(
    const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  exclusive_scan(tiled{}, op, elements, results, options);
}

// ---- what a call would do, without doing it ---------------------------------------------------

/// The problem that the same call of inclusive_scan poses, for describe() and workspace_bytes().
template <class Op, sequence Elements, sequence Results>
requires associative_operator<Op, detail::element_of<Elements>>
[[nodiscard]] problem inclusive_scan_problem(
    const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  problem made;
  detail::make_operator_scan("inclusive_scan", false, op, elements, results, options,
                             [&](const auto&, const problem& p) { made = p; });
  return made;
}
/// The problem that the same call of exclusive_scan poses.
template <class Op, sequence Elements, sequence Results>
requires associative_operator<Op, detail::element_of<Elements>>
[[nodiscard]] problem exclusive_scan_problem(
    const Op& op, const Elements& elements, const Results& results,
    const std::type_identity_t<prefix_options<detail::element_of<Elements>>>& options = {}) {
  problem made;
  detail::make_operator_scan("exclusive_scan", true, op, elements, results, options,
                             [&](const auto&, const problem& p) { made = p; });
  return made;
}

}  // namespace scanrec::inline SCANREC_ABI
