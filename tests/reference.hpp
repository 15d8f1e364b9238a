// SPDX-License-Identifier: BSD-3-Clause
// The reference of the tests: the formulas in wide precision, their proven error bounds, and arrays
// in every layout.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace reference {

using namespace scanrec;  // tests only

// ---- types ------------------------------------------------------------------------------------

template <class T>
struct wide_of {
  using type = long double;
};
template <class R>
struct wide_of<std::complex<R>> {
  using type = std::complex<long double>;
};
template <>
struct wide_of<std::uint32_t> {
  using type = std::uint32_t;
};
template <class T>
using wide = typename wide_of<T>::type;

template <class T>
constexpr bool exact = std::is_same_v<T, std::uint32_t>;
template <class T>
constexpr bool complex = detail::is_complex<T>;
template <class T>
constexpr bool half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
wide<T> widened(T x) {
  if constexpr (half<T>)
    return static_cast<float>(x);
  else
    return wide<T>(x);
}
inline long double magnitude(long double x) { return std::abs(x); }
inline long double magnitude(std::complex<long double> x) { return std::sqrt(std::norm(x)); }
inline long double magnitude(std::uint32_t x) { return x; }

/// a * b. Much faster than the product of std::complex, which also handles infinities.
template <class W>
W product(W a, W b) {
  if constexpr (std::is_same_v<W, std::complex<long double>>)
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else
    return a * b;
}

template <class W>
W conjugate(W x, bool yes) {
  if constexpr (std::is_same_v<W, std::complex<long double>>)
    return yes ? std::conj(x) : x;
  else
    return x;
}

/// Unit roundoff of the compute type; 0 for integers.
template <class T>
long double roundoff() {
  using C = compute_t<T>;
  if constexpr (exact<T>)
    return 0;
  else if constexpr (complex<T>)
    return roundoff<typename C::value_type>();
  else
    return std::numeric_limits<C>::epsilon() / 2.0L;
}
/// Unit roundoff of the storage type; 0 if storing does not round.
template <class T>
long double storage_roundoff() {
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8L;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11L;
  return 0;
}

// ---- arrays -----------------------------------------------------------------------------------

enum class layout {
  channels_last,
  time_contiguous,
  padded,
  packed,
  time_major,
  backwards,
  mirrored,
  strided
};
inline const char* name_of(layout l) {
  constexpr const char* names[] = {"channels_last", "time_contiguous", "padded",   "packed",
                                   "time_major",    "backwards",       "mirrored", "strided"};
  return names[static_cast<int>(l)];
}
inline constexpr layout all_layouts[] = {
    layout::channels_last, layout::time_contiguous, layout::padded,   layout::packed,
    layout::time_major,    layout::backwards,       layout::mirrored, layout::strided};

/// A fast generator of 32 random bits at a time (Steele, Lea and Flood's SplitMix, 2014).
struct generator {
  std::uint64_t state;
  std::uint32_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
  }
};
/// n numbers between -scale and scale.
inline std::vector<double> random_numbers(std::int64_t n, unsigned seed, double scale = 1) {
  generator bits{seed};
  std::vector<double> x(static_cast<std::size_t>(n));
  for (double& v : x) v = scale * (2 * (bits() * 0x1p-32) - 1);
  return x;
}

/// An owned array and a view of it. All elements are random at first. No call may change those
/// outside the view.
template <class T>
class array {
 public:
  array() = default;
  array(const extents& shape, layout l, unsigned seed = 0) : shape_(shape) {
    const auto& s = shape;
    strides& stride = stride_;
    std::int64_t& offset = offset_;
    const std::int64_t C = std::max<std::int64_t>(s.channel, 1),
                       T_ = std::max<std::int64_t>(s.time, 1),
                       B = std::max<std::int64_t>(s.batch, 1);
    switch (l) {
      case layout::channels_last:
        stride = {T_ * C, C, 1, B * T_ * C};
        break;
      case layout::time_contiguous:
        stride = {T_ * C, 1, T_, B * T_ * C};
        break;
      case layout::padded:
        stride = {T_ * (C + 3) + 5, C + 3, 1, B * (T_ * (C + 3) + 5)};
        offset = 1;
        break;
      case layout::packed:
        stride = {T_ * 3 * C, 3 * C, 1, B * T_ * 3 * C};
        offset = C;
        break;
      case layout::time_major:
        stride = {C, B * C, 1, B * T_ * C};
        break;
      case layout::backwards:
        stride = {T_ * C, -C, 1, B * T_ * C};
        offset = (T_ - 1) * C;
        break;
      case layout::mirrored:
        stride = {T_ * C, C, -1, B * T_ * C};
        offset = C - 1;
        break;
      case layout::strided:
        stride = {T_ * 2 * C, 2 * C, 2, B * T_ * 2 * C};
        break;
    }
    const std::int64_t all = s.group * B * (T_ * (3 * C + 3) + 8) + 64;
    storage_.reserve(static_cast<std::size_t>(all));
    generator bits{seed * 7919 + 17};
    for (std::int64_t i = 0; i < all; ++i) storage_.push_back(random(bits, false));
  }
  sequence_view<T> view() { return {storage_.data() + offset_, shape_, stride_}; }
  T& operator()(std::int64_t g, std::int64_t b, std::int64_t t, std::int64_t c) {
    const auto& s = stride_;
    return storage_.data()[offset_ + g * s.group + b * s.batch + t * s.time + c * s.channel];
  }
  std::vector<T>& storage() { return storage_; }

