// SPDX-License-Identifier: BSD-3-Clause
// The mapping of lanes to threads, and the accumulators of gradients that are sums. A lane is one
// sequence, that is, one channel of one batch row and group. A strip is a block of neighbouring
// lanes of one batch row and group.
//
// A sum keeps its time axis if it runs over other axes only. There are three kinds of sums:
// - Sums over time, and sums without a time axis (such as the gradient of a shared initial state),
//   have one accumulator per lane and tile of steps in the workspace. A second kernel adds these
//   up, in an order that depends only on the problem and the options (lane_sums.cuh).
// - Sums that keep their time axis and run over channels may have one accumulator per strip of
//   lanes and step. A warp or a thread block adds up its strip, and a second kernel the strips.
// - All other sums that keep their time axis have accumulators in the shape of the gradient. One
//   thread processes all lanes that share an accumulator, one after the other. In look_back, tiles
//   add to the accumulators in turn instead (tile_sums.cuh).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/workspace.cuh>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

using scanrec::detail::along;
using scanrec::detail::axis;
using scanrec::detail::region;

inline constexpr axis lane_axes[]{axis::group, axis::batch, axis::channel};

/// Whether some array with a time axis is contiguous along time, and none along channels.
inline bool lies_along_time(const problem& p) {
  bool along_time = false;
  for (const array_use& array : p) {
    if (!array.data || !array.sequence || array.checkpoints) continue;
    if (array.strides.channel == 1) return false;
    along_time = along_time || array.strides.time == 1 || array.strides.time == -1;
  }
  return along_time;
}

/// Whether a problem has resets.
inline bool has_resets(const problem& p) {
  return std::any_of(p.begin(), p.end(), [](const array_use& array) {
    return array.one_channel_will_do && array.data;
  });
}

/// The size of the largest elements in a problem's arrays with a time axis, in bytes.
inline std::int64_t largest_element(const problem& p) {
  std::int64_t bytes = 1;
  for (const array_use& array : p)
    if (array.data && array.sequence) bytes = std::max(bytes, array.element_bytes);
  return bytes;
}

/// Whether any output is a sum.
inline bool sums_any(const problem& p) {
  return std::any_of(p.begin(), p.end(), [](const array_use& array) {
    return array.use != access::read && scanrec::detail::summed(array);
  });
}
/// Whether a problem can use kernels for plain arrays (assume::plain). It then has no masks (resets
/// or zoneout) and no checkpoints. No other array with a time axis is absent, recomputed, summed or
/// added to.
inline bool is_plain(const problem& p) {
  if (p.update || p.recomputed_bytes > 0) return false;
  return std::all_of(p.begin(), p.end(), [](const array_use& array) {
    if (!array.sequence) return true;
    const bool mask = array.element_bytes == 1;
    return (array.data != nullptr) != mask && !array.checkpoints &&
           !(array.use != access::read && scanrec::detail::summed(array));
  });
}

/// Whether an output is a sum that keeps its time axis.
inline bool sum_keeps_time(const array_use& array) {
  return array.use != access::read && scanrec::detail::summed(array) && array.sequence &&
         !scanrec::detail::broadcast_along(array, axis::time);
}
/// Whether a problem has sums that keep their time axis, and all of them run over channels.
inline bool sums_over_channels(const problem& p) {
  bool any = false;
  for (const array_use& array : p)
    if (sum_keeps_time(array)) {
      if (!scanrec::detail::broadcast_along(array, axis::channel)) return false;
      any = true;
    }
  return any;
}

/// The lanes of a warp: neighbouring channels of one row. A row is a batch row of a group.
struct lane_strip {
  std::int64_t g = 0, b = 0, number = 0;  // number: index of the strip in its row
  std::int64_t first_lane = 0;
  int lanes = 0;

  SCANREC_HD lane_strip(std::int64_t strip, const extents& all) {
    const std::int64_t strips = in_row(all);
    number = strip % strips, strip /= strips;
    first_lane = number * device::warp_size;
    b = strip % all.batch, g = strip / all.batch;
    const std::int64_t left = all.channel - first_lane;
    lanes = static_cast<int>(left < device::warp_size ? left : device::warp_size);
  }
  /// The number of strips of a row, and of all rows.
  SCANREC_HD static std::int64_t in_row(const extents& all) {
    return (all.channel + device::warp_size - 1) / device::warp_size;
  }
  static std::int64_t count(const extents& all) { return all.group * all.batch * in_row(all); }
};

