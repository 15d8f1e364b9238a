// SPDX-License-Identifier: BSD-3-Clause
// Global memory as blocks of a GPU share it: what a block stores arrives some time later, in any
// order, and what it reads may be old. Fences alone change that. And the moments by which the
// emulator knows what barriers have ordered.
//
// Ordinary loads and stores cannot be intercepted on a host. So every block has its own copy of the
// bytes, which lies in their place while a thread of the block runs; what differs afterwards the
// thread has stored. Bytes of a copy are old as a cache of a multiprocessor may be: as they were
// when the kernel began, or at the block's last fence. What the block has stored itself it sees.
//
// That finds no fault with kernels that are right: where a block reads what another one has
// stored, the other has fenced between the store and the word that tells of it, and this one
// between the word and the load; where two blocks store to one place, so have they. A fence counts
// for its thread, and for what a barrier has ordered before it, as fences of CUDA do. A store of
// the value that is there already is not seen, and changes nothing.
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

/// When a thread was at a place: barriers it had passed, of the block and of its warp.
struct moment {
  int thread = -1;  // -1: nobody
  std::uint32_t block_barriers = 0, warp_barriers = 0;
};
/// Whether whatever happened at `before` is known to the thread at `now`.
inline bool ordered(const moment& before, const moment& now) {
  return before.thread < 0 || before.thread == now.thread ||
         before.block_barriers < now.block_barriers ||
         (before.thread / warp_size == now.thread / warp_size &&
          before.warp_barriers < now.warp_barriers);
}

/// The bytes of a launch that are weakly ordered, or none.
class weak_memory {
 public:
  /// Of a block.
  struct copy {
    std::vector<std::byte> bytes;
    std::vector<moment> stored;  // of every byte: by whom, where it has not arrived; else nobody
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
  /// Takes what the thread has stored since its block's copy was put in place.
  void take_stores(copy& c, const moment& now) {
    if (std::memcmp(position_, c.bytes.data(), c.bytes.size()) == 0) return;
    for (std::size_t i = 0; i < c.bytes.size(); ++i)
      if (position_[i] != c.bytes[i]) c.bytes[i] = position_[i], c.stored[i] = now;
    c.any_stored = true;
  }
  /// What the thread knows to be stored arrives, and all that has arrived is seen by its block.
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
  /// A few stores arrive, of any block.
  void arrive_by_chance(std::mt19937_64& random) {
    if (copies_.empty()) return;
    copy& c = copies_[random() % copies_.size()];
    constexpr std::size_t together = 8;
    const std::size_t first = random() % arrived_.size() / together * together;
    for (std::size_t i = first; i < std::min(first + together, arrived_.size()); ++i) arrive(c, i);
  }
  /// The kernel is done.
  void arrive_all() {
    if (empty()) return;
    for (copy& c : copies_)
      for (std::size_t i = 0; c.any_stored && i < c.bytes.size(); ++i) arrive(c, i);
    std::memcpy(position_, arrived_.data(), arrived_.size());
    shown_ = nullptr;
  }

  /// Where an address among the bytes has what has arrived; else the address itself. For words,
  /// which are stored and loaded as such alone.
  template <class T>
  T* arrived(T* p) {
    return contains(p) ? reinterpret_cast<T*>(arrived_.data() + offset_of(p)) : p;
  }
  /// Adds to a number among the bytes; it has arrived at once, and the block sees it.
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
  std::deque<copy> copies_;  // of all blocks: what has not arrived outlives its block
  const copy* shown_ = nullptr;
};

}  // namespace cuda_on_host
