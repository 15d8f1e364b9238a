// SPDX-License-Identifier: BSD-3-Clause
// The partition of a problem into panels for triangular_matmul. Time is split into chunks of 128
// steps. A panel has 128 rows, one per step of a chunk, and 16 or 32 columns. Its columns are
// neighbouring channels in the same chunk. If factors (gates) are constant in time and there are no
// resets, its columns are consecutive chunks of one lane (one sequence) instead.
#pragma once

#include <algorithm>
#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/materialised.cuh>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

inline constexpr int chunk_steps = 128;  // rows of a panel
inline constexpr int chunk_block = 16;   // rows per thread, and the size of a tile (triangle.cuh)
inline constexpr int chunk_blocks = chunk_steps / chunk_block;

/// Columns of a panel, for numbers of `bytes` bytes.
constexpr int panel_columns(std::int64_t bytes) { return bytes > 8 ? 16 : 32; }

/// How factors are shared between columns.
enum class shared_factor {
  nowhere,         // a column is a channel with its own factors
  along_channels,  // columns are channels that share their factors
  in_time,         // columns are chunks of one lane
};

/// The position of a panel.
struct panel_position {
  std::int64_t g = 0, b = 0, c = 0;  // group, batch row, and the (first) channel
  std::int64_t chunk = 0;            // the chunk, or the first chunk
};

struct chunk_partition {
  lane_dealing lanes;  // assigns lanes to stacks, see stack(); lanes.threads: number of stacks
  std::int64_t steps = 0, chunks = 0;
  int columns = 0;
  shared_factor sharing = shared_factor::nowhere;
  bool steps_side_by_side = false;  // whether time is contiguous
  bool sums_by_step = false;        // whether some gradients are summed over lanes only

  chunk_partition() = default;
  explicit chunk_partition(const problem& p, const lane_plan& sums)
      : lanes(sums.lanes),
        steps(p.shape.time),
        chunks(std::max<std::int64_t>(1, (p.shape.time + chunk_steps - 1) / chunk_steps)),
        columns(panel_columns(p.compute_bytes)),
        sharing(sharing_of(p)),
        steps_side_by_side(lies_along_time(p)),
        sums_by_step(sums.per_step) {
    if (in_time() || lanes.parallel.channel <= 1) return;
    lanes.parallel.channel = (lanes.all.channel + columns - 1) / columns;
    lanes.threads = lanes.parallel.group * lanes.parallel.batch * lanes.parallel.channel;
  }

  SCANREC_HD bool in_time() const { return sharing == shared_factor::in_time; }
  /// The number of panels along time.
  SCANREC_HD std::int64_t panels() const {
    return in_time() ? (chunks + columns - 1) / columns : chunks;
  }
  SCANREC_HD std::int64_t lane_count() const {
    return lanes.all.group * lanes.all.batch * lanes.all.channel;
  }
  SCANREC_HD std::int64_t lane_of(std::int64_t g, std::int64_t b, std::int64_t c) const {
    return (g * lanes.all.batch + b) * lanes.all.channel + c;
  }
  /// The lanes of the i-th stack. For each range of steps, one thread block processes the panels of
  /// a stack, one after the other. These are one panel, or all panels that add to the same sums.
  SCANREC_HD region stack(std::int64_t i) const {
    region own = lanes.of(i);
    if (in_time() || lanes.parallel.channel <= 1) return own;
    own.begin.channel *= columns;
    const std::int64_t end = own.begin.channel + columns;
    own.end.channel = end < lanes.all.channel ? end : lanes.all.channel;
    return own;
  }
  /// The distance in channels between the panels of a stack.
  SCANREC_HD std::int64_t channel_step() const { return in_time() ? 1 : columns; }

  // Step and channel of an element of a panel, and whether they exist.
  SCANREC_HD std::int64_t time_at(const panel_position& at, int row, int column) const {
    return (at.chunk + (in_time() ? column : 0)) * chunk_steps + row;
  }
  SCANREC_HD std::int64_t channel_at(const panel_position& at, int column) const {
    return in_time() ? at.c : at.c + column;
  }
  SCANREC_HD bool there(const panel_position& at, int row, int column) const {
    return time_at(at, row, column) < steps && channel_at(at, column) < lanes.all.channel;
  }
  /// The first step of a panel, and the step after its last.
  SCANREC_HD std::int64_t first_step(const panel_position& at) const {
    return at.chunk * chunk_steps;
  }
  SCANREC_HD std::int64_t end_step(const panel_position& at) const {
    const std::int64_t end = (at.chunk + (in_time() ? columns : 1)) * chunk_steps;
    return end < steps ? end : steps;
  }

 private:
  static shared_factor sharing_of(const problem& p) {
    bool time = p.shape.time > 1, channel = p.shape.channel > 1;
    for (const array_use& array : p) {
      if (!array.makes_factor || !array.data) continue;
      const bool is_reset_mask = array.one_channel_will_do;  // no other factor has this flag
      time = time && array.strides.time == 0 && !is_reset_mask;
      channel = channel && array.strides.channel == 0;
    }
    return time      ? shared_factor::in_time
           : channel ? shared_factor::along_channels
                     : shared_factor::nowhere;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
