// SPDX-License-Identifier: BSD-3-Clause
// Scans with any associative operator. An element is both a state and the map of a step.
#pragma once

#include <cstdint>

#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/views.hpp>

namespace scanrec::inline SCANREC_ABI::recurrence {

template <class Op, class E>
struct operator_scan {
  using value = E;
  using operator_type = Op;
  static constexpr bool one_by_one = true;
  static constexpr bool any_operator = true;
  static constexpr bool computes_much = false;
  template <class Lane>
  using map_of = E;
  template <class Lane>
  using state_of = E;
  template <class Lane>
  struct sums {};

  const Op* op = nullptr;
  element_field<const E> elements;
  element_field<E> results;
  element_field<const E> initial;
  element_field<E> final_state;
  bool exclusive = false;
  E before_all{};  // first result of an exclusive scan without an initial element

  /// Whether the scan has an initial element.
  SCANREC_HD bool starts() const { return initial.data != nullptr; }

  struct algebra_type {
    const Op* op;
    SCANREC_HD SCANREC_INLINE E compose(const E& earlier, const E& later) const {
      return (*op)(earlier, later);
    }
    SCANREC_HD SCANREC_INLINE E act(const E& later, const E& x) const { return (*op)(x, later); }
  };
  SCANREC_HD algebra_type algebra() const { return {op}; }

  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE E load(Position at) const {
    return elements[at];
  }
  template <class Position>
  SCANREC_HD SCANREC_INLINE E map(Position, const E& read) const {
    return read;
  }
  template <class Position>
  SCANREC_HD SCANREC_INLINE E next(Position at, const E& read, const E& before) const {
    return at.time == 0 && !starts() ? read : static_cast<E>((*op)(before, read));
  }
  template <class Position, class Sums>
  SCANREC_HD SCANREC_INLINE void finish(Position at, const E&, const E& before, const E& after,
                                        Sums&) const {
    results[at] = !exclusive ? after : at.time == 0 && !starts() ? before_all : before;
  }
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE E begin(Position at) const {
    return starts() ? initial.data[at.channel * initial.strides.channel] : before_all;
  }
  template <class Position>
  SCANREC_HD SCANREC_INLINE void end(Position at, const E& after) const {
    if (final_state.data) final_state.data[at.channel * final_state.strides.channel] = after;
  }
  template <class Position, class Sums>
  SCANREC_HD SCANREC_INLINE void flush(Position, Sums&) const {}
  template <class Lane, class Position>
  SCANREC_HD SCANREC_INLINE void touch_rest(Position) const {}

  using arrays =
      array_list<reads<&operator_scan::elements>, writes<&operator_scan::results>,
                 starts_from<&operator_scan::initial>, ends_in<&operator_scan::final_state>>;
};

}  // namespace scanrec::inline SCANREC_ABI::recurrence
