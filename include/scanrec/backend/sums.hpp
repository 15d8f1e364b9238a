// SPDX-License-Identifier: BSD-3-Clause
// Sums over broadcast axes: moving accumulators into totals, and out into a gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/recurrence/field.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// A box of the problem: [begin, end) on every axis.
struct region {
  extents begin{0, 0, 0, 0}, end{0, 0, 0, 0};
};

constexpr std::int64_t offset_of(const extents& at, const extents& strides) {
  return at.group * strides.group + at.batch * strides.batch + at.time * strides.time +
         at.channel * strides.channel;
}
constexpr extents difference(const extents& x, const extents& y) {
  return {x.batch - y.batch, x.time - y.time, x.channel - y.channel, x.group - y.group};
}

/// Calls f(position) for every element that an array with these strides keeps of `box`: an axis
/// with a zero stride is visited once, even where it is empty: the sum of nothing is 0.
template <class F>
void for_kept(const extents& strides, const region& box, F f) {
  const auto last = [&](std::int64_t extents::*a) {
    return strides.*a == 0 ? box.begin.*a + 1 : box.end.*a;
  };
  extents at;
  for (at.group = box.begin.group; at.group < last(&extents::group); ++at.group)
    for (at.batch = box.begin.batch; at.batch < last(&extents::batch); ++at.batch)
      for (at.time = box.begin.time; at.time < last(&extents::time); ++at.time)
        for (at.channel = box.begin.channel; at.channel < last(&extents::channel); ++at.channel)
          f(at);
}

/// Writes the sums of `box` to the gradient, or adds them to it. Accumulators are laid out
/// relative to the box.
template <class S>
void write_sums(const recurrence::output_field<S>& out, const wide_t<S>* sums,
                const extents& sum_strides, const region& box) {
  using wide_lane = simd::lane_t<wide_t<S>, 1>;
  using lane = simd::lane_t<compute_t<S>, 1>;
  for_kept(out.strides, box, [&](const extents& at) {
    S& place = out.data[offset_of(at, out.strides)];
    auto value =
        simd::load_one<wide_lane>(sums + offset_of(difference(at, box.begin), sum_strides));
    if (out.update) value = value + simd::to_wide<wide_lane>(simd::from_element(place));
    place = simd::to_element<S>(simd::from_wide<lane>(value));
  });
}

/// Adds the sums of `box` to the totals of the whole problem.
template <class S>
void add_to_totals(const recurrence::output_field<S>& out, const wide_t<S>* sums,
                   const extents& sum_strides, const region& box, wide_t<S>* totals,
                   const extents& total_strides) {
  for_kept(out.strides, box, [&](const extents& at) {
    totals[offset_of(at, total_strides)] += sums[offset_of(difference(at, box.begin), sum_strides)];
  });
}

}  // namespace scanrec::detail::inline SCANREC_ABI
