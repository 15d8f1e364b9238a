// SPDX-License-Identifier: BSD-3-Clause
// stored_sequence, a view of a sequence with a type-erased element type.
#pragma once

#include <type_traits>
#include <utility>

#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A sequence_view with any element type whose compute type is V; for float these are float,
/// bfloat16 and float16. The arrays of a call may differ in element type. Use `const V` for arrays
/// that are read.
template <class V>
class stored_sequence {
  using value = std::remove_const_t<V>;
  template <class S>
  static constexpr bool fits = std::is_same_v<compute_t<std::remove_const_t<S>>, value> &&
                               (std::is_const_v<V> || !std::is_const_v<S>);
  template <class S>
  static std::bool_constant<fits<S>> converts(const sequence_view<S>&);
  static std::false_type converts(...);

 public:
  SCANREC_INLINE constexpr stored_sequence() = default;
  template <class S>
  requires(fits<S>) SCANREC_INLINE
      stored_sequence(const sequence_view<S>& view)  // NOLINT(google-explicit-constructor)
      : use_(detail::use_of("", view, access::read)),
        access_(&detail::rows_of<std::remove_const_t<S>, value>) {}
  template <class Given>
  requires(!decltype(converts(std::declval<const Given&>()))::value)
      stored_sequence(const Given&) {  // NOLINT(google-explicit-constructor)
    static_assert(
        std::is_void_v<Given>,
        "scanrec: expected a sequence_view(x, extents) whose elements have compute type V "
        "(for V = float: float, bfloat16 or float16), with non-const elements if the call "
        "writes it; pass {} for an absent array");
  }

  [[nodiscard]] SCANREC_INLINE bool absent() const { return !use_.given; }
  [[nodiscard]] SCANREC_INLINE const extents& shape() const { return use_.shape; }

  /// For the implementation only.
  [[nodiscard]] SCANREC_INLINE const array_use& use() const { return use_; }
  [[nodiscard]] SCANREC_INLINE const detail::row_access<value>* access() const { return access_; }

 private:
  array_use use_;
  const detail::row_access<value>* access_ = nullptr;
};

}  // namespace scanrec::inline SCANREC_ABI
