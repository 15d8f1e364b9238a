// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of one call: a small buffer on the stack, or one aligned allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <scanrec/config.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Uninitialised bytes, 64-byte aligned. Small calls (a streaming step) never allocate.
class scratch {
 public:
  static constexpr std::int64_t on_stack = 8 * 1024;
  static constexpr std::align_val_t alignment{64};

  explicit scratch(std::int64_t bytes)
      : heap_(bytes > on_stack ? static_cast<std::byte*>(
                                     ::operator new(static_cast<std::size_t>(bytes), alignment))
                               : nullptr) {}
  ~scratch() {
    if (heap_) ::operator delete(heap_, alignment);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  [[nodiscard]] std::byte* data() { return heap_ ? heap_ : stack_; }

 private:
  std::byte* heap_;
  alignas(64) std::byte stack_[on_stack];
};

}  // namespace scanrec::detail::inline SCANREC_ABI
