// SPDX-License-Identifier: BSD-3-Clause
// Sums over broadcast axes: functions that add accumulators to totals, and write totals to
// gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Whether outputs of a recurrence may be sums.
template <class R>
inline constexpr bool may_sum =
    !std::is_empty_v<typename R::template sums<simd::lane_t<typename R::value, 1>>>;
/// Whether this call has sums over time, for which lanes keep running sums.
template <class R>
bool sums_run(const R& r) {
  bool any = false;
  if constexpr (may_sum<R>)
    for_writes(r, [&](const auto& out) { any = any || out.action == recurrence::write::sum_time; });
  return any;
}

/// Whether this call has sums that are added to accumulators at every step.
template <class R>
bool sums_at_once(const R& r) {
  bool any = false;
  if constexpr (may_sum<R>)
    for_writes(r, [&](const auto& out) { any = any || out.action == recurrence::write::sum_site; });
  return any;
}

/// A box of the problem: [begin, end) on every axis.
struct region {
  extents begin{0, 0, 0, 0}, end{0, 0, 0, 0};
};

constexpr std::int64_t offset_of(const extents& at, const scanrec::strides& strides) {
  return at.group * strides.group + at.batch * strides.batch + at.time * strides.time +
         at.channel * strides.channel;
}
constexpr extents difference(const extents& x, const extents& y) {
  return {x.batch - y.batch, x.time - y.time, x.channel - y.channel, x.group - y.group};
}

/// Calls f(position) for every element of an array with these strides in `box`. An axis with a zero
/// stride is visited once, even if it is empty, because an empty sum is 0.
template <class F>
SCANREC_HD void for_kept(const scanrec::strides& strides, const region& box, F f) {
  const auto last = [&](axis a) {
    return along(strides, a) == 0 ? along(box.begin, a) + 1 : along(box.end, a);
  };
  extents at;
  for (at.group = box.begin.group; at.group < last(axis::group); ++at.group)
    for (at.batch = box.begin.batch; at.batch < last(axis::batch); ++at.batch)
      for (at.time = box.begin.time; last(axis::time) > at.time; ++at.time)
        for (at.channel = box.begin.channel; at.channel < last(axis::channel); ++at.channel) f(at);
}

/// Writes a sum to its element of the gradient, or adds it.
template <class S, class WideLane>
SCANREC_HD void write_sum(const recurrence::output_field<S>& out, const extents& at, WideLane sum) {
  using lane = simd::lane_t<compute_t<S>, 1>;
  S& position = out.data[offset_of(at, out.strides)];
  if (out.update) sum = sum + simd::to_wide<WideLane>(simd::from_element(position));
  position = simd::to_element<S>(simd::from_wide<lane>(sum));
}

/// Writes the sums of `box` to the gradient, or adds them. The layout of the accumulators is
/// relative to the box.
template <class S>
void write_sums(const recurrence::output_field<S>& out, const wide_t<S>* sums,
                const strides& sum_strides, const region& box) {
  using wide_lane = simd::lane_t<wide_t<S>, 1>;
  for_kept(out.strides, box, [&](const extents& at) {
    const std::int64_t position = offset_of(difference(at, box.begin), sum_strides);
    write_sum(out, at, simd::load_one<wide_lane>(sums + position));
  });
}

/// Adds the sums of `box` to the totals of the whole problem.
template <class S>
void add_to_totals(const recurrence::output_field<S>& out, const wide_t<S>* sums,
                   const strides& sum_strides, const region& box, wide_t<S>* totals,
                   const strides& total_strides) {
  for_kept(out.strides, box, [&](const extents& at) {
    auto& total = totals[offset_of(at, total_strides)];
    total = total + sums[offset_of(difference(at, box.begin), sum_strides)];
  });
}

