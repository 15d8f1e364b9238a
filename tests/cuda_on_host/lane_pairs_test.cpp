// SPDX-License-Identifier: BSD-3-Clause
// Tests of 16-bit sequences that a thread processes in pairs: they have the bits of single
// sequences.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"

namespace {

using namespace scanrec;
using cuda_on_host::stream;

/// The fewest sequences that are processed in pairs: two batch rows of `fewest_pairs` channels.
constexpr std::int64_t rows = 2, channels = cuda::detail::fewest_pairs;

/// Arrays that begin at a multiple of 64 bytes, or one element after it, where pairs are
/// impossible.
template <class T>
class arrays {
 public:
  arrays(std::int64_t steps, bool aligned)
      : shape{.batch = rows, .time = steps, .channel = channels}, first_(aligned ? 0 : 1) {}
  /// A new array of random numbers between -1/2 and 1/2.
  sequence_view<T> next() {
    const auto count = static_cast<std::size_t>(shape.batch * shape.time * shape.channel);
    auto& made = memory_.emplace_back((count + first_) / line::count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      seed_ = seed_ * 1664525u + 1013904223u;
      made[0].elements[first_ + i] = T(static_cast<float>(seed_ >> 8) / 16777216.0f - 0.5f);
    }
    return {made[0].elements + first_, shape};
  }
  /// The bits of all arrays.
  [[nodiscard]] std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> all;
    for (const auto& one : memory_) {
      const auto* const first = reinterpret_cast<const std::uint16_t*>(one.data());
      all.insert(all.end(), first + first_, first + first_ + (one.size() - 1) * line::count);
    }
    return all;
  }
  extents shape;

 private:
  struct alignas(64) line {
    static constexpr std::size_t count = 64 / sizeof(T);
    T elements[count];
  };
  std::size_t first_;
  std::uint32_t seed_ = 11;
  std::vector<std::vector<line>> memory_;
};

/// Runs a call on arrays with pairs and without, and compares all bits.
template <class T, class Run>
void compare(std::int64_t steps, Run run) {
  std::vector<std::uint16_t> bits[2];
  std::vector<float> boundary_states[2];
  for (const bool aligned : {false, true}) {
    arrays<T> a(steps, aligned);
    auto& edge = boundary_states[aligned];
    edge.assign(static_cast<std::size_t>(rows * channels), 0.25f);
    const std::vector<float> start(edge.size(), 0.5f);
    const extents one{.batch = rows, .time = 1, .channel = channels};
    const cuda::launch_plan plan =
        run(a, state_view<const float>(start.data(), one), state_view<float>(edge.data(), one));
    CHECK(plan.tile_channels == (aligned ? 2 : 1));
    CHECK(plan.blocks * plan.threads * plan.tile_channels == rows * channels);
    bits[aligned] = a.bits();
  }
  CHECK((bits[0] == bits[1]));
  CHECK((boundary_states[0] == boundary_states[1]));
}

template <class T>
void check(std::int64_t steps, direction order) {
  stream s;
  const cuda::lanes on{.stream = &s};
  INFO("linear_scan, " << steps << " steps, reverse " << (order == direction::reverse));
  compare<T>(steps,
             [&](arrays<T>& a, const state_view<const float>& start, const state_view<float>& end) {
               const auto gate = a.next(), input = a.next(), state = a.next();
               linear_scan(on, gate, input, state,
                           {.order = order, .initial_state = start, .final_state = end});
               return describe(on, linear_scan_problem(gate, input, state));
             });
  compare<T>(steps,
             [&](arrays<T>& a, const state_view<const float>& start, const state_view<float>& end) {
               const auto gate = a.next(), state = a.next(), state_grad = a.next();
               const scan_gradients<T, T> gradients{
                   .gate_grad = a.next(), .input_grad = a.next(), .initial_grad = end};
               linear_scan_vjp(on, gate, state, state_grad, gradients,
                               {.order = order, .initial_state = start, .final_grad = start});
               return describe(on, linear_scan_vjp_problem(gate, state, state_grad, gradients));
             });
}

TEST_CASE("pairs of 16-bit sequences have the bits of single sequences",
          "[determinism][cuda_lanes][forward][vjp][tails]") {
  for (const direction order : {direction::forward, direction::reverse}) {
    for (const std::int64_t steps : {1, 2, 15, 16, 17, 33, 66}) check<bfloat16>(steps, order);
    check<float16>(35, order);
  }
}

TEST_CASE("sequences are paired only if one four-byte access reads both", "[cuda_lanes][layouts]") {
  const auto channels_of_thread = [](const extents& shape, const strides& apart,
                                     std::int64_t first_byte = 64) {
    const auto view = [&](std::int64_t from) {
      return sequence_view<bfloat16>(reinterpret_cast<bfloat16*>(from), shape, apart);
    };
    return describe(
               cuda::lanes{.stream = nullptr},
               linear_scan_problem(view(first_byte), view(first_byte + (std::int64_t{1} << 40)),
                                   view(first_byte + (std::int64_t{1} << 41))))
        .tile_channels;
  };
  const extents shape{.batch = 2, .time = 100, .channel = channels};
  CHECK(channels_of_thread(shape, channels_last(shape)) == 2);
  CHECK(channels_of_thread(shape, channels_last(shape), 66) == 1);
  CHECK(channels_of_thread(shape, {channels * 101, channels + 1, 1}) == 1);
  CHECK(channels_of_thread(shape, {channels * 100 + 1, channels, 1}) == 1);
  CHECK(channels_of_thread(shape, time_contiguous(shape)) == 1);
  const extents odd{.batch = 2, .time = 100, .channel = channels + 1};
  CHECK(channels_of_thread(odd, channels_last(odd)) == 1);
  const extents few{.batch = 1, .time = 100, .channel = channels};
  CHECK(channels_of_thread(few, channels_last(few)) == 1);
}

}  // namespace