/// The assignment of lanes to threads.
struct lane_dealing {
  extents all{0, 1, 0, 0};       // lanes per axis; time: 1
  extents parallel{1, 1, 1, 1};  // threads per axis: one per lane, or one for all lanes
  std::int64_t threads = 0;

  /// The lanes of a thread. Neighbouring threads have neighbouring channels.
  SCANREC_HD region of(std::int64_t thread) const {
    region own{{0, 0, 0, 0}, all};
    own.begin.channel = thread % parallel.channel, thread /= parallel.channel;
    own.begin.batch = thread % parallel.batch, thread /= parallel.batch;
    own.begin.group = thread;
    if (parallel.channel > 1) own.end.channel = own.begin.channel + 1;
    if (parallel.batch > 1) own.end.batch = own.begin.batch + 1;
    if (parallel.group > 1) own.end.group = own.begin.group + 1;
    return own;
  }
};

struct lane_plan {
  struct output {
    bool per_lane = false;   // one accumulator per lane and tile
    bool per_strip = false;  // one accumulator per strip of lanes and step
    bool per_step = false;   // accumulators in the shape of the gradient
    std::int64_t first = 0;  // byte offset in the workspace
    scanrec::strides strides{};
  };
  lane_dealing lanes;
  std::int64_t steps = 0;
  std::int64_t tiles = 1;  // of steps
  std::array<output, most_outputs> outputs{};
  bool per_lane = false, per_step = false;  // whether any output has such accumulators
  std::int64_t strips = 0;                  // per row
  std::int64_t strip_sum_bytes = 0;         // one wide number for each output that is per strip
  std::int64_t bytes = 0;

  /// `used`: bytes of the workspace before the accumulators. `strip_lanes`: lanes of a strip, for
  /// sums that keep their time axis; 0: no strips.
  explicit lane_plan(const problem& p, std::int64_t tiles_of_steps = 1, std::int64_t used = 0,
                     std::int64_t strip_lanes = 0)
      : steps(p.shape.time), tiles(tiles_of_steps), bytes(used) {
    lanes.all = p.shape;
    lanes.all.time = 1;
    if (strip_lanes > 0) strips = (p.shape.channel + strip_lanes - 1) / strip_lanes;
    bool serial[3] = {};
    output* out = outputs.data();
    for (const array_use& array : p) {
      if (array.use == access::read) continue;
      output& o = *out++;
      if (!scanrec::detail::summed(array)) continue;
      std::int64_t accumulators = 0;
      o.per_lane = !sum_keeps_time(array);
      o.per_strip = !o.per_lane && strip_lanes > 0;
      o.per_step = !o.per_lane && !o.per_strip;
      per_lane = per_lane || o.per_lane, per_step = per_step || o.per_step;
      if (o.per_lane) {
        const std::int64_t all = lanes.all.group * lanes.all.batch * lanes.all.channel;
        o.strides = {lanes.all.channel, tiles > 1 ? all : 0, 1,
                     lanes.all.channel * lanes.all.batch};
        accumulators = all * tiles;
      } else if (o.per_strip) {
        o.strides = {strips * steps, 1, steps, strips * steps * p.shape.batch};
        accumulators = strips * steps * p.shape.batch * p.shape.group;
        strip_sum_bytes += array.wide_bytes;
      } else {
        accumulators = scanrec::detail::dense_sums(array, p.shape, o.strides);
        for (int i = 0; i < 3; ++i)
          serial[i] = serial[i] || scanrec::detail::broadcast_along(array, lane_axes[i]);
      }
      o.first = reserve(accumulators * array.wide_bytes);
    }
    lanes.threads = 1;
    for (int i = 0; i < 3; ++i) {
      const axis a = lane_axes[i];
      if (!serial[i]) lanes.threads *= along(lanes.parallel, a) = along(lanes.all, a);
    }
  }

  std::int64_t reserve(std::int64_t count) { return reserve_bytes(bytes, count); }

  /// Points the outputs that are sums at their accumulators.
  template <class R>
  void bind(R& r, void* memory) const {
    const output* o = outputs.data();
    scanrec::detail::for_outputs(r, [&](auto& out) {
      if (o->per_lane || o->per_strip || o->per_step)
        out.sums = {
            reinterpret_cast<decltype(out.sums.data)>(static_cast<std::byte*>(memory) + o->first),
            0, o->strides};
      out.stream = false;
      ++o;
    });
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