/// Lays out the accumulators of an output for a box: one for each position along the axes that are
/// not summed. Sets their strides and returns their number. The axis of the lanes is innermost.
inline std::int64_t dense_sums(const array_use& array, const extents& box,
                               scanrec::strides& strides,
                               recurrence::lane_axis lanes = recurrence::lane_axis::channel) {
  std::int64_t size = 1;
  const bool along_time = lanes == recurrence::lane_axis::time;
  const axis inner = along_time ? axis::time : axis::channel;
  const axis outer = along_time ? axis::channel : axis::time;
  for (const axis a : {inner, outer, axis::batch, axis::group}) {
    if (along(array.shape, a) <= 1 || along(box, a) <= 1 || broadcast_along(array, a)) continue;
    along(strides, a) = size;
    size *= along(box, a);
  }
  return size;
}

/// Layout of the sums of a call: the totals of the whole problem, and for each worker the
/// accumulators of its current block.
struct sums_layout {
  struct output {
    bool active = false;
    strides block_strides{}, total_strides{};
    std::int64_t block_bytes = 0, total_bytes = 0;  // rounded up to cache lines
  };
  std::array<output, most_outputs> outputs{};
  bool any = false;
  std::int64_t block_bytes = 0, total_bytes = 0;

  /// `block` has the extents of the largest block.
  sums_layout(const problem& p, const extents& block) {
    constexpr std::int64_t line = 64;
    output* out = outputs.data();
    for (const array_use& array : p) {
      if (array.use == access::read) continue;
      output& o = *out++;
      if (!summed(array)) continue;
      const auto bytes = [&](std::int64_t n) {
        return (n * array.wide_bytes + line - 1) / line * line;
      };
      any = o.active = true;
      block_bytes += o.block_bytes = bytes(dense_sums(array, block, o.block_strides));
      total_bytes += o.total_bytes = bytes(dense_sums(array, p.shape, o.total_strides));
    }
  }

  /// Clears the accumulators of a block, and points the summed outputs at them.
  template <class R>
  void bind(R& r, const region& box, std::byte* own) const {
    std::fill_n(own, block_bytes, std::byte{0});
    for_active(
        r, own,
        [&](auto& out, const output& o, std::byte* sums) {
          out.sums = {wide_at(out, sums), -offset_of(box.begin, o.block_strides), o.block_strides};
        },
        &output::block_bytes);
  }
  /// Points the summed outputs at the totals, which the caller has cleared.
  template <class R>
  void bind_totals(R& r, std::byte* totals) const {
    for_active(
        r, totals,
        [&](auto& out, const output& o, std::byte* sums) {
          out.sums = {wide_at(out, sums), 0, o.total_strides};
        },
        &output::total_bytes);
  }
  /// Adds the accumulators of a block to the totals.
  template <class R>
  void hand_on(R& r, const region& box, std::byte* own, std::byte* totals) const {
    for_active(
        r, own,
        [&](auto& out, const output& o, std::byte* sums) {
          add_to_totals(out, wide_at(out, sums), o.block_strides, box, wide_at(out, totals),
                        o.total_strides);
          totals += o.total_bytes;
        },
        &output::block_bytes);
  }
  /// Writes the totals to the gradients.
  template <class R>
  void write(R& r, const extents& shape, std::byte* totals) const {
    for_active(
        r, totals,
        [&](auto& out, const output& o, std::byte* sums) {
          write_sums(out, wide_at(out, sums), o.total_strides, {{0, 0, 0, 0}, shape});
        },
        &output::total_bytes);
  }

 private:
  template <class Out>
  static auto wide_at(const Out&, std::byte* position) {
    return reinterpret_cast<decltype(Out::sums.data)>(position);
  }
  // Calls f(output, its layout, its accumulators) for every summed output.
  template <class R, class F>
  void for_active(R& r, std::byte* position, F f, std::int64_t output::*size) const {
    const output* o = outputs.data();
    for_outputs(r, [&](auto& out) {
      if (o->active) f(out, *o, position);
      position += (*o++).*size;
    });
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI
