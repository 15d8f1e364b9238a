// SPDX-License-Identifier: BSD-3-Clause
// Concepts for the arguments of calls.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <scanrec/element.hpp>
#include <scanrec/matrix.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec {

namespace detail {

template <class V>
struct sequence_traits;  // defined for sequence_view and `none` only
template <class T>
struct sequence_traits<sequence_view<T>> {
  using stored = std::remove_const_t<T>;
};
template <>
struct sequence_traits<none_t> {
  using stored = none_t;
};
/// The element type of an argument, or Default if the argument is `none`.
template <class V, class Default>
using stored_or =
    std::conditional_t<std::same_as<V, none_t>, Default, typename sequence_traits<V>::stored>;

}  // namespace detail

/// A sequence_view, or `none`.
template <class V>
concept sequence_argument = requires {
  typename detail::sequence_traits<V>::stored;
};

/// A sequence_view.
template <class V>
concept sequence = sequence_argument<V> && !std::same_as<V, none_t>;

/// A sequence_view whose elements can be written, or `none`.
template <class V>
concept writable_sequence_argument = std::same_as<V, none_t> ||
    (sequence<V> && !std::is_const_v<std::remove_pointer_t<decltype(V::data)>>);

/// A sequence_view whose elements satisfy `element`.
template <class V>
concept sequence_of_elements = sequence<V> && element<typename detail::sequence_traits<V>::stored>;

namespace detail {
/// Whether gates of this type multiply states of the array's compute type. For a vec the gate is a
/// matrix; otherwise both compute types must be equal. Also true if V or Gate is not a sequence of
/// elements.
template <class V, class Gate>
concept computed_as = !sequence_of_elements<V> || !sequence_of_elements<Gate> ||
                      std::same_as<factor_t<compute_t<typename sequence_traits<V>::stored>>,
                                   compute_t<typename sequence_traits<Gate>::stored>>;
}  // namespace detail

inline namespace SCANREC_ABI {

/// A type that runs recurrences, such as `sequential` or `tiled`. The concept requires
/// workspace_bytes; a call asserts that run_recurrence exists. backend_for in extend.hpp describes
/// both.
template <class B>
concept backend = std::is_class_v<B> && requires(const B& b, const problem& p) {
  { workspace_bytes(b, p) } -> std::convertible_to<std::int64_t>;
};

}  // namespace SCANREC_ABI
}  // namespace scanrec
