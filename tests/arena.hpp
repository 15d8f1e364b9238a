// SPDX-License-Identifier: BSD-3-Clause
// An allocator for many short-lived blocks from one piece of memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <stdexcept>

namespace tested {

/// Hands out consecutive blocks. Starts again at the beginning once all blocks are released. Blocks
/// may be released in any order, and by any thread.
class arena {
 public:
  static constexpr std::size_t alignment = 256;

  /// `first` must be aligned to `alignment`. If it is null, no block fits.
  arena(std::byte* first, std::size_t bytes) : first_(first), bytes_(first ? bytes : 0) {}

  /// Returns a block of `bytes` bytes, or null if they do not fit.
  std::byte* allocate(std::size_t bytes) {
    const std::scoped_lock lock(one_at_a_time_);
    const std::size_t padded = (bytes + alignment - 1) / alignment * alignment;
    if (padded < bytes || padded > bytes_ - used_) return nullptr;
    std::byte* const block = first_ + used_;
    used_ += padded;
    ++blocks_;
    return block;
  }
  void release() {
    const std::scoped_lock lock(one_at_a_time_);
    if (blocks_ == 0) throw std::logic_error("arena: a block was released twice");
    if (--blocks_ == 0) used_ = 0;
  }

 private:
  std::mutex one_at_a_time_;
  std::byte* first_;
  std::size_t bytes_, used_ = 0, blocks_ = 0;
};

}  // namespace tested
