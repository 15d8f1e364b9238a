// SPDX-License-Identifier: BSD-3-Clause
// Extents and strides over (group, batch, time, channel), and the two contiguous layouts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/text.hpp>

namespace scanrec {

/// Extents of a problem or an array: the number of elements along each axis. An omitted axis has an
/// extent of 1.
///
/// `group` is an additional outer axis, for heads or a vectorised axis (vmap). Use designated
/// initialisers: `extents{.batch = 8, .time = 4096, .channel = 256}`.
struct extents {
  std::int64_t batch = 1;
  std::int64_t time = 1;
  std::int64_t channel = 1;
  std::int64_t group = 1;

  SCANREC_INLINE friend constexpr bool operator==(const extents& x, const extents& y) {
    return x.batch == y.batch && x.time == y.time && x.channel == y.channel && x.group == y.group;
  }
};

/// Strides of an array: the distance in elements between neighbours on each axis. An omitted axis
/// has a stride of 0: all its positions share one element.
///
/// `strides` and `extents` are different types, because their defaults differ and neither may be
/// passed for the other.
struct strides {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t channel = 0;
  std::int64_t group = 0;

  SCANREC_INLINE friend constexpr bool operator==(const strides& x, const strides& y) {
    return x.batch == y.batch && x.time == y.time && x.channel == y.channel && x.group == y.group;
  }
};

namespace detail {
inline namespace SCANREC_ABI {
inline void append(text& t, const extents& e) {
  append(t, text("(batch ", e.batch, ", time ", e.time, ", channel ", e.channel));
  if (e.group != 1) append(t, text(", group ", e.group));
  append(t, ")");
}
inline void append(text& t, const strides& s) {
  append(t, text("(batch ", s.batch, ", time ", s.time, ", channel ", s.channel));
  if (s.group != 0) append(t, text(", group ", s.group));
  append(t, ")");
}
}  // namespace SCANREC_ABI
}  // namespace detail

inline namespace SCANREC_ABI {
/// Extents as text: "(batch 8, time 4096, channel 256)"; includes the group if it is not 1.
inline std::string to_string(const extents& e) { return detail::text(e).c_str(); }
/// Strides as text; includes the group if it is not 0.
inline std::string to_string(const strides& s) { return detail::text(s).c_str(); }
}  // namespace SCANREC_ABI

namespace detail {
inline namespace SCANREC_ABI {
/// Stands for any number of elements that is too large for an array.
inline constexpr std::int64_t beyond_count = std::numeric_limits<std::int64_t>::max();

/// min(a * b, most), without overflow. No machine has `most` elements or bytes, so a later check of
/// an array's size refuses it. The product itself raises no error, because it may be the stride of
/// an axis with an extent of 0 or 1, which no element uses.
SCANREC_INLINE constexpr std::int64_t clipped_product(std::int64_t a, std::int64_t b,
                                                      std::int64_t most = beyond_count) {
  std::int64_t product = 0;
  const bool wraps = __builtin_mul_overflow(a, b, &product);
  return wraps || product > most ? most : product;
}
/// a / b rounded up, for a >= 0 and b >= 1. Does not divide if the result is 0 or 1.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a <= b ? std::int64_t{a > 0} : (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
/// a rounded up to a multiple of a power of two, without a division.
constexpr std::int64_t align_up(std::int64_t a, std::int64_t power) {
  return (a + power - 1) & -power;
}
}  // namespace SCANREC_ABI
}  // namespace detail

/// Strides of a contiguous array (group, batch, time, channel), channel fastest.
SCANREC_INLINE constexpr strides channels_last(const extents& shape) {
  const std::int64_t row = detail::clipped_product(shape.time, shape.channel);
  return {.batch = row,
          .time = shape.channel,
          .channel = 1,
          .group = detail::clipped_product(shape.batch, row)};
}

/// Strides of a contiguous array (group, batch, channel, time), time fastest.
SCANREC_INLINE constexpr strides time_contiguous(const extents& shape) {
  const std::int64_t row = detail::clipped_product(shape.time, shape.channel);
  return {.batch = row,
          .time = 1,
          .channel = shape.time,
          .group = detail::clipped_product(shape.batch, row)};
}

}  // namespace scanrec
