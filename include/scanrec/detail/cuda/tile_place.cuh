// SPDX-License-Identifier: BSD-3-Clause
// Which tile a block takes: the one whose ticket it draws, so that a tile waits for none that has
// not begun; and where the threads of a tile stand.
#pragma once

#include <cstdint>

#include <scanrec/detail/cuda/device.cuh>
#include <scanrec/detail/cuda/messages.cuh>
#include <scanrec/detail/cuda/tile_cutting.cuh>

namespace scanrec::cuda::inline SCANREC_CUDA_ABI {
namespace detail {

/// Where a thread of a tile stands.
struct tile_place {
  std::int64_t tile = 0, group = 0;  // of tiles of the same lanes; of tiles of the same steps
  std::uint64_t call = 0;
  int column = 0, segment = 0;
  bool there = false;  // whether there is such a channel
  std::int64_t g = 0, b = 0, c = 0;
  std::int64_t first = 0, count = 0;  // steps
};

/// Draws a ticket; for all threads of the block, which use the first 16 bytes of shared memory.
SCANREC_DEVICE inline tile_place take_ticket(workspace_header* header,
                                             const tile_cutting& cutting) {
  const device::shared_array<std::uint64_t> head(0);
  const int thread = device::thread_index();
  if (thread == 0) {
    head.store(0, device::fetch_add(&header->ticket, 1));
    head.store(1, header->calls + 1);
  }
  device::synchronise_block();
  tile_place at;
  const auto ticket = static_cast<std::int64_t>(head.load(0));
  at.call = head.load(1);
  at.tile = ticket / cutting.groups, at.group = ticket % cutting.groups;
  at.column = thread % cutting.width, at.segment = thread / cutting.width;
  const std::int64_t strip = at.group % cutting.strips, line = at.group / cutting.strips;
  at.b = line % cutting.lanes.batch, at.g = line / cutting.lanes.batch;
  at.c = strip * cutting.width + at.column;
  at.there = at.c < cutting.lanes.channel;
  at.first = (at.tile * cutting.segments() + at.segment) * cutting.segment_steps;
  const std::int64_t left = at.there ? cutting.steps - at.first : 0;
  at.count = left < 0 ? 0 : left < cutting.segment_steps ? left : cutting.segment_steps;
  return at;
}

/// The last block to leave makes the workspace ready for the next call.
SCANREC_DEVICE inline void leave(workspace_header* header, const tile_cutting& cutting,
                                 const tile_place& at) {
  if (device::thread_index() != 0) return;
  const auto all = static_cast<std::uint32_t>(cutting.tiles * cutting.groups);
  device::fence();
  if (device::fetch_add(&header->done, 1) + 1 == all) {
    header->ticket = header->done = 0;
    header->calls = at.call;
  }
}

}  // namespace detail
}  // namespace scanrec::cuda::inline SCANREC_CUDA_ABI
