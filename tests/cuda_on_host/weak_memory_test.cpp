// SPDX-License-Identifier: BSD-3-Clause
// Tests of the emulator's memory model between blocks and of its schedules. Other blocks see
// ordinary stores after fences, words arrive in any order, and paused threads do not block others.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <scanrec/detail/cuda/device.cuh>

#include "catch.hpp"

namespace {

using namespace scanrec::cuda;
using cuda_on_host::fault;
using cuda_on_host::favour;
using cuda_on_host::scheduled;
using cuda_on_host::weakly_ordered;

void run(std::int64_t blocks, int threads, std::function<void()> thread) {
  cuda_on_host::run({blocks, threads, 64, true, std::move(thread)});
}

/// The ticket of the block, drawn by its first thread. If `at_once` is false, the thread draws it
/// without an atomic addition.
int draw(std::uint64_t& tickets, bool at_once = true) {
  const device::shared_array<int> own(0);
  if (device::thread_index() == 0)
    own.store(0, static_cast<int>(at_once ? device::fetch_add(&tickets, 1) : tickets++));
  device::synchronise_block();
  return own.load(0);
}

TEST_CASE("a block sees stores of another block after fences and barriers of both", "[emulator]") {
  enum class mistake { none, no_release, no_barrier_before, no_acquire };
  // Every thread checks an element that the previous block stored, and overwrites it with the next
  // number. Only the first thread waits for that block.
  static constexpr int blocks = 6, threads = 64;
  const auto wrong = [](mistake made, std::uint64_t seed) {
    std::array<int, threads> data{};
    std::vector<device::word> told(blocks + 1);
    std::uint64_t tickets = 0;
    int failures = 0;
    {
      const weakly_ordered those(data.data(), sizeof data);
      const scheduled as({.seed = seed, .turns_per_poll = 8});
      run(blocks, threads, [&] {
        const auto own = static_cast<std::size_t>(draw(tickets));
        const int thread = device::thread_index();
        if (thread == 0 && own > 0) {
          while (device::load_word(&told[own]).tag == 0) device::pause();
          if (made != mistake::no_acquire) device::fence();
        }
        device::synchronise_block();
        const auto mirrored = static_cast<std::size_t>(threads - 1 - thread);
        const int got = data[mirrored];
        if (got != static_cast<int>(own)) ++failures;
        device::synchronise_block();
        data[mirrored] = static_cast<int>(own) + 1;
        if (data[mirrored] != static_cast<int>(own) + 1) ++failures;  // a block sees its own stores
        if (made != mistake::no_barrier_before) device::synchronise_block();
        if (thread != 0) return;
        if (made != mistake::no_release) device::fence();
        device::store_word(&told[own + 1], {0, 1});
      });
    }
    // After the kernel all stores are visible.
    if (made == mistake::none) CHECK(std::count(data.begin(), data.end(), blocks) == threads);
    return failures;
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    CHECK(wrong(mistake::none, seed) == 0);
    CHECK(wrong(mistake::no_release, seed) > 0);
    CHECK(wrong(mistake::no_barrier_before, seed) > 0);
    CHECK(wrong(mistake::no_acquire, seed) > 0);
  }
}

TEST_CASE("fetch_add is atomic between blocks", "[emulator]") {
  const auto most = [](bool at_once) {
    std::uint64_t tickets[2] = {};
    const weakly_ordered those(tickets, sizeof tickets);
    int largest = 0;
    run(20, 4, [&] { largest = std::max(largest, draw(tickets[0], at_once)); });
    return largest;
  };
  CHECK(most(true) == 19);
  CHECK(most(false) < 19);
}

TEST_CASE("words of a message arrive one by one in any order", "[emulator]") {
  int first_alone = 0, second_alone = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scheduled as({.seed = seed, .turns_per_word = 40, .turns_per_poll = 4});
    std::uint64_t tickets = 0;
    std::array<device::word, 2> message{};
    bool whole = false;
    run(2, 32, [&] {
      if (draw(tickets) == 0) {
        if (device::thread_index() == 0)
          for (device::word& w : message) device::store_word(&w, {7, 1});
        return;
      }
      for (;;) {
        const device::word a = device::load_word(&message[0]), b = device::load_word(&message[1]);
        for (const device::word& w : {a, b})
          if (w.value != 7 * w.tag) throw fault("half a word");
        first_alone += a.tag > b.tag, second_alone += b.tag > a.tag;
        if (a.tag && b.tag) break;
        device::pause();
      }
      whole = true;
    });
    CHECK(whole);
  }
  CHECK(first_alone > 0);
  CHECK(second_alone > 0);
}

TEST_CASE("a fence delivers words that other threads of its block stored before a barrier",
          "[emulator]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scheduled as({.seed = seed, .turns_per_word = 40, .turns_per_poll = 4});
    std::uint64_t tickets = 0;
    device::word before{}, after{};
    int wrong = 0;
    run(2, 64, [&] {
      if (draw(tickets) == 0) {
        if (device::thread_index() == 50) device::store_word(&before, {0, 1});
        device::synchronise_block();
        if (device::thread_index() != 0) return;
        device::fence();
        device::store_word(&after, {0, 1});
      } else {
        while (device::load_word(&after).tag == 0) device::pause();
        if (device::load_word(&before).tag == 0) ++wrong;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("favour::newest runs blocks with later tickets first, once all have drawn",
          "[emulator]") {
  for (const favour first : {favour::newest, favour::oldest}) {
    const scheduled as({.seed = 5, .resident_blocks = 9, .first = first});
    std::uint64_t tickets = 0;
    std::vector<int> order;
    run(9, 3, [&] {
      const int own = draw(tickets);
      device::synchronise_block();
      if (device::thread_index() == 0) order.push_back(own);
    });
    std::vector<int> wanted{0, 1, 2, 3, 4, 5, 6, 7, 8};
    if (first == favour::newest) std::reverse(wanted.begin(), wanted.end());
    CHECK((order == wanted));
  }
}

TEST_CASE("paused threads poll while others run if turns_per_poll is set", "[emulator]") {
  for (const int turns : {0, 4}) {
    const scheduled as({.seed = 5, .resident_blocks = 2, .turns_per_poll = turns});
    std::uint64_t tickets = 0;
    bool done = false;
    int looks = 0;
    run(2, 32, [&] {
      if (draw(tickets) == 0) {
        for (int i = 0; i < 50; ++i) device::synchronise_block();
        done = true;
      } else if (device::thread_index() == 0) {
        for (; !done; ++looks) device::pause();
      }
    });
    CHECK((looks > 1) == (turns > 0));
  }
  CHECK_THROWS_AS(scheduled({.turns_per_poll = 1}), fault);  // no other thread would run
}

}  // namespace
