// SPDX-License-Identifier: BSD-3-Clause
// Small vectors and matrices as elements: states of 2 to 4 numbers, and the matrices that map them.
#pragma once

#include <type_traits>

#include <scanrec/element.hpp>

namespace scanrec {

/// A vector of N contiguous numbers: the state or the input of a matrix recurrence at one step.
template <class T, int N>
struct vec {
  static_assert(N >= 2 && N <= 4, "scanrec: a vec must have 2, 3 or 4 components");
  using component = T;
  T at[N];

  SCANREC_HD SCANREC_INLINE constexpr T& operator[](int i) { return at[i]; }
  SCANREC_HD SCANREC_INLINE constexpr const T& operator[](int i) const { return at[i]; }
  SCANREC_INLINE friend constexpr bool operator==(const vec& x, const vec& y) {
    bool same = true;
    for (int i = 0; i < N; ++i) same = same && x.at[i] == y.at[i];
    return same;
  }
};

/// An N x N matrix, row-major: the gate of a matrix recurrence at one step.
template <class T, int N>
struct mat {
  static_assert(N >= 2 && N <= 4, "scanrec: a mat must have 2, 3 or 4 rows");
  using component = T;
  T at[N][N];

  SCANREC_HD SCANREC_INLINE constexpr T& operator()(int row, int column) { return at[row][column]; }
  SCANREC_HD SCANREC_INLINE constexpr const T& operator()(int row, int column) const {
    return at[row][column];
  }
  SCANREC_INLINE friend constexpr bool operator==(const mat& x, const mat& y) {
    bool same = true;
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) same = same && x.at[i][j] == y.at[i][j];
    return same;
  }
};

namespace detail {

template <class T>
inline constexpr bool is_vec = false;
template <class T, int N>
inline constexpr bool is_vec<vec<T, N>> = true;
template <class T>
inline constexpr bool is_mat = false;
template <class T, int N>
inline constexpr bool is_mat<mat<T, N>> = true;

template <class T, int N>
struct element_traits<vec<T, N>> : element_types<vec<typename element_traits<T>::compute, N>,
                                                 vec<typename element_traits<T>::wide, N>> {};
template <class T, int N>
struct element_traits<mat<T, N>> : element_types<mat<typename element_traits<T>::compute, N>,
                                                 mat<typename element_traits<T>::wide, N>> {};

/// factor_of is the type that multiplies a state: a number for a number, a matrix for a vector.
/// multiplied_by is the inverse: the state type that a factor multiplies.
template <class State>
struct factor_of {
  using type = State;
};
template <class T, int N>
struct factor_of<vec<T, N>> {
  using type = mat<T, N>;
};
template <class Factor>
struct multiplied_by {
  using type = Factor;
};
template <class T, int N>
struct multiplied_by<mat<T, N>> {
  using type = vec<T, N>;
};

}  // namespace detail

/// The gate type for states of type State.
template <class State>
using factor_t = typename detail::factor_of<State>::type;

}  // namespace scanrec
