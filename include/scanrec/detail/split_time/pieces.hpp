// SPDX-License-Identifier: BSD-3-Clause
// A loop over a part of time in pieces that fit the cache, copies of gates in the wide type, and
// the thresholds below which products and states count as 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <scanrec/concepts.hpp>
#include <scanrec/detail/simd/lanes.hpp>
#include <scanrec/detail/simd/memory.hpp>
#include <scanrec/element.hpp>
#include <scanrec/problem.hpp>
#include <scanrec/views.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// One element of compute type T as a scalar lane of the wide type.
template <class T>
using wide_lane = simd::lane_t<wide_t<T>, 1>;

template <class T>
wide_lane<T> widened_state(const T& x) {
  return simd::to_wide<wide_lane<T>>(simd::from_element(x));
}
template <class T>
T narrowed_state(const wide_lane<T>& x) {
  return simd::to_element<T>(simd::from_wide<simd::lane_t<T, 1>>(x));
}
template <class T>
bool is_finite(const T& x) {
  return simd::all_zero(simd::zero_if_finite(simd::from_element(x)));
}

/// A contiguous array over the sequences of a shape: group, batch, channel.
template <class T>
class lane_array {
 public:
  explicit lane_array(const extents& shape)
      : shape_(shape),
        values_(static_cast<std::size_t>(shape.group * shape.batch * shape.channel)) {}
  [[nodiscard]] state_view<T> view() { return {values_.data(), shape_}; }
  [[nodiscard]] const std::vector<T>& values() const { return values_; }

 private:
  extents shape_;
  std::vector<T> values_;
};
inline std::int64_t lanes_in(const extents& shape) {
  return shape.group * shape.batch * shape.channel;
}

template <class T>
using real_of = simd::real_lane_t<wide_lane<T>>;
/// The threshold below which a number counts as 0 when added to a state of type T: half of the
/// smallest positive number of T. If the wide type is not wider, the threshold is the smallest
/// normal number, below which digits are lost. For integers it is 1.
template <class T>
constexpr real_of<T> least_state() {
  using narrow = std::numeric_limits<simd::real_lane_t<simd::lane_t<T, 1>>>;
  if constexpr (std::is_integral_v<T>)
    return 1;
  else
    return std::max<real_of<T>>(static_cast<real_of<T>>(narrow::denorm_min()) / 2,
                                std::numeric_limits<real_of<T>>::min());
}
/// The threshold below which a product of gates counts as 0. If the wide type is wider, such a
/// product times any finite state is below least_state(). Otherwise the threshold is least_state()
/// itself, and the effect of a smaller product on a large state is lost.
template <class T>
constexpr real_of<T> least_product() {
  using narrow = std::numeric_limits<simd::real_lane_t<simd::lane_t<T, 1>>>;
  if constexpr (std::is_integral_v<T>)
    return 1;
  else
    return std::max<real_of<T>>(least_state<T>() / 2 / static_cast<real_of<T>>(narrow::max()),
                                std::numeric_limits<real_of<T>>::min());
}
/// Sets values smaller than `least` in magnitude to 0, and returns whether all values were smaller.
/// NaN is not smaller.
template <class T>
bool all_vanish(std::vector<wide_t<T>>& values, real_of<T> least) {
  bool all = true;
  for (wide_t<T>& x : values)
    if (simd::size_of(simd::from_element(x)) < least)
      x = wide_t<T>(0);
    else
      all = false;
  return all;
}

/// Calls f(first, last) for consecutive pieces [first, last) in scan order until f returns true.
/// Returns the number of steps processed by then, or shape.time + 1 if f never returns true.
template <class F>
std::int64_t until(const extents& shape, direction order, F f) {
  constexpr std::int64_t together =
      1 << 14;  // numbers per piece; in the wide type they fit the cache
  const std::int64_t steps =
      std::max<std::int64_t>(1, together / std::max<std::int64_t>(1, lanes_in(shape)));
  for (std::int64_t done = 0; done < shape.time;) {
    const std::int64_t next = std::min(done + steps, shape.time);
    const bool forward = order == direction::forward;
    if (f(forward ? done : shape.time - next, forward ? next : shape.time - done)) return next;
    done = next;
  }
  return shape.time + 1;
}
/// The reset mask of steps [first, last) and, if it exists, of step `last`.
inline sequence_view<const bool> reset_mask_of(const sequence_view<const bool>& resets,
                                               std::int64_t first, std::int64_t last) {
  if (resets.absent()) return {};
  return resets.steps(first, std::min(last + 1, resets.shape.time));
}

/// Steps [first, last) of gates in the wide type. This is a view of the gates if they are stored in
/// the wide type, else a copy in `buffer`.
template <class Gate, class Wide>
sequence_view<const Wide> widened(const Gate& gate, std::int64_t first, std::int64_t last,
                                  std::vector<Wide>& buffer) {
  using stored = typename sequence_traits<Gate>::stored;
  const sequence_view<const stored> piece = gate.steps(first, last);
  if constexpr (std::is_same_v<stored, Wide>) {
    return piece;
  } else {
    const extents& s = piece.shape;
    buffer.resize(static_cast<std::size_t>(lanes_in(s) * s.time));
    // Copies rows of channels, or rows of steps if there is a single channel.
    const bool one = s.channel == 1;
    const std::int64_t rows = one ? 1 : s.time, columns = one ? s.time : s.channel;
    const std::int64_t apart = one ? piece.strides.time : piece.strides.channel;
    Wide* to = buffer.data();
    for (std::int64_t g = 0; g < s.group; ++g)
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t row = 0; row < rows; ++row) {
          const stored* from = &piece.at(b, row, 0, g);
          for (std::int64_t column = 0; column < columns; ++column)
            *to++ = simd::to_element<Wide>(
                simd::to_wide<simd::lane_t<Wide, 1>>(simd::from_element(from[column * apart])));
        }
    return {buffer.data(), s};
  }
}

}  // namespace scanrec::detail::inline SCANREC_ABI
