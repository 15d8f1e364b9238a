// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of one call: a small buffer on the stack, or one aligned allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <scanrec/detail/config.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Uninitialised bytes, aligned to 64 or a larger power of two. Small calls (a streaming step)
/// never allocate.
class scratch {
 public:
  static constexpr std::int64_t on_stack = 8 * 1024;

  explicit scratch(std::int64_t bytes, std::int64_t alignment = least_alignment)
      : alignment_(static_cast<std::align_val_t>(alignment)) {
    const std::uintptr_t before = -reinterpret_cast<std::uintptr_t>(stack_);
    const auto gap = static_cast<std::int64_t>(before & static_cast<std::uintptr_t>(alignment - 1));
    if (bytes <= on_stack - gap) {
      place_ = stack_ + gap;
      return;
    }
    if (bytes >= most_bytes) throw std::bad_alloc();
    place_ = static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment_));
    on_heap_ = true;
  }
  ~scratch() {
    if (on_heap_) ::operator delete(place_, alignment_);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  [[nodiscard]] std::byte* data() { return place_; }

 private:
  std::align_val_t alignment_;
  std::byte* place_ = nullptr;
  bool on_heap_ = false;
  alignas(64) std::byte stack_[on_stack];
};

}  // namespace scanrec::detail::inline SCANREC_ABI
