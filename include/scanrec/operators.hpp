// SPDX-License-Identifier: BSD-3-Clause
// Associative operators for prefix scans: the concept, predefined operators, and a check of
// associativity.
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

/// An associative operator `op(earlier, later)` on trivially copyable elements.
///
/// The concept checks the syntax only. The author must ensure op(op(x, y), z) == op(x, op(y, z));
/// check_associative tests it on samples. The operator need not commute: the earlier element is
/// always the first argument. Several threads may call the operator at once.
template <class Op, class E>
concept associative_operator = std::is_trivially_copyable_v<E> && std::default_initializable<E> &&
    requires(const Op& op, const E& earlier, const E& later) {
  { op(earlier, later) } -> std::convertible_to<E>;
};

/// An operator with a member identity(): op(identity, x) == x == op(x, identity).
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

// A separate namespace, since names like these are common.
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

/// The larger element; NaN if either is NaN.
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

/// The smaller element; NaN if either is NaN.
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

/// Composition of maps; for affine<T>, affine_matrix<T, N> and any other composable type.
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

/// Tests associativity on all triples of samples: compares op(op(x, y), z) and op(x, op(y, z)) with
/// `equal`. Pass an `equal` with a tolerance for floating-point numbers. Returns the first triple
/// that fails, or nothing.
///
/// If the operator has an identity, each sample x is also combined with it on both sides. A
/// failure is then returned as the triple (identity, x, identity).
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
/// check_associative for a container of samples.
template <class Samples, class Op, class E = typename Samples::value_type,
          class Equal = std::equal_to<E>>
requires associative_operator<Op, E> std::optional<std::array<E, 3>> check_associative(
    const Op& op, const Samples& samples, Equal equal = {}) {
  return check_associative<E>(op, std::span<const E>(samples.data(), samples.size()), equal);
}

}  // namespace scanrec