  static T random(generator& bits, bool gate) {
    const auto uniform = [&] {
      const float low = gate ? -1.1f : -1.0f;
      return low + (1 - low) * static_cast<float>(bits() >> 8) * 0x1p-24f;
    };
    if constexpr (exact<T>)
      return bits();
    else if constexpr (complex<T>)
      return T(uniform() * 0.8f, uniform() * 0.8f);
    else
      return static_cast<T>(uniform());
  }
  void fill_gates(unsigned seed) {
    generator bits{seed + 99};
    for (auto& x : storage_) x = random(bits, true);
  }

 private:
  extents shape_;
  strides stride_;
  std::int64_t offset_ = 0;
  std::vector<T> storage_;
};

template <class F>
void for_each_sequence(const extents& s, F f) {
  for (std::int64_t g = 0; g < s.group; ++g)
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t c = 0; c < s.channel; ++c) f(g, b, c);
}

// ---- the formulas -----------------------------------------------------------------------------

/// A scan in wide precision, with the bound on the error of a computation in T.
template <class T>
struct scanned {
  std::vector<wide<T>> value;
  std::vector<long double> size, grown;  // s[t], S[t] of the error bound (docs/numerics.md)

  /// The error bound at step t. In docs/numerics.md, L counts the roundings of a term. Here it is
  /// 12, plus `more` for a backend that rounds a term more often; for complex types twice that.
  long double bound(std::size_t t, int more = 0) const {
    if (exact<T>) return 0;
    static const std::vector<long double> factors = [] {  // std::pow is slow
      std::vector<long double> all(257);
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] =
            std::pow(1 + roundoff<T>(), static_cast<long double>((12 + i) * (complex<T> ? 2 : 1)));
      return all;
    }();
    return factors.at(static_cast<std::size_t>(more)) * grown[t] - size[t];
  }
};

/// The number of rounding factors (1 + eps) of one step, P in docs/numerics.md.
template <class T>
constexpr int per_step = complex<T> ? 6 : 2;

/// x[t] = a[t] x[t-1] + u[t] along one sequence, without the first term where resets[t] is set.
/// Returns the values and the bounds of their errors.
template <class T>
scanned<T> scan(const std::vector<wide<T>>& a, const std::vector<wide<T>>& u, wide<T> start,
                const std::vector<bool>& resets, const std::vector<long double>& u_magnitude) {
  scanned<T> r;
  const long double factor = std::pow(1 + roundoff<T>(), per_step<T>);
  wide<T> x = start;
  long double s = magnitude(start), grown = s;
  for (std::size_t t = 0; t < a.size(); ++t) {
    const bool reset = !resets.empty() && resets[t];
    x = reset ? u[t] : product(a[t], x) + u[t];
    s = (reset ? 0 : magnitude(a[t]) * s) + u_magnitude[t];
    grown = (reset ? 0 : magnitude(a[t]) * factor * grown) + u_magnitude[t];
    r.value.push_back(x);
    r.size.push_back(s);
    r.grown.push_back(grown);
  }
  return r;
}

/// `where` describes the check: a string, or a function that returns one.
template <class T, class Where>
void check_close(T got, wide<T> want, long double bound, const Where& where) {
  const auto text = [&]() -> std::string {
    if constexpr (std::is_invocable_v<Where>)
      return where();
    else
      return where;
  };
  if constexpr (exact<T>) {
    if (got != want) FAIL(text() << ": got " << got << ", want " << want);
  } else {
    const long double off = magnitude(widened(got) - want);
    const long double allowed = bound + storage_roundoff<T>() * (magnitude(want) + bound) +
                                (std::is_same_v<T, float16> ? 0x1p-24L : 0x1p-120L);
    if (!(off <= allowed))
      FAIL(text() << ": off by " << static_cast<double>(off) << ", allowed "
                  << static_cast<double>(allowed) << ", magnitude "
                  << static_cast<double>(magnitude(want)));
  }
}

template <class T>
bool same_bits(const T& x, const T& y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}
template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(static_cast<const void*>(x.data()),
                                   static_cast<const void*>(y.data()), x.size() * sizeof(T)) == 0);
}

inline std::string to_string(const extents& s, layout l, direction d) {
  return scanrec::to_string(s) + " " + name_of(l) + (d == direction::reverse ? " reverse" : "");
}

}  // namespace reference
