// SPDX-License-Identifier: BSD-3-Clause
// The tiles of look_back and the layout of its workspace. Both depend on the problem and on
// look_back::segment_steps, but not on the GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/lane_plan.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// A tile is `width` neighbouring channels by `threads / width` segments of `segment_steps` steps.
/// A thread has one segment of one channel. The channels of a tile are its columns. Tiles are
/// numbered over channels, batch rows and the group axis first, then over time.
struct tile_partition {
  static constexpr int threads = 128;

  extents lanes;  // all sequences; time: 1
  std::int64_t steps = 0;
  int width = 1;
  int segment_steps = 1;
  int width_shift = 0;             // log2(width)
  int segment_shift = 0;           // log2(segment_steps)
  int tile_shift = 0;              // log2(tile_steps())
  std::uint32_t first_column = 1;  // mask of the threads of a warp that have the first channel
  std::int64_t strips = 0;         // channel blocks of a batch row, each as wide as a tile
  std::int64_t groups = 0;         // tiles with the same steps: strips of all batch rows
  std::int64_t tiles = 0;          // of a sequence, at least 1
  int span_shift = 0;              // log2(span_tiles()); spans are defined in tiles_before.cuh

  /// `alone`: one channel per tile.
  tile_partition(const problem& p, int steps_of_segment, bool alone)
      : lanes(p.shape), steps(p.shape.time), segment_steps(steps_of_segment) {
    lanes.time = 1;
    if (!alone) width = width_of(p);
    width_shift = std::countr_zero(static_cast<unsigned>(width));
    segment_shift = std::countr_zero(static_cast<std::uint64_t>(segment_steps));
    tile_shift = std::countr_zero(static_cast<std::uint64_t>(tile_steps()));
    for (int i = width; i < device::warp_size; i += width) first_column |= std::uint32_t{1} << i;
    strips = (lanes.channel + width - 1) / width;
    groups = lanes.group * lanes.batch * strips;
    tiles = std::max<std::int64_t>(1, (steps + tile_steps() - 1) / tile_steps());
    span_shift = std::countr_zero(static_cast<unsigned>(std::min(segments(), most_span_tiles)));
  }
  SCANREC_HD int span_tiles() const { return 1 << span_shift; }
  SCANREC_HD std::int64_t spans() const { return ((tiles - 1) >> span_shift) + 1; }
  SCANREC_HD int segments() const { return threads >> width_shift; }
  /// The terms of sums over channels have one row per step in shared memory. Returns the length of
  /// a row, padded against bank conflicts.
  SCANREC_HD int term_row() const { return width + 1; }
  SCANREC_HD std::int64_t tile_steps() const {
    return static_cast<std::int64_t>(segments()) * segment_steps;
  }

 private:
  // A segment reads the map of at most one earlier tile of the span. Tiles of 8 or 16 channels have
  // only 16 or 8 segments, so their spans have only 16 or 8 tiles.
  static constexpr int most_span_tiles = 32;
  // The maximum width if a sequence has several tiles. It is limited by the shared memory for maps
  // in tiles_before.cuh.
  static constexpr std::int64_t most_columns_of_many_tiles = 16;
  // If channels are contiguous, the width is as many channels as fill two memory sectors of 32
  // bytes with the smallest elements, but at most 16. With accesses of one sector, the L2 cache has
  // a lower throughput than memory. If channels are not contiguous, a tile has one sequence, or as
  // many short sequences as fill it.
  [[nodiscard]] int width_of(const problem& p) const {
    constexpr std::int64_t two_sectors = 64;
    std::int64_t bytes = 0, most = 1;
    bool apart = false;
    for (const array_use& array : p) {
      if (!array.data || !array.sequence || array.checkpoints || array.element_bytes == 1) continue;
      if (array.strides.time == 0) continue;  // read from the cache
      apart = apart || std::abs(array.strides.channel) > 1;
      bytes = bytes == 0 ? array.element_bytes : std::min(bytes, array.element_bytes);
    }
    if (apart)
      most = threads * segment_steps / to_power(steps);
    else if (bytes > 0)
      most = std::min<std::int64_t>(two_sectors / bytes, most_columns_of_many_tiles);
    most = std::clamp<std::int64_t>(most, 1, device::warp_size);
    return static_cast<int>(
        std::min(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most))),
                 to_power(lanes.channel)));
  }
  static std::int64_t to_power(std::int64_t n) {
    return static_cast<std::int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, n))));
  }
};

