// SPDX-License-Identifier: BSD-3-Clause
// An arena, which computes the size of a workspace or hands out its pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Hands out pieces of one block of memory. Without memory, take() returns null and only counts the
/// bytes. For an empty piece it always returns null.
class arena {
 public:
  explicit arena(void* memory = nullptr, std::int64_t alignment = least_alignment)
      : memory_(static_cast<std::byte*>(memory)), alignment_(alignment) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* const position = memory_ == nullptr || count == 0 ? nullptr : memory_ + bytes_;
    const std::int64_t bytes = clipped_product(count, sizeof(T), most_bytes);
    bytes_ = std::min(bytes_ + (bytes + alignment_ - 1) / alignment_ * alignment_, most_bytes);
    return reinterpret_cast<T*>(position);
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::int64_t alignment_, bytes_ = 0;
};

}  // namespace scanrec::detail::inline SCANREC_ABI
