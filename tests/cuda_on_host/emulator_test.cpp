// SPDX-License-Identifier: BSD-3-Clause
// Tests of the emulator: it detects errors of kernels and accepts correct ones.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <scanrec/detail/cuda/device.cuh>

#include "catch.hpp"

namespace {

using namespace scanrec::cuda;
using cuda_on_host::fault;
using cuda_on_host::favour;
using cuda_on_host::schedule;
using cuda_on_host::scheduled;

/// Runs a kernel in three blocks, by default of four warps. Returns its fault's message or "".
std::string fault_of(std::function<void()> thread, std::int64_t shared_bytes = 512,
                     bool synchronises = true, int threads = 128) {
  try {
    cuda_on_host::run({3, threads, shared_bytes, synchronises, std::move(thread)});
  } catch (const fault& f) {
    return f.what();
  }
  return "";
}
bool says(const std::string& what, const std::string& part) {
  INFO("got: " << what);
  CHECK(what.find(part) != std::string::npos);
  return what.find(part) != std::string::npos;
}

/// Sums over the threads of a block, without the barrier at level `left_out`; -1 keeps all.
void add_up(int left_out) {
  const device::shared_array<int> sums(0);
  const int own = device::thread_index();
  sums.store(own, own);
  int level = 0;
  for (int half = 64; half > 0; half /= 2, ++level) {
    if (level != left_out) device::synchronise_block();
    if (own < half) sums.store(own, sums.load(own) + sums.load(own + half));
  }
  device::synchronise_block();
  if (sums.load(0) != 127 * 64) throw fault("wrong sum");
}

TEST_CASE("every thread runs once, in many orders", "[emulator]") {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    for (const bool synchronises : {false, true}) {
      const scheduled as({.seed = seed});
      std::vector<int> order;
      cuda_on_host::run({5, 48, 0, synchronises, [&] {
                           order.push_back(static_cast<int>(device::block_index()) * 48 +
                                           device::thread_index());
                         }});
      orders.insert(order);
      std::sort(order.begin(), order.end());
      bool each = order.size() == 240;
      for (std::size_t i = 0; each && i < order.size(); ++i) each = order[i] == static_cast<int>(i);
      CHECK(each);
    }
  CHECK(orders.size() == 10);
  // The same seed gives the same order.
  std::vector<int> first, again;
  for (auto* order : {&first, &again}) {
    const scheduled as({.seed = 7});
    cuda_on_host::run({3, 40, 0, true, [&] {
                         order->push_back(device::thread_index());
                         device::synchronise_block();
                         order->push_back(device::thread_index());
                       }});
  }
  CHECK((first == again));
}

TEST_CASE("a missing barrier is detected", "[emulator]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scheduled as({.seed = seed});
    CHECK(fault_of([] { add_up(-1); }) == "");
    for (int level = 0; level < 7; ++level)
      says(fault_of([=] { add_up(level); }),
           level == 0 ? "shared memory" : "race in shared memory");
  }
}

TEST_CASE("a missing barrier before memory is reused is detected", "[emulator]") {
  // Neighbours exchange values through shared memory, twice.
  const auto rotate = [](bool with_barrier) {
    const device::shared_array<int> values(0);
    const int own = device::thread_index(), next = (own + 1) % 128;
    values.store(own, own);
    device::synchronise_block();
    const int got = values.load(next);
    if (with_barrier) device::synchronise_block();
    values.store(own, got);
    device::synchronise_block();
    if (values.load(own) != next) throw fault("wrong value");
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scheduled as({.seed = seed});
    CHECK(fault_of([&] { rotate(true); }) == "");
    says(fault_of([&] { rotate(false); }), "race in shared memory");
  }
}

TEST_CASE("a warp barrier orders only its warp", "[emulator]") {
  const auto mirror = [](int across) {
    const device::shared_array<int> values(0);
    const int own = device::thread_index();
    values.store(own, own);
    device::synchronise_warp();
    (void)values.load(own ^ across);
  };
  CHECK(fault_of([&] { mirror(31); }) == "");
  says(fault_of([&] { mirror(32); }), "shared memory at byte");  // a race, or not written yet
  // An exchange waits for the warp, but orders no memory.
  says(fault_of([] {
         const device::shared_array<int> values(0);
         const int own = device::thread_index();
         values.store(own, own);
         (void)device::exchange(own, 0);
         (void)values.load(own ^ 1);
       }),
       "race in shared memory at byte");
}

