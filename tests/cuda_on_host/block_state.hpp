// SPDX-License-Identifier: BSD-3-Clause
// The emulator's state of a block, its warps and its threads.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <vector>

#include "emulator.hpp"
#include "stacks.hpp"
#include "weak_memory.hpp"

namespace cuda_on_host {

/// The last accesses to a few bytes. Two reads are kept if no barrier orders them.
struct accesses {
  moment write, reads[2];
  bool on_its_way = false;  // a copy in flight writes here
};
inline constexpr std::size_t accessed_together = 2;  // bytes; no element has fewer

struct aligned_delete {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(16)); }
};

enum class waiting { no, block_barrier, warp_barrier, exchange };

struct warp_state {
  int alive = 0, arrived = 0;
  std::vector<std::byte> slots[2];  // one per thread, of this exchange and the previous one
  int turn = 0;
};

/// A copy to shared memory that is in flight.
struct copy_on_its_way {
  std::byte* to;
  const std::byte* from;
  std::vector<std::byte> seen;  // the source at the beginning of the copy
  std::uint64_t group;          // groups that the thread had closed when this copy began
};

struct block_state;
struct thread_state {
  context::fiber fiber;
  context::fiber back;  // to the scheduler
  block_state* block = nullptr;
  std::byte* stack = nullptr;
  int index = 0;
  waiting wait = waiting::no;
  std::uint32_t block_barriers = 0, warp_barriers = 0;
  std::deque<copy_on_its_way> copies;
  std::uint64_t closed_groups = 0;
  bool done = false;
};

struct block_state {
  std::int64_t index = 0;
  std::unique_ptr<std::byte, aligned_delete> shared;
  std::vector<accesses> touched;
  std::vector<thread_state> threads;
  std::vector<warp_state> warps;
  int alive = 0, arrived = 0;
  bool drawn = false;                    // whether it has drawn a ticket by its first atomic add
  weak_memory::copy* memory = nullptr;   // its copy of the watched bytes (weak_memory.hpp), or null
  std::vector<int> ready;                // threads that can run
  bool any = false, any_before = false;  // any_of_block's result at this and the previous barrier
};

}  // namespace cuda_on_host
