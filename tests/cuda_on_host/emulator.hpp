// SPDX-License-Identifier: BSD-3-Clause
// A GPU emulator for tests. It runs the threads of a kernel as fibers on the host, in an order that
// a seed selects, and detects errors of kernels.
//
// Threads switch at barriers, exchanges and pauses. The order of threads between two barriers, of
// blocks, and of stores in flight to other blocks is random and differs from launch to launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cuda_on_host {

/// Thrown if a kernel deadlocks, has a race in shared memory, or breaks another rule.
class fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The ready threads that run first.
enum class favour {
  any,     // random
  oldest,  // those of the block that drew its ticket first, or started first
  newest,  // those of the block that drew last, once all resident blocks have drawn; so every
           // block waits for earlier ones
};

/// The interleaving of launches.
struct schedule {
  std::uint64_t seed = 1;
  int resident_blocks = 3;  // blocks that run concurrently; when one ends, the next starts
  favour first = favour::any;
  // A turn is the work of a thread between two waits.
  int turns_per_word = 4;  // average turns between arrivals of words in flight
  // Average turns between turns of paused threads; not 1. At 0 they run only when no thread is
  // ready.
  int turns_per_poll = 0;
};

/// Sets the schedule of this thread's launches until the end of the scope.
class scheduled {
 public:
  explicit scheduled(const schedule& s);
  ~scheduled();
  scheduled(const scheduled&) = delete;
  scheduled& operator=(const scheduled&) = delete;

 private:
  schedule before_;
};

/// Makes bytes weakly ordered until the end of the scope, in kernels that synchronise. Other blocks
/// see ordinary stores late and may read old values, unless fences order them. Words and fetch_add
/// are not affected. The bytes are copied at every switch of blocks, so there should be few.
class weakly_ordered {
 public:
  weakly_ordered(void* first, std::size_t bytes);
  ~weakly_ordered();
  weakly_ordered(const weakly_ordered&) = delete;
  weakly_ordered& operator=(const weakly_ordered&) = delete;
};

/// A stream. Its work is done at once and counted here.
struct stream {
  int launches = 0;
  int clears = 0;  // memset operations
};

/// A kernel launch.
struct launch {
  std::int64_t blocks = 0;
  int threads = 0;                // per block
  std::int64_t shared_bytes = 0;  // per block, not initialised
  bool synchronises = false;      // whether threads may wait for each other
  std::function<void()> thread;
};

/// Runs a kernel to its end. Throws fault and rethrows exceptions of its threads.
void run(const launch& kernel);

// ---- operations of device threads --------------------------------------------------------------

inline constexpr int warp_size = 32;

int thread_index();
std::int64_t block_index();
/// The block's shared memory, aligned to 16 bytes.
std::byte* shared_memory();
void synchronise_block();
void synchronise_warp();
/// A block barrier that returns whether any thread of the block passes true.
bool any_of_block(bool mine);
/// All threads of the warp pass `bytes` bytes at `mine`. Returns those of thread `lane`, which stay
/// valid until the next exchange.
const void* exchange(const void* mine, std::size_t bytes, int lane);
/// Lets other threads run; for threads that wait for another block.
void pause();
/// Sixteen bytes that other blocks see as a whole, some time after the store. Words at different
/// addresses may arrive in any order.
struct word {
  std::uint64_t value = 0, tag = 0;
};
void store_word(word* p, const word& w);
word load_word(const word* p);
/// Adds `more` atomically and returns the previous value. Other blocks see the sum at once.
std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t more);
/// Makes the thread's earlier stores visible before its later ones, and likewise the stores of
/// other threads that a barrier orders before the fence. Later loads of the
/// block see all stores of other blocks that have arrived before the fence.
void fence();
/// Records a read or write in shared memory. Throws fault if another thread accessed the same bytes
/// without a barrier in between and one of the accesses is a write. Also throws for bytes outside
/// shared memory, for reads of bytes that nobody has written, and for bytes that a copy in flight
/// writes.
void touch_shared(const void* p, std::size_t bytes, bool writes);
/// Begins a copy to shared memory, which completes when the thread waits for it. Throws fault if
/// the destination is accessed earlier, if the source changes meanwhile, or if either is not
/// aligned.
void copy_to_shared(void* to, const void* from, std::size_t bytes, std::size_t alignment);
/// Makes the copies since the last call a group.
void close_group_of_copies();
/// Waits for the thread's copies, except those of the last `groups` groups.
void wait_for_copies(int groups);

}  // namespace cuda_on_host
