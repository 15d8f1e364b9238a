// SPDX-License-Identifier: BSD-3-Clause
// How triangular_matmul cuts a problem into panels, as data: chunks of 128 steps, and beside each
// other the columns that one triangle serves.
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
inline constexpr int chunk_block = 16;   // steps that are solved by substitution
inline constexpr int chunk_blocks = chunk_steps / chunk_block;

/// Columns of a panel whose numbers take so many bytes.
constexpr int panel_columns(std::int64_t bytes) { return bytes > 8 ? 16 : 32; }

/// How the factors of maps are shared.
enum class shared_factor {
  nowhere,         // a column is a channel, with factors of its own
  along_channels,  // columns are channels
  in_time,         // columns are chunks of one lane
};

/// Where a panel stands.
struct panel_position {
  std::int64_t g = 0, b = 0, c = 0;  // the lane, or the first of the channels
  std::int64_t chunk = 0;            // the chunk, or the first
};

struct chunk_partition {
  lane_dealing lanes;  // to blocks: panels side by side, or stacks of panels that are summed over
  std::int64_t steps = 0, chunks = 0;
  int columns = 0;
  shared_factor sharing = shared_factor::nowhere;
  bool steps_side_by_side = false;  // in memory
  bool sums_by_step = false;        // of gradients over lanes

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
  /// Panels of the same lanes, one after the other in time.
  SCANREC_HD std::int64_t panels() const {
    return in_time() ? (chunks + columns - 1) / columns : chunks;
  }
  SCANREC_HD std::int64_t lane_count() const {
    return lanes.all.group * lanes.all.batch * lanes.all.channel;
  }
  SCANREC_HD std::int64_t lane_of(std::int64_t g, std::int64_t b, std::int64_t c) const {
    return (g * lanes.all.batch + b) * lanes.all.channel + c;
  }
  /// The lanes of the i-th stack.
  SCANREC_HD region stack(std::int64_t i) const {
    region own = lanes.of(i);
    if (in_time() || lanes.parallel.channel <= 1) return own;
    own.begin.channel *= columns;
    const std::int64_t end = own.begin.channel + columns;
    own.end.channel = end < lanes.all.channel ? end : lanes.all.channel;
    return own;
  }
  /// Channels from one panel of a stack to the next.
  SCANREC_HD std::int64_t channel_step() const { return in_time() ? 1 : columns; }

  // A site of a panel: its step and channel, and whether there are such.
  SCANREC_HD std::int64_t time_at(const panel_position& at, int row, int column) const {
    return (at.chunk + (in_time() ? column : 0)) * chunk_steps + row;
  }
  SCANREC_HD std::int64_t channel_at(const panel_position& at, int column) const {
    return in_time() ? at.c : at.c + column;
  }
  SCANREC_HD bool there(const panel_position& at, int row, int column) const {
    return time_at(at, row, column) < steps && channel_at(at, column) < lanes.all.channel;
  }
  /// Steps of a panel, from its first on.
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
      time = time && array.strides.time == 0 && !array.one_channel_will_do;  // no resets
      channel = channel && array.strides.channel == 0;
    }
    return time      ? shared_factor::in_time
           : channel ? shared_factor::along_channels
                     : shared_factor::nowhere;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
