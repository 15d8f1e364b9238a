// SPDX-License-Identifier: BSD-3-Clause
// The emulator's weakly ordered global memory. A store of one block becomes visible to others
// later, in any order, and a load may return an old value. Only fences enforce an order. `moment`
// records the order that barriers establish.
//
// Ordinary loads and stores cannot be intercepted on a host. Therefore every block has its own copy
// of the watched bytes, the range that a test makes weakly ordered (weakly_ordered in
// emulator.hpp). The copy is put in their place while a thread of the block runs. Bytes that differ
// afterwards were stored by that thread. Like a cache of a multiprocessor, a copy may be old: it
// holds the values at the start of the kernel or at the block's last fence. A block always sees its
// own stores.
//
// Correct kernels cause no fault. If one block reads a value that another has stored, the writer
// needs a fence between the store and the word that announces it, and the reader needs a fence
// between that word and the load. The same holds if two blocks store to one address. A fence
// covers its own thread and everything that a barrier has ordered before it, as in CUDA. A store
// that does not change the value is not detected and has no effect.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "emulator.hpp"

namespace cuda_on_host {

/// A moment of a thread: the barriers of the block and of the warp that it had passed.
struct moment {
  int thread = -1;  // -1: no moment
  std::uint32_t block_barriers = 0, warp_barriers = 0;
};
/// Whether an event at `before` happens before `now`.
inline bool ordered(const moment& before, const moment& now) {
  return before.thread < 0 || before.thread == now.thread ||
         before.block_barriers < now.block_barriers ||
         (before.thread / warp_size == now.thread / warp_size &&
          before.warp_barriers < now.warp_barriers);
}

/// The watched bytes of a launch; may be empty.
class weak_memory {
 public:
  /// The copy of a block.
  struct copy {
    std::vector<std::byte> bytes;
    std::vector<moment> stored;  // per byte: the pending store, if any
    bool any_stored = false;
  };

  weak_memory(std::byte* first, std::size_t bytes)
      : position_(first), begin_(first, first + bytes), arrived_(begin_) {}
  [[nodiscard]] bool empty() const { return arrived_.empty(); }

  /// The copy of a block that starts.
  copy* add_block() {
    return &copies_.emplace_back(copy{begin_, std::vector<moment>(begin_.size())});
  }
  /// Puts the block's copy in place.
  void show(copy& c) {
    if (shown_ == &c) return;
    shown_ = &c;
    std::memcpy(position_, c.bytes.data(), c.bytes.size());
  }
  /// Records the stores of the thread since its block's copy was put in place.
  void take_stores(copy& c, const moment& now) {
    if (std::memcmp(position_, c.bytes.data(), c.bytes.size()) == 0) return;
    for (std::size_t i = 0; i < c.bytes.size(); ++i)
      if (position_[i] != c.bytes[i]) c.bytes[i] = position_[i], c.stored[i] = now;
    c.any_stored = true;
  }
  /// Makes the stores before `now` arrive, and updates the block's copy with all stores that have
  /// arrived.
  void fence(copy& c, const moment& now) {
    take_stores(c, now);
    bool left = false;
    for (std::size_t i = 0; c.any_stored && i < c.bytes.size(); ++i)
      if (ordered(c.stored[i], now))
        arrive(c, i);
      else
        left = true;
    c.any_stored = left;
    for (std::size_t i = 0; i < c.bytes.size(); ++i)
      if (c.stored[i].thread < 0) c.bytes[i] = arrived_[i];
    shown_ = nullptr;
    show(c);
  }
  /// Makes a few stores of a random block arrive.
  void arrive_by_chance(std::mt19937_64& random) {
    if (copies_.empty()) return;
    copy& c = copies_[random() % copies_.size()];
    constexpr std::size_t together = 8;
    const std::size_t first = random() % arrived_.size() / together * together;
    for (std::size_t i = first; i < std::min(first + together, arrived_.size()); ++i) arrive(c, i);
  }
  /// Makes all stores arrive at the end of the kernel.
  void arrive_all() {
    if (empty()) return;
    for (copy& c : copies_)
      for (std::size_t i = 0; c.any_stored && i < c.bytes.size(); ++i) arrive(c, i);
    std::memcpy(position_, arrived_.data(), arrived_.size());
    shown_ = nullptr;
  }

  /// The address of the value that has arrived at a watched address, or the address itself if it is
  /// not watched. Used for words (16 bytes, see emulator.hpp), which are only stored and loaded as
  /// a whole.
  template <class T>
  T* arrived(T* p) {
    return contains(p) ? reinterpret_cast<T*>(arrived_.data() + offset_of(p)) : p;
  }
  /// Adds to a watched number. The sum arrives at once, and the block sees it.
  std::uint64_t fetch_add(copy& c, const std::uint64_t* p, std::uint64_t more) {
    const std::size_t first = offset_of(p);
    for (std::size_t i = first; i < first + sizeof more; ++i) arrive(c, i);
    std::uint64_t before = 0;
    std::memcpy(&before, arrived_.data() + first, sizeof before);
    more += before;
    for (std::byte* const there : {arrived_.data(), c.bytes.data(), position_})
      std::memcpy(there + first, &more, sizeof more);
    return before;
  }
  [[nodiscard]] bool contains(const void* p) const { return offset_of(p) < arrived_.size(); }

 private:
  [[nodiscard]] std::size_t offset_of(const void* p) const {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(position_);
  }
  void arrive(copy& c, std::size_t i) {
    if (c.stored[i].thread < 0) return;
    arrived_[i] = c.bytes[i];
    c.stored[i] = {};
  }

  std::byte* position_;
  std::vector<std::byte> begin_, arrived_;
  std::deque<copy> copies_;  // of all blocks: pending stores outlive their block
  const copy* shown_ = nullptr;
};

}  // namespace cuda_on_host
