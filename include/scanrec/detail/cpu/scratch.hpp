// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of one call: the caller's, a small buffer on the stack, or one aligned allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <scanrec/detail/config.hpp>
#include <scanrec/detail/text.hpp>
#include <scanrec/error.hpp>
#include <scanrec/problem.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Uninitialised bytes, aligned to 64 or a larger power of two. Small calls (a streaming step) do
/// not allocate.
class scratch {
 public:
  static constexpr std::int64_t on_stack = 8 * 1024;

  /// `given` is caller-provided memory that is used unless its pointer is null.
  scratch(const problem& p, std::int64_t bytes, std::int64_t alignment,
          const std::span<std::byte>& given)
      : alignment_(static_cast<std::align_val_t>(alignment)) {
    if (given.data() != nullptr) {
      check(p, bytes, alignment, given);
      position_ = given.data();
      return;
    }
    const std::uintptr_t before = -reinterpret_cast<std::uintptr_t>(stack_);
    const auto gap = static_cast<std::int64_t>(before & static_cast<std::uintptr_t>(alignment - 1));
    if (bytes <= on_stack - gap) {
      position_ = stack_ + gap;
      return;
    }
    if (bytes >= most_bytes) throw std::bad_alloc();
    position_ =
        static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment_));
    on_heap_ = true;
  }
  ~scratch() {
    if (on_heap_) ::operator delete(position_, alignment_);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  [[nodiscard]] std::byte* data() { return position_; }

  /// Throws if the caller's memory is too small or not aligned.
  static void check(const problem& p, std::int64_t bytes, std::int64_t alignment,
                    const std::span<std::byte>& given) {
    const auto size = static_cast<std::int64_t>(given.size());
    if (size < bytes)
      refuse(p.call, "workspace",
             text("at least ", bytes, " bytes, the value of workspace_bytes()"),
             text(size, " bytes"));
    const auto pointer = reinterpret_cast<std::uintptr_t>(given.data());
    if (bytes > 0 && pointer % static_cast<std::uintptr_t>(alignment) != 0)
      refuse(p.call, "workspace", text("memory aligned to ", alignment, " bytes"),
             text("an address ",
                  static_cast<std::int64_t>(pointer % static_cast<std::uintptr_t>(alignment)),
                  " bytes past a multiple"));
  }

 private:
  std::align_val_t alignment_;
  std::byte* position_ = nullptr;
  bool on_heap_ = false;
  alignas(64) std::byte stack_[on_stack];
};

}  // namespace scanrec::detail::inline SCANREC_ABI
