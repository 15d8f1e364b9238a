// SPDX-License-Identifier: BSD-3-Clause
// A pool of stacks for the emulator's threads.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <memory>
#include <vector>

namespace cuda_on_host {

namespace context = boost::context;

/// Stacks of fibers, which are reused.
class stack_pool {
 public:
  static constexpr std::size_t bytes = 128 * 1024;
  std::byte* take() {
    if (free_.empty()) return last_ = new std::byte[bytes];
    last_ = free_.back().release();
    free_.pop_back();
    return last_;
  }
  /// The stack that was taken last.
  [[nodiscard]] std::byte* last() const { return last_; }
  void give(std::byte* stack) { free_.emplace_back(stack); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> free_;
  std::byte* last_ = nullptr;
};
inline stack_pool& stacks() {
  thread_local stack_pool pool;
  return pool;
}
struct pooled_stack {
  context::stack_context allocate() {
    context::stack_context stack;
    stack.size = stack_pool::bytes;
    stack.sp = stacks().take() + stack.size;
    return stack;
  }
  void deallocate(context::stack_context& stack) {
    stacks().give(static_cast<std::byte*>(stack.sp) - stack.size);
  }
};

}  // namespace cuda_on_host