/// The maximum number of steps per thread, a power of two. A thread holds all its steps in
/// registers. Four blocks of 128 threads fit a multiprocessor if the steps of a thread take at most
/// 384 bytes. This size includes reset masks, which kernels for assume::plain do not have. Wide
/// maps leave fewer registers.
constexpr int segment_steps_of(std::int64_t step_bytes, std::int64_t map_bytes, int most = 32) {
  const std::int64_t room = map_bytes > 16 ? 160 : 384;
  int steps = 32;
  while (steps > 1 && (steps > most || steps * step_bytes > room || steps * map_bytes > 512))
    steps /= 2;
  return steps;
}

/// Upper bound on the shared memory of a tile without staged arrays, recomputed states or terms of
/// sums. Each thread has three maps, a state and a sum, together no larger than four maps. Each
/// channel has a state. The other parts take at most 4 KiB.
constexpr std::int64_t bytes_of_maps(std::int64_t map_bytes, std::int64_t carry_bytes) {
  return tile_partition::threads * 4 * map_bytes + device::warp_size * carry_bytes + 4096;
}

/// The tiles of a call of look_back, and the layout of its workspace: the header, messages,
/// counters that order the additions of tiles with the same steps (tile_sums.cuh), and sums.
struct look_back_plan {
  tile_partition partition;
  bool sums_by_column = false;  // for sums that keep time, a tile first adds up its channels
  bool sums_by_step = false;    // to sums that keep time, tiles of one channel add in turn
  bool in_turn = false;         // whether a block processes all tiles of its channels in turn
  std::int64_t first_message = header_bytes, messages_bytes = 0;
  lane_plan sums;
  std::int64_t workspace_bytes = 0;

  /// `most_steps`: maximum number of steps per thread; 0: chosen by type.
  look_back_plan(const problem& p, int most_steps)
      : partition(
            p, segment_steps_of(p.step_bytes, p.carry_map_bytes, most_steps > 0 ? most_steps : 32),
            false),
        sums_by_column(partition.groups > 0 && sums_over_channels(p) &&
                       partition.width >= enough_columns && terms_fit(p)),
        sums(p) {
    sums_by_step = !sums_by_column && sums.per_step;
    if (sums_by_step) partition = tile_partition(p, partition.segment_steps, true);
    in_turn = partition.groups >= enough_groups && is_plain(p);
    messages_bytes = bytes_of_messages(p);
    sums = lane_plan(p, partition.tiles, first_sum(), sums_by_column ? partition.width : 0);
    workspace_bytes = sums.bytes;
  }
  /// Bytes of shared memory for the terms of sums over the channels of a tile.
  [[nodiscard]] std::int64_t terms_bytes() const { return bytes_of_terms(sums.strip_sum_bytes); }

  [[nodiscard]] std::int64_t first_turn() const { return first_message + messages_bytes; }
  /// The byte offset of the sums. They need no clearing, because they are written before they are
  /// read. All memory before them must be zero or have the contents that earlier calls left.
  [[nodiscard]] std::int64_t first_sum() const {
    return first_turn() + (sums_by_step ? partition.tiles * bytes_of_word : 0);
  }

 private:
  // The number of blocks that fill a large GPU: four per multiprocessor, for 128 multiprocessors.
  static constexpr std::int64_t enough_groups = 512;
  // With fewer columns, the sums of all tiles would take about as much memory as an input.
  static constexpr int enough_columns = 4;
  [[nodiscard]] std::int64_t bytes_of_terms(std::int64_t of_each) const {
    return of_each * partition.tile_steps() * partition.term_row();
  }
  // Whether the terms of sums fit beside the rest of a tile's shared memory.
  [[nodiscard]] bool terms_fit(const problem& p) const {
    std::int64_t of_each = 0;
    for (const array_use& array : p)
      if (sum_keeps_time(array)) of_each += array.wide_bytes;
    const std::int64_t states =
        (std::max(partition.tile_steps(), memory::checkpoint_interval) + 2) * partition.width *
        p.recomputed_bytes;
    return bytes_of_maps(p.carry_map_bytes, p.carry_bytes) + states + bytes_of_terms(of_each) <=
           most_shared_bytes;
  }
  static constexpr std::int64_t bytes_of_word = sizeof(device::word);
  [[nodiscard]] std::int64_t bytes_of_messages(const problem& p) const {
    if (partition.tiles == 1) return 0;
    const std::int64_t words = (p.carry_map_bytes + 7) / 8 + (p.carry_bytes + 7) / 8;
    return (partition.tiles + partition.spans()) * partition.groups * partition.width * words *
           bytes_of_word;
  }
};

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
