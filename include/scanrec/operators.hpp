// SPDX-License-Identifier: BSD-3-Clause
// Any associative operator: the concept and its law, the ready-made ones, a check of the law.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include <scanrec/detail/maps/lane_scans.hpp>

namespace scanrec {

/// An operator that a scan can regroup: `op(earlier, later)` for elements that are copied as bytes.
///
/// The syntax is checked here; the law op(op(x, y), z) == op(x, op(y, z)) is the author's duty, and
/// check_associative helps. It need not commute: the order of the arguments is the contract. It is
/// called from several threads at once.
template <class Op, class E>
concept associative_operator = std::is_trivially_copyable_v<E> && std::default_initializable<E> &&
    requires(const Op& op, const E& earlier, const E& later) {
  { op(earlier, later) } -> std::convertible_to<E>;
};

/// An operator that says what changes nothing: op(identity, x) == x == op(x, identity).
template <class Op, class E>
concept operator_with_identity = associative_operator<Op, E> &&(
    requires(const Op& op) {
      { op.identity() } -> std::convertible_to<E>;
    } ||
    requires(const Op& op) {
      { op.template identity<E>() } -> std::convertible_to<E>;
    });

inline namespace SCANREC_ABI {

/// The identity of an operator on elements of type E.
template <class E, operator_with_identity<E> Op>
SCANREC_INLINE E identity_of(const Op& op) {
  if constexpr (requires { op.template identity<E>(); })
    return op.template identity<E>();
  else
    return op.identity();
}

}  // namespace SCANREC_ABI

// In a namespace of their own: names like these are common.
namespace op {
inline namespace SCANREC_ABI {

/// earlier + later.
struct sum {
  template <class E>
  SCANREC_HD SCANREC_INLINE E operator()(const E& earlier, const E& later) const {
    return static_cast<E>(earlier + later);
  }
  template <class E>
  static E identity() {
    return E(0);
  }
};

/// earlier * later.
struct product {
  template <class E>
  SCANREC_HD SCANREC_INLINE E operator()(const E& earlier, const E& later) const {
    return static_cast<E>(earlier * later);
  }
  template <class E>
  static E identity() {
    return E(1);
  }
};

/// The larger one. A NaN stays, whichever side it is on.
struct max {
  template <class E>
  SCANREC_HD SCANREC_INLINE E operator()(const E& earlier, const E& later) const {
    return earlier > later || earlier != earlier ? earlier : later;
  }
  template <class E>
  static E identity() {
    using limits = std::numeric_limits<E>;
    return limits::has_infinity ? -limits::infinity() : limits::lowest();
  }
};

/// The smaller one. A NaN stays, whichever side it is on.
struct min {
  template <class E>
  SCANREC_HD SCANREC_INLINE E operator()(const E& earlier, const E& later) const {
    return earlier < later || earlier != earlier ? earlier : later;
  }
  template <class E>
  static E identity() {
    using limits = std::numeric_limits<E>;
    return limits::has_infinity ? limits::infinity() : limits::max();
  }
};

/// Composition of maps: affine<T>, affine_matrix<T, N>, or any composable type.
struct compose {
  template <composable M>
  SCANREC_HD SCANREC_INLINE M operator()(const M& earlier, const M& later) const {
    return combine(earlier, later);
  }
  template <composable M>
  static M identity() {
    return M::identity();
  }
};

}  // namespace SCANREC_ABI
}  // namespace op

/// The first three samples on which the law fails, or nothing: op(op(x, y), z) against
/// op(x, op(y, z)) for all triples, compared by `equal`; floating point numbers want a tolerance.
/// An operator with an identity is tried with it as well, on either side of every sample: such a
/// failure names the sample in the middle of two identities.
template <class E, associative_operator<E> Op, class Equal = std::equal_to<E>>
std::optional<std::array<E, 3>> check_associative(const Op& op, std::span<const E> samples,
                                                  Equal equal = {}) {
  for (const E& x : samples)
    for (const E& y : samples)
      for (const E& z : samples)
        if (!equal(op(op(x, y), z), op(x, op(y, z)))) return std::array<E, 3>{x, y, z};
  if constexpr (operator_with_identity<Op, E>) {
    const E one = identity_of<E>(op);
    for (const E& x : samples)
      if (!equal(op(one, x), x) || !equal(op(x, one), x)) return std::array<E, 3>{one, x, one};
  }
  return std::nullopt;
}
/// The same for a container of samples.
template <class Samples, class Op, class E = typename Samples::value_type,
          class Equal = std::equal_to<E>>
requires associative_operator<Op, E> std::optional<std::array<E, 3>> check_associative(
    const Op& op, const Samples& samples, Equal equal = {}) {
  return check_associative<E>(op, std::span<const E>(samples.data(), samples.size()), equal);
}

}  // namespace scanrec