TEST_CASE("copies are complete after the wait, and misuse is detected", "[emulator]") {
  // Each group has at most one copy. Copies are in flight while a neighbour reads an earlier one.
  enum class mistake { none, no_wait, waits_for_too_few, no_barrier, overwrites, changes_source };
  std::vector<int> from(128 * 8), seen(128 * 8);
  const auto pipeline = [&](mistake made) {
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i);
    return fault_of(
        [&, made] {
          const device::shared_array<int> ring(0);
          const int own = device::thread_index(), neighbour = own ^ 1;
          const auto fetch = [&](int k) {
            if (k < 8)
              device::copy_ahead(ring, k % 4 * 128 + own, &from[std::size_t(k * 128 + own)]);
            device::close_group_of_copies();
          };
          for (int k = 0; k < 3; ++k) fetch(k);
          for (int k = 0; k < 8; ++k) {
            if (made == mistake::waits_for_too_few)
              device::wait_for_copies_but<3>();
            else if (made != mistake::no_wait)
              device::wait_for_copies_but<2>();
            if (made != mistake::no_barrier) device::synchronise_warp();
            seen[std::size_t(k * 128 + own)] = ring.load(k % 4 * 128 + neighbour);
            if (made == mistake::overwrites) ring.store((k + 1) % 4 * 128 + own, 0);
            if (made == mistake::changes_source && k < 6)
              from[std::size_t((k + 2) * 128 + own)] = 0;
            device::synchronise_warp();
            fetch(k + 3);
          }
        },
        4 * 128 * sizeof(int));
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const scheduled as({.seed = seed});
    CHECK(pipeline(mistake::none) == "");
    bool right = true;
    for (int i = 0; i < 128 * 8; ++i) right = right && seen[std::size_t(i)] == (i ^ 1);
    CHECK(right);
    says(pipeline(mistake::no_wait), "a copy is on its way");
    says(pipeline(mistake::waits_for_too_few), "a copy is on its way");
    says(pipeline(mistake::no_barrier), "shared memory at byte");
    says(pipeline(mistake::overwrites), "a copy is on its way");
    says(pipeline(mistake::changes_source), "has changed meanwhile");
  }
}

TEST_CASE("unaligned copies are detected", "[emulator]") {
  struct alignas(16) chunk {
    unsigned char bytes[16];
  };
  alignas(16) static unsigned char from[64];
  const auto copy = [](std::size_t first) {
    return fault_of([=] {
      if (device::thread_index() == 0)
        device::copy_ahead(device::shared_array<chunk>(0), 0,
                           reinterpret_cast<const chunk*>(from + first));
    });
  };
  CHECK(copy(16) == "");
  says(copy(8), "not aligned to 16 bytes");
}

TEST_CASE("threads of a warp exchange values", "[emulator]") {
  struct pair {
    double x;
    std::uint32_t y, z;
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const scheduled as({.seed = seed});
    CHECK(fault_of([] {
            const int lane = device::thread_index() % 32;
            pair sum{1.0, static_cast<std::uint32_t>(lane), 0};
            for (int by = 16; by > 0; by /= 2) {
              const pair other = device::exchange(sum, lane ^ by);
              sum.x += other.x, sum.y += other.y;
            }
            if (sum.x != 32 || sum.y != 31 * 16) throw fault("wrong sum");
          }) == "");
  }
}

TEST_CASE("a deadlock is detected", "[emulator]") {
  // A thread that waits elsewhere is an error. A thread that has returned does not count.
  says(fault_of([] {
         if (device::thread_index() == 5) device::synchronise_warp();
         if (device::thread_index() != 5) device::synchronise_block();
       }),
       "different barriers");
  CHECK(fault_of([] {
          if (device::thread_index() == 5) return;
          device::synchronise_block();
        }) == "");
  says(fault_of([] {
         if (device::thread_index() % 32 < 16)
           device::synchronise_warp();
         else
           (void)device::exchange(1, 20);
       }),
       "different barriers");
}

TEST_CASE("blocks can wait for each other under any schedule", "[emulator]") {
  for (const favour first : {favour::any, favour::oldest, favour::newest})
    for (const int resident : {1, 2, 7}) {
      const scheduled as({.seed = 3, .resident_blocks = resident, .first = first});
      // Blocks are ordered by ticket, so a block waits only for blocks that have started.
      std::vector<int> done(20, 0);
      int tickets = 0;
      cuda_on_host::run({20, 1, 0, true, [&] {
                           const int own = tickets++;
                           while (own > 0 && !done[static_cast<std::size_t>(own - 1)])
                             cuda_on_host::pause();
                           done[static_cast<std::size_t>(own)] = 1;
                         }});
      CHECK(tickets == 20);
    }
  // If blocks are ordered by index, a block may wait for one that cannot start.
  const scheduled as({.seed = 3, .resident_blocks = 2});
  std::vector<int> done(20, 0);
  says(fault_of(
           [&] {
             const auto own = static_cast<std::size_t>(device::block_index());
             while (own > 0 && !done[own - 1]) cuda_on_host::pause();
             done[own] = 1;
           },
           0, true, 1),
       "waits for another block for ever");
}

TEST_CASE("violations of the kernel rules are detected", "[emulator]") {
  says(fault_of([] { device::synchronise_block(); }, 0, false), "does not synchronise");
  says(fault_of([] { device::shared_array<int>(0).store(128, 1); }), "reaches byte 512 of 512");
  says(fault_of([] { device::shared_array<int>(4).load(-2); }), "reaches byte -4 of 512");
  CHECK_THROWS_AS(device::thread_index(), fault);
}

}  // namespace
