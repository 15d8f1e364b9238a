// SPDX-License-Identifier: BSD-3-Clause
// Tests of look_back with so many sequences that a block runs all tiles of its channels in turn.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"

namespace {

using namespace scanrec;
using cuda_on_host::scheduled;
using cuda_on_host::stream;

/// The arrays of a forward scan and its adjoint. Floating-point numbers are small integers, so sums
/// are exact. Integers are exact modulo 2^32.
template <class T>
struct arrays {
  extents shape;
  scanrec::strides strides;
  std::int64_t first = 0;  // first element of each array
  std::vector<T> gate, input, state, grad, gate_grad, input_grad, initial, final_state,
      initial_grad;

  arrays(const extents& s, const scanrec::strides& apart) : shape(s), strides(apart) {
    const auto n = static_cast<std::size_t>(s.batch * s.time * s.channel);
    std::uint32_t seed = 5;
    const auto next = [&](std::uint32_t range) {
      seed = seed * 1664525u + 1013904223u;
      return static_cast<T>((seed >> 8) % range);
    };
    for (auto* all : {&state, &gate_grad, &input_grad}) all->resize(n);
    for (auto* all : {&gate, &input, &grad}) all->resize(n);
    const bool exact = std::is_integral_v<T>;
    for (T& x : gate) x = exact ? next(1u << 24) : next(2);
    for (T& x : input) x = exact ? next(1u << 24) : next(9) - T(4);
    for (T& x : grad) x = exact ? next(1u << 24) : next(9) - T(4);
    initial.assign(static_cast<std::size_t>(s.batch * s.channel), T(3));
    final_state = initial_grad = initial;
  }
  sequence_view<T> view(std::vector<T>& v) { return {v.data() + first, shape, strides}; }
  T& at(std::vector<T>& v, std::int64_t b, std::int64_t t, std::int64_t c) {
    return v[static_cast<std::size_t>(b * strides.batch + t * strides.time + c * strides.channel)];
  }
  template <class Backend>
  void run(const Backend& on, direction order) {
    const extents one{.batch = shape.batch, .time = 1, .channel = shape.channel};
    const auto edge = [&](std::vector<T>& v) { return state_view<T>(v.data(), one); };
    linear_scan(on, view(gate), view(input), view(state),
                {.order = order, .initial_state = edge(initial), .final_state = edge(final_state)});
    linear_scan_vjp(on, view(gate), view(state), view(grad),
                    {.gate_grad = view(gate_grad),
                     .input_grad = view(input_grad),
                     .initial_grad = edge(initial_grad)},
                    {.order = order, .initial_state = edge(initial), .final_grad = edge(initial)});
  }
};

/// Whether all numbers are equal or NaN in both.
template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !(x[i] != x[i] && y[i] != y[i])) return false;
  return x.size() == y.size();
}
template <class T>
bool operator==(const arrays<T>& x, const arrays<T>& y) {
  return same(x.state, y.state) && same(x.gate_grad, y.gate_grad) &&
         same(x.input_grad, y.input_grad) && same(x.final_state, y.final_state) &&
         same(x.initial_grad, y.initial_grad);
}

/// Compares look_back with `sequential`. Segments of 2 steps make small tiles. If `segment_steps`
/// is 0, segments have their full size. Complete tiles of arrays contiguous along time then go
/// through shared memory, where each thread has a row of its steps (whole_rows.cuh).
template <class T>
void check(arrays<T> given, direction order, int segment_steps = 2) {
  arrays<T> wanted = given;
  wanted.run(sequential{}, order);
  stream s;
  cuda::look_back on{.stream = &s, .segment_steps = segment_steps};
  auto posed =
      linear_scan_problem(given.view(given.gate), given.view(given.input), given.view(given.state));
  const cuda::launch_plan plan = describe(on, posed);
  INFO("T " << given.shape.time << ", channels of a tile " << plan.tile_channels << ", tiles "
            << plan.tiles << ", reverse " << (order == direction::reverse));
  CHECK(plan.blocks >= 512);
  CHECK(plan.blocks * plan.tile_channels < 2 * given.shape.batch * given.shape.channel);
  std::vector<double> room(1 << 20);
  on.workspace = {room.data(), static_cast<std::int64_t>(room.size() * sizeof(double))};
  const scheduled as({.seed = static_cast<std::uint64_t>(given.shape.time)});
  given.run(on, order);
  CHECK((given == wanted));
  CHECK((room == std::vector<double>(room.size())));  // no tickets and no messages
}

/// Shapes with at least 512 blocks of channels, so that tiles run in turn. In `along`, a tile has
/// up to 256 steps of one sequence, or several short sequences. In `across`, it has 16 steps of 16
/// channels.
constexpr extents along(std::int64_t steps) {
  return {.batch = 2, .time = steps, .channel = steps > 128 ? 260 : 1040};
}
constexpr extents across(std::int64_t steps) {
  return {.batch = 3, .time = steps, .channel = 2740};
}

