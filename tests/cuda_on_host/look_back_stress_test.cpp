// SPDX-License-Identifier: BSD-3-Clause
// Stress tests of the protocol between blocks of cuda::look_back on the emulator: up to 192
// concurrent tiles in adversarial orders.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "emulator.hpp"
#include "look_back_stress.hpp"

namespace {

using cuda_on_host::favour;
using cuda_on_host::schedule;
using cuda_on_host::scheduled;

template <class T>
class emulated {
 public:
  using element = T;
  using array = std::vector<T>;

  cuda_on_host::stream* stream() { return &stream_; }
  void* workspace(std::int64_t bytes) {
    workspace_.assign(static_cast<std::size_t>((bytes + 7) / 8), 0.0);
    return workspace_.data();
  }
  static void multiply(array& to, const array& from, T factor) {
    std::transform(to.begin(), to.end(), from.begin(), to.begin(),
                   [=](T, T x) { return x * factor; });
  }
  void compare(const array& got, const array& want, T factor, std::size_t kind, int call) {
    if (found_.size() <= kind) found_.resize(kind + 1);
    for (std::size_t i = 0; i < want.size(); ++i)
      if (got[i] != want[i] * factor) {
        ++found_[kind].differences;
        found_[kind].first =
            std::min<unsigned long long>(found_[kind].first, (std::uint64_t(call) << 40) + i);
      }
  }
  /// Cycles through three schedules: all blocks at once; 100 blocks, newest first; 70 blocks,
  /// newest first. In the first and the last, one word of a message arrives in 40 turns on average
  /// instead of one in 4.
  static scheduled beside(int call) {
    const auto seed = static_cast<std::uint64_t>(call + 1);
    switch (call % 3) {
      case 0:
        return scheduled(
            {.seed = seed, .resident_blocks = 300, .turns_per_word = 40, .turns_per_poll = 8});
      case 1:
        return scheduled({.seed = seed, .resident_blocks = 100, .first = favour::newest});
      default:
        return scheduled({.seed = seed,
                          .resident_blocks = 70,
                          .first = favour::newest,
                          .turns_per_word = 40,
                          .turns_per_poll = 3});
    }
  }
  std::vector<tested::stress_finding> findings(std::size_t kinds) {
    std::vector<tested::stress_finding> found = std::exchange(found_, {});
    found.resize(kinds);
    return found;
  }

 private:
  cuda_on_host::stream stream_;
  std::vector<double> workspace_;
  std::vector<tested::stress_finding> found_;
};

template <class T, bool Rounded = false>
tested::look_back_stress<emulated<T>>& stress() {
  static emulated<T> machine;
  static tested::look_back_stress<emulated<T>> all(machine, {.lone_steps = 64 * 128 + 17,
                                                             .wide_steps = 64 * 16 + 5,
                                                             .row_steps = 64 * 16 - 3,
                                                             .rounds = 2,
                                                             .segment_steps = 1,
                                                             .least_blocks = 64,
                                                             .rounded = Rounded});
  return all;
}

TEST_CASE("uint32: different problems on one kept workspace equal `sequential` bit for bit",
          "[protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<std::uint32_t>().in_turn();
}

TEST_CASE("uint32: one call repeated on a kept workspace equals `sequential` bit for bit",
          "[protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<std::uint32_t>().one_after_the_other();
}

TEST_CASE("double: different problems on one kept workspace equal `sequential` bit for bit",
          "[protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double>().in_turn();
}

TEST_CASE("double: one call repeated on a kept workspace equals `sequential` bit for bit",
          "[protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double>().one_after_the_other();
}

TEST_CASE("double: rounded results have the same bits in every call",
          "[protocol][workspace][determinism][cuda_look_back][forward][vjp]") {
  stress<double, true>().in_turn();
}

}  // namespace
