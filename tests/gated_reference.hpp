// SPDX-License-Identifier: BSD-3-Clause
// The reference for gated scans: a second implementation of fo_pooling and ifo_pooling, on numbers
// that carry an error bound for a computation in the element type.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <scanrec/cells/activation.hpp>
#include <scanrec/cells/qrnn.hpp>

#include "reference.hpp"

namespace reference {

/// A number and a bound on the error of a computation in which every operation has a relative
/// rounding error of at most `unit`.
struct bounded {
  long double value = 0, error = 0;
  static inline long double unit = 0;         // unit roundoff of the type under test
  static inline long double activations = 0;  // additional relative error of activations

  bounded() = default;
  explicit bounded(long double v, long double e = 0) : value(v), error(e) {}
  /// Adds `roundings` relative rounding errors of one unit roundoff to the bound.
  [[nodiscard]] bounded rounded(long double roundings = 1) const {
    return bounded(value, error + roundings * unit * (std::abs(value) + error));
  }
  [[nodiscard]] bounded activated(long double roundings) const {
    return bounded(value, error + activations * std::abs(value)).rounded(roundings);
  }
  friend bounded operator+(bounded x, bounded y) {
    return bounded(x.value + y.value, x.error + y.error).rounded();
  }
  friend bounded operator-(bounded x, bounded y) {
    return bounded(x.value - y.value, x.error + y.error).rounded();
  }
  friend bounded operator*(bounded x, bounded y) {
    return bounded(x.value * y.value,
                   std::abs(x.value) * y.error + std::abs(y.value) * x.error + x.error * y.error)
        .rounded();
  }
};

/// The reference type for elements of type T: bounded, or uint32 itself, whose arithmetic is exact.
template <class T>
using number = std::conditional_t<exact<T>, std::uint32_t, bounded>;
template <class T>
number<T> number_of(T x) {
  if constexpr (exact<T>)
    return x;
  else
    return bounded(widened(x));
}

template <class N>
struct acted {
  N value, complement, slope;
};
template <class N>
acted<N> act(activation::identity, N x) {
  return {x, N(1) - x, N(1)};
}
/// Arguments of activated() and rounded() count unit roundoffs. A ULP is at most two of them.
inline acted<bounded> act(activation::tanh, bounded x) {
  const long double t = std::tanh(x.value), c = std::cosh(x.value), slope = 1 / (c * c);
  const long double of_complement = bounded::activations * std::abs(t);
  return {bounded(t, x.error).activated(6), bounded(1 - t, x.error + of_complement).rounded(8),
          bounded(slope, x.error).activated(12)};
}
inline acted<bounded> act(activation::sigmoid, bounded x) {
  const long double s = 1 / (1 + std::exp(-x.value)), c = 1 / (1 + std::exp(x.value));
  return {bounded(s, x.error).activated(9), bounded(c, x.error).activated(9),
          bounded(s * c, x.error).activated(11)};
}

/// The second implementation of a cell: the values of a step from its pre-activations, and the
/// gradients of the pre-activations.
template <class Cell>
struct cell_again;
template <class Z, class G>
struct cell_again<fo_pooling<Z, G>> {
  template <class N>
  struct step {
    acted<N> z, f, o;
    N a() const { return f.value; }
    N u() const { return f.complement * z.value; }
    N output(N state) const { return o.value * state; }
    N back(N output_grad) const { return o.value * output_grad; }
    std::vector<N> gradients(N g, N before, N after, N output_grad) const {
      return {g * f.complement * z.slope, g * (before - z.value) * f.slope,
              output_grad * after * o.slope};
    }
  };
  template <class N>
  static step<N> load(const std::vector<N>& x, N bias) {
    return {act(Z{}, x[0]), act(G{}, x[1] + bias), act(G{}, x[2])};
  }
};
template <class Z, class G>
struct cell_again<ifo_pooling<Z, G>> {
  template <class N>
  struct step {
    acted<N> z, f, o, i;
    N a() const { return f.value; }
    N u() const { return i.value * z.value; }
    N output(N state) const { return o.value * state; }
    N back(N output_grad) const { return o.value * output_grad; }
    std::vector<N> gradients(N g, N before, N after, N output_grad) const {
      return {g * i.value * z.slope, g * before * f.slope, output_grad * after * o.slope,
              g * z.value * i.slope};
    }
  };
  template <class N>
  static step<N> load(const std::vector<N>& x, N bias) {
    return {act(Z{}, x[0]), act(G{}, x[1] + bias), act(G{}, x[2]), act(G{}, x[3])};
  }
};

/// A state and the sum of the magnitudes of its terms (`size`). If a backend adds the terms in
/// another order, the bound grows by a few roundings of `size` (off_by).
template <class N>
struct carried {
  N x{};
  long double size = 0;
};
inline std::uint32_t off_by(std::uint32_t x, long double, long double) { return x; }
inline bounded off_by(bounded x, long double roundings, long double size) {
  return bounded(x.value, x.error + roundings * bounded::unit * size);
}
inline long double magnitude_of(std::uint32_t) { return 0; }
inline long double magnitude_of(bounded x) { return std::abs(x.value); }

/// A number after it was stored in an array of T and read again.
template <class T>
std::uint32_t stored_as(std::uint32_t x) {
  return x;
}
template <class T>
bounded stored_as(bounded x) {
  return x.rounded(storage_roundoff<T>() / bounded::unit);
}

/// Whether an element is within the error bound.
inline bool agrees(std::uint32_t got, std::uint32_t want) { return got == want; }
template <class T>
bool agrees(T got, bounded want) {
  const long double allowed =
      1.01L * want.error + storage_roundoff<T>() * (std::abs(want.value) + want.error) + 1e-37L;
  return std::abs(widened(got) - want.value) <= allowed;
}

}  // namespace reference
