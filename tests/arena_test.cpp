// SPDX-License-Identifier: BSD-3-Clause
// Tests of the arena from which tests allocate device memory.
#include "arena.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "catch.hpp"

namespace {

using tested::arena;

struct aligned_memory {
  std::vector<std::byte> bytes;
  explicit aligned_memory(std::size_t n) : bytes(n + arena::alignment) {}
  std::byte* first() {
    const auto past = reinterpret_cast<std::uintptr_t>(bytes.data()) % arena::alignment;
    return bytes.data() + (arena::alignment - past) % arena::alignment;
  }
};

TEST_CASE("blocks of an arena are aligned and disjoint", "[arena]") {
  aligned_memory memory(4096);
  arena blocks(memory.first(), 4096);
  std::byte* const a = blocks.allocate(1);
  std::byte* const b = blocks.allocate(257);
  std::byte* const c = blocks.allocate(0);
  CHECK(a == memory.first());
  CHECK(b == a + 256);
  CHECK(c == b + 512);
}

TEST_CASE("an arena returns null for blocks that do not fit and stays usable", "[arena]") {
  aligned_memory memory(1024);
  arena blocks(memory.first(), 1024), none(nullptr, 1024);
  CHECK(blocks.allocate(1025) == nullptr);
  CHECK(blocks.allocate(std::numeric_limits<std::size_t>::max()) == nullptr);
  CHECK(blocks.allocate(1024) != nullptr);
  CHECK(blocks.allocate(1) == nullptr);
  CHECK(none.allocate(1) == nullptr);
}

TEST_CASE("an arena starts again at its beginning once all blocks are released", "[arena]") {
  aligned_memory memory(1024);
  arena blocks(memory.first(), 1024);
  std::byte* const a = blocks.allocate(256);
  static_cast<void>(blocks.allocate(256));
  blocks.release();
  CHECK(blocks.allocate(256) == a + 512);
  blocks.release(), blocks.release();
  CHECK(blocks.allocate(256) == a);
  blocks.release();
  CHECK_THROWS_AS(blocks.release(), std::logic_error);
}

}  // namespace