template <class T>
void check_all(std::int64_t steps) {
  for (const direction order : {direction::forward, direction::reverse}) {
    if (steps > 32) check(arrays<T>(along(steps), time_contiguous(along(steps))), order);
    check(arrays<T>(across(steps), channels_last(across(steps))), order);
  }
}

TEST_CASE("tiles that a block runs in turn are exact",
          "[exact][cuda_look_back][forward][vjp][order][initial_state][final_grad][tails]") {
  for (const std::int64_t steps : {1, 15, 16, 17, 70}) check_all<std::uint32_t>(steps);
  for (const std::int64_t steps : {255, 256, 257, 600})
    check(arrays<std::uint32_t>(along(steps), time_contiguous(along(steps))), direction::forward);
  check_all<float>(50);
}

/// Shifts every array by some elements, so that it is not aligned to 16 bytes.
template <class T>
arrays<T> moved(arrays<T> given, std::int64_t by) {
  given.first = by;
  for (auto* all :
       {&given.gate, &given.input, &given.grad, &given.state, &given.gate_grad, &given.input_grad})
    all->insert(all->begin(), static_cast<std::size_t>(by), T(7));
  return given;
}

// Tiles have 2048 steps of doubles in the forward scan and 1024 in the adjoint.
TEST_CASE("full-size tiles that are run in turn and staged in shared memory are exact",
          "[exact][cuda_look_back][forward][vjp][order][tails][strides]") {
  const auto given = [](std::int64_t steps) {
    const extents shape{.batch = 2, .time = steps, .channel = 256};
    return arrays<double>(shape, time_contiguous(shape));
  };
  check(given(4100), direction::forward, 0);
  check(given(4100), direction::reverse, 0);
  check(moved(given(2048), 1), direction::forward, 0);
  check(given(2049), direction::reverse, 0);

  // Tiles have 4096 floats, and 2048 in the adjoint. With an odd number of steps, most sequences do
  // not start at an aligned address.
  const extents odd{.batch = 2, .time = 4101, .channel = 256};
  check(arrays<float>(odd, time_contiguous(odd)), direction::reverse, 0);
}

TEST_CASE("blocks run tiles in turn only for many sequences without resets or sums",
          "[cuda_look_back][forward][vjp][resets][broadcast]") {
  const auto blocks = [](const extents& shape, bool resets, bool sums) {
    arrays<float> a(shape, time_contiguous(shape));
    const std::vector<std::uint8_t> reset_mask(static_cast<std::size_t>(shape.batch * shape.time));
    extents one = shape;
    one.channel = 1;
    const auto with_resets =
        resets ? sequence_view<const bool>(reinterpret_cast<const bool*>(reset_mask.data()), one)
               : sequence_view<const bool>();
    const sequence_view<float> decay(a.gate_grad.data(), shape,
                                     sums ? strides{0, 0, 1, 0} : time_contiguous(shape));
    return describe(
               cuda::look_back{.stream = nullptr, .segment_steps = 2},
               linear_scan_vjp_problem(a.view(a.gate), a.view(a.state), a.view(a.grad),
                                       {.gate_grad = decay, .input_grad = a.view(a.input_grad)},
                                       {.resets = with_resets}))
        .blocks;
  };
  // 520 sequences of four tiles each.
  CHECK(blocks(along(1000), false, false) == 520);
  CHECK(blocks(along(1000), true, false) == 4 * 520);
  CHECK(blocks(along(1000), false, true) == 4 * 520);
  CHECK(blocks({.batch = 2, .time = 1000, .channel = 255}, false, false) == 4 * 510);
}

TEST_CASE("an infinity stays in its channel if tiles run in turn",
          "[overflow][cuda_look_back][forward][vjp]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::int64_t steps = 600;
  arrays<float> a(along(steps), time_contiguous(along(steps)));
  a.at(a.input, 0, 300, 7) = infinity;
  a.at(a.grad, 1, 3, 9) = -infinity;
  for (std::int64_t t = 0; t < steps; ++t) {  // overflows after 128 steps
    a.at(a.gate, 1, t, 11) = 2;
    a.at(a.input, 1, t, 11) = 0;
    a.at(a.grad, 1, t, 11) = 0;
  }
  check(a, direction::forward);
  check(a, direction::reverse);

  const extents shape{.batch = 2, .time = 2048, .channel = 256};
  arrays<double> in_rows(shape, time_contiguous(shape));
  in_rows.at(in_rows.input, 0, 300, 7) = infinity;
  in_rows.at(in_rows.grad, 1, 3, 9) = -infinity;
  check(in_rows, direction::forward, 0);
}

}  // namespace
