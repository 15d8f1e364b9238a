// SPDX-License-Identifier: BSD-3-Clause
// The tile of a block and the positions of its threads. Unless a block processes all tiles of its
// channels in turn, it draws a ticket when it starts. Tickets number tiles in scan order, so a tile
// only waits for tiles that have started.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/cuda/tile_partition.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// The position of a thread in the tile of its block.
struct tile_position {
  int tile = 0, group = 0;      // index along time, and among the tiles of the same steps
  int column = 0, segment = 0;  // within the tile
  bool there = false;           // whether the channel exists
  int g = 0, b = 0;             // index along the group axis of the arrays, and batch row
  std::int64_t c = 0;           // channel
  std::int64_t first = 0;       // first step of the segment
  int count = 0;                // steps of the segment
};

/// The tile of a block, which its first thread passes to the others.
struct alignas(16) drawn_tile {
  std::uint64_t call;
  std::uint32_t tile, group, strip, g, b, unused;
};

/// The number of the call; valid after a ticket has been drawn. It stays in shared memory to save
/// registers.
SCANREC_DEVICE inline std::uint64_t call_number() {
  return device::shared_array<drawn_tile>(0).load(0).call;
}

/// The position of the calling thread in the tile of its block.
SCANREC_DEVICE inline tile_position position_in(const tile_partition& partition,
                                                const drawn_tile& own) {
  const int thread = device::thread_index();
  tile_position at;
  at.tile = static_cast<int>(own.tile), at.group = static_cast<int>(own.group);
  at.g = static_cast<int>(own.g), at.b = static_cast<int>(own.b);
  at.column = thread & (partition.width - 1), at.segment = thread >> partition.width_shift;
  at.c = (static_cast<std::int64_t>(own.strip) << partition.width_shift) + at.column;
  at.there = at.c < partition.lanes.channel;
  at.first = (static_cast<std::int64_t>(at.tile) << partition.tile_shift) +
             static_cast<std::uint32_t>(at.segment << partition.segment_shift);
  const std::int64_t left = at.there ? partition.steps - at.first : 0;
  at.count = left < 0                         ? 0
             : left < partition.segment_steps ? static_cast<int>(left)
                                              : partition.segment_steps;
  return at;
}
/// The tile with the given indices, without the call number.
SCANREC_DEVICE inline drawn_tile tile_of(const tile_partition& partition, std::uint32_t tile,
                                         std::uint32_t group) {
  // Tile numbers fit 31 bits (check_blocks), and 32-bit divisions are faster than 64-bit ones.
  const auto small = [](auto n) { return static_cast<std::uint32_t>(n); };
  const std::uint32_t strips = small(partition.strips), batch = small(partition.lanes.batch);
  const std::uint32_t row = group / strips, g = row / batch;
  return {0, tile, group, group - row * strips, g, row - g * batch, 0};
}

/// Draws a ticket and returns the position of the calling thread in the drawn tile. All threads of
/// the block call it. The drawn tile is stored in the first bytes of shared memory.
SCANREC_DEVICE inline tile_position take_ticket(workspace_header* header,
                                                const tile_partition& partition) {
  const device::shared_array<drawn_tile> head(0);
  const int thread = device::thread_index();
  if (thread == 0) {
    constexpr std::uint64_t one_call = std::uint64_t{1} << 32, half = one_call / 2;
    const auto all = static_cast<std::uint64_t>(partition.tiles * partition.groups);
    std::uint64_t halves = header->halves;
    const std::uint64_t drawn = device::fetch_add(&header->drawn, 1);
    const std::uint64_t calls = drawn / one_call;
    // `halves` counts how often the number of calls has passed a multiple of 2^31. The read above
    // is not ordered before the draw, so the block with the last ticket may already have
    // incremented `halves`. Then the parity of `halves` differs from that of `calls / half`.
    halves -= (halves ^ calls / half) & 1;
    if (drawn % one_call + 1 == all) {
      device::fetch_add(&header->drawn, one_call - all);
      if ((calls + 1) % half == 0) header->halves = halves + 1;
    }
    const auto ticket = static_cast<std::uint32_t>(drawn);
    const auto groups = static_cast<std::uint32_t>(partition.groups);
    const std::uint32_t tile = ticket / groups;
    drawn_tile own = tile_of(partition, tile, ticket - tile * groups);
    own.call = halves / 2 * one_call + calls + 1;
    head.store(0, own);
  }
  device::synchronise_block();
  return position_in(partition, head.load(0));
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
