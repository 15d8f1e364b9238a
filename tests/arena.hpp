// SPDX-License-Identifier: BSD-3-Clause
// Many short-lived blocks of one piece of memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <stdexcept>

namespace tested {

/// Hands out blocks one after the other, and from the beginning again once all are released.
/// Blocks may be released in any order, and by any thread.
class arena {
 public:
  static constexpr std::size_t alignment = 256;

  /// Takes memory that is aligned to `alignment`. Nothing fits if the pointer is null.
  arena(std::byte* first, std::size_t bytes) : first_(first), bytes_(first ? bytes : 0) {}

  /// A block of so many bytes, or null where they do not fit.
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
