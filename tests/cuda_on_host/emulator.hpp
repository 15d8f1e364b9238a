// SPDX-License-Identifier: BSD-3-Clause
// A GPU for tests: runs the threads of a kernel as fibers on the host, in an order that a seed
// chooses, and finds what a kernel does wrong.
//
// Threads change at barriers, exchanges and pauses. Whatever a kernel leaves to chance (the order
// of threads between two barriers, of blocks, of stores on their way to other blocks) is drawn
// again for every launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cuda_on_host {

/// A kernel waited for ever, let threads race in shared memory, or broke a rule of the dialect.
class fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which threads run first, of those that can.
enum class favour {
  any,     // by chance
  oldest,  // of the block that drew first, or started first
  newest,  // of the block that drew last, after all that are resident: every block waits for those
           // before it
};

/// How launches interleave.
struct schedule {
  std::uint64_t seed = 1;
  int resident_blocks = 3;  // blocks that run side by side; the next one starts when one is done
  favour first = favour::any;
  // A turn is what a thread does from one wait to the next. About every so many of them
  int turns_per_word = 4;  // a word on its way arrives;
  int turns_per_poll = 0;  // a thread that paused goes on; not 1. 0: none, until all others wait.
};

/// The schedule of the launches of this thread, from here to the end of the scope.
class scheduled {
 public:
  explicit scheduled(const schedule& s);
  ~scheduled();
  scheduled(const scheduled&) = delete;
  scheduled& operator=(const scheduled&) = delete;

 private:
  schedule before_;
};

/// Bytes whose ordinary stores reach other blocks late, and which blocks see as they once were,
/// unless fences order them: from here to the end of the scope, in kernels that synchronise. Words
/// and sums of fetch_add among them are what they are elsewhere. The bytes are copied whenever
/// another block goes on, so they had better be few.
class weakly_ordered {
 public:
  weakly_ordered(void* first, std::size_t bytes);
  ~weakly_ordered();
  weakly_ordered(const weakly_ordered&) = delete;
  weakly_ordered& operator=(const weakly_ordered&) = delete;
};

/// A stream, which keeps a record. Work is done at once.
struct stream {
  int launches = 0;
  int clears = 0;  // of memory
};

/// A kernel on its way.
struct launch {
  std::int64_t blocks = 0;
  int threads = 0;                // of a block
  std::int64_t shared_bytes = 0;  // of a block, with anything in them
  bool synchronises = false;      // whether threads may wait for each other
  std::function<void()> thread;
};

/// Runs a kernel to its end. Throws fault, and what its threads throw.
void run(const launch& kernel);

// ---- what threads ask for ---------------------------------------------------------------------

inline constexpr int warp_size = 32;

int thread_index();
std::int64_t block_index();
/// The block's shared memory, aligned to 16 bytes.
std::byte* shared_memory();
void synchronise_block();
void synchronise_warp();
/// Waits for the block; whether any of its threads says so.
bool any_of_block(bool mine);
/// Of every thread of the warp the bytes at `mine`; returns those of thread `lane`, which stay
/// until the next exchange.
const void* exchange(const void* mine, std::size_t bytes, int lane);
/// Lets others run: for threads that wait for another block.
void pause();
/// Sixteen bytes that other blocks see whole, some time after they are stored, in any order.
struct word {
  std::uint64_t value = 0, tag = 0;
};
void store_word(word* p, const word& w);
word load_word(const word* p);
/// What was there before `more` was added. Other blocks see the sum at once.
std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t more);
/// Orders what the thread has stored, and what barriers have ordered before, before what it stores
/// from here on; and what it has read of other blocks before what its block reads from here on.
void fence();
/// Marks a read or a write in shared memory. Faults if another thread wrote or read there and no
/// barrier lies in between.
void touch_shared(const void* p, std::size_t bytes, bool writes);
/// Begins a copy to shared memory, which is done when the thread waits for it. Faults if anybody
/// reads or writes there earlier, if what is copied changes meanwhile, or if either place is not
/// aligned.
void copy_to_shared(void* to, const void* from, std::size_t bytes, std::size_t alignment);
/// What the thread has begun to copy since the last call is a group.
void close_group_of_copies();
/// Waits for the thread's copies, but for those of the last `groups` groups.
void wait_for_copies(int groups);

}  // namespace cuda_on_host
