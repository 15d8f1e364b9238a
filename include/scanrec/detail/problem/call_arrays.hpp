// SPDX-License-Identifier: BSD-3-Clause
// Checks of the arrays of selective scans, causal convolutions and linear attention: each array by
// itself, then all for overlaps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/problem/check.hpp>
#include <scanrec/detail/recurrence/rows.hpp>
#include <scanrec/error.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The arrays of one call. checked_rows() and values() check an array and return the form that
/// kernels take. V is the compute type; Rows is the form of sequences, which have any stored type.
template <class V, template <class> class Rows = row_array>
class call_arrays {
 public:
  using real = real_part_of<V>;

  [[noreturn]] void refuse(const char* argument, const text& expected, const text& got) const {
    scanrec::detail::refuse(called_.call, argument, expected, got);
  }

 protected:
  explicit call_arrays(const char* call, bool reverse = false) : reverse_(reverse) {
    called_.call = call;
  }

  void require(const char* argument, bool given) const {
    if (!given) refuse(argument, "an array", "none");
  }
  template <class E>
  static constexpr access access_to = std::is_const_v<E> ? access::read : access::write;
  /// Checks shape, pointer and strides of one array. Errors name the shape `wanted`, then `more`.
  void check(const array_use& array, const extents& wanted, const char* more = "") {
    if (!array.given) return;
    if (array.shape != wanted) refuse(array.name, text("shape ", wanted, more), text(array.shape));
    called_.shape = array.shape;
    check_array(called_, array, array);
    used_.all[used_.count++] = array;
  }
  /// Rows that are not steps, such as the rows of a matrix.
  template <class E, class Sequence>
  Rows<real> checked_matrix(const char* name, const Sequence& of, const extents& wanted) {
    array_use array = of.use();
    array.name = name, array.use = access_to<E>;
    check(array, wanted);
    return Rows<real>::of(array, of.access());
  }
  /// Steps, in scan order.
  template <class E, class Sequence>
  Rows<real> checked_rows(const char* name, const Sequence& of, const extents& wanted) {
    Rows<real> rows = checked_matrix<E>(name, of, wanted);
    if (!reverse_ || rows.data == nullptr || wanted.time == 0) return rows;
    rows.data += (wanted.time - 1) * rows.strides.time * of.use().element_bytes;
    rows.strides.time = -rows.strides.time;
    return rows;
  }
  template <class E>
  auto values(const char* name, const state_view<E>& of, const extents& wanted) {
    using value = std::remove_const_t<E>;
    check(use_of(name, of, access_to<E>), wanted);
    return value_array<value>{const_cast<value*>(of.data), of.strides};
  }
  /// Refuses an array that overlaps one that is written. The arrays of a pair in `may_alias` may be
  /// the same: equal pointers, types, shapes and strides.
  template <std::size_t N>
  void check_apart(const std::array<in_place_pair, N>& may_alias) {
    check_overlaps<most>(called_.call, used_, may_alias);
  }

  bool reverse_;

 private:
  // The maximum number of arrays of a call.
  static constexpr int most = 32;
  struct used_arrays {
    std::array<array_use, most> all{};
    int count = 0;
    array_use* begin() { return all.data(); }
    array_use* end() { return all.data() + count; }
  };

  problem called_;  // for check_array: the name of the call, and the shape of the array
  used_arrays used_;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
