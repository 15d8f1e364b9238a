// SPDX-License-Identifier: BSD-3-Clause
// Tests of rings, the buffers in shared memory of lane_ring.cuh: results have the same
// bits as without rings. Also tests gradients that warps sum over channels, and the ring that is
// chosen for a problem.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "emulator.hpp"

namespace {

using namespace scanrec;
using cuda_on_host::scheduled;
using cuda_on_host::stream;

/// The arrays of a forward scan and its adjoint, which begin `first` elements after a multiple of
/// 64 bytes.
template <class T>
struct arrays {
  struct alignas(64) line {
    T elements[64 / sizeof(T)];
  };
  extents shape;
  scanrec::strides strides;
  std::size_t offset;
  std::vector<std::vector<line>> all;
  std::vector<char> reset_mask;
  using value = compute_t<T>;
  std::vector<value> initial, final_state, initial_grad;
  std::vector<T> decay_grad;

  arrays(const extents& s, const scanrec::strides& steps_apart, std::size_t first)
      : shape(s), strides(steps_apart), offset(first), all(6) {
    const std::size_t n = static_cast<std::size_t>(s.batch * strides.batch + s.time * strides.time +
                                                   s.channel * strides.channel) +
                          offset;
    std::uint32_t seed = 11;
    const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    for (auto& array : all) {
      array.resize(n * sizeof(T) / sizeof(line) + 1);
      T* const first = array[0].elements;
      for (std::size_t i = 0; i < array.size() * sizeof(line) / sizeof(T); ++i) {
        T& x = first[i];
        if constexpr (std::is_same_v<T, std::uint32_t>)
          x = next();
        else
          x = T(static_cast<float>(next()) / 16777216.0f - 0.5f);
      }
    }
    reset_mask.resize(static_cast<std::size_t>(s.batch * s.time * s.channel));
    for (char& m : reset_mask) m = next() % 16 == 0;
    initial.assign(static_cast<std::size_t>(s.batch * s.channel), value(1));
    final_state = initial_grad = initial;
    decay_grad.resize(static_cast<std::size_t>(s.channel));
  }
  sequence_view<T> view(std::size_t i) { return {all[i][0].elements + offset, shape, strides}; }
  template <class Backend>
  void run(const Backend& on, direction order, bool resets) {
    const sequence_view<const bool> with_resets =
        resets ? sequence_view<const bool>(reinterpret_cast<const bool*>(reset_mask.data()), shape)
               : sequence_view<const bool>();
    const extents edge{.batch = shape.batch, .time = 1, .channel = shape.channel};
    const state_view<const value> start(initial.data(), edge);
    const auto gate = view(0), input = view(1), state = view(2), grad = view(3);
    linear_scan(on, gate, input, state,
                {.order = order,
                 .initial_state = start,
                 .final_state = state_view<value>(final_state.data(), edge),
                 .resets = with_resets});
    linear_scan_vjp(on, gate, state, grad,
                    {.gate_grad = view(4),
                     .input_grad = view(5),
                     .initial_grad = state_view<value>(initial_grad.data(), edge)},
                    {.order = order, .initial_state = start, .resets = with_resets});
    // input_grad overwrites the cotangent. The gate is constant in time, so its gradient is a sum.
    const scanrec::strides same{0, 0, 1, 0};
    const sequence_view<T> decay(all[0][0].elements, shape, same);
    linear_scan_vjp(
        on, decay, state, grad,
        {.gate_grad = sequence_view<T>(decay_grad.data(), shape, same), .input_grad = grad},
        {.order = order, .initial_state = start, .resets = with_resets});
  }
  bool operator==(const arrays& o) const {
    const auto same = [](const auto& x, const auto& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
    };
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!same(all[i], o.all[i])) return false;
    return same(final_state, o.final_state) && same(initial_grad, o.initial_grad) &&
           same(decay_grad, o.decay_grad);
  }
};

/// Checks that results are the same whether loaded steps wait in a ring or in registers
/// (steps_ahead = -1). Other tests compare the latter with `sequential`.
template <class T>
void check(const extents& shape, const scanrec::strides& strides, std::size_t offset) {
  stream s;
  std::vector<double> room(1 << 16);
  const cuda::workspace memory{room.data(), static_cast<std::int64_t>(room.size() * 8)};
  for (const direction order : {direction::forward, direction::reverse})
    for (const bool resets : {false, true}) {
      const arrays<T> given(shape, strides, offset);
      arrays<T> wanted = given;
      wanted.run(cuda::lanes{.stream = &s, .workspace = memory, .steps_ahead = -1}, order, resets);
      for (const int ahead : {1, 10, 12, 24, 300}) {
        arrays<T> got = given;
        const scheduled as({.seed = static_cast<std::uint64_t>(ahead)});
        got.run(cuda::lanes{.stream = &s, .workspace = memory, .steps_ahead = ahead}, order,
                resets);
        INFO("steps ahead " << ahead << ", T " << shape.time << ", C " << shape.channel
                            << ", offset " << offset << ", resets " << resets);
        CHECK((got == wanted));
      }
    }
}

TEST_CASE("a ring gives the same bits as registers",
          "[determinism][cuda_lanes][forward][vjp][resets][tails]") {
  const auto each = []<class T>(T) {
    for (const std::int64_t T_ : {1, 7, 33, 130})
      for (const std::int64_t C : {1, 31, 48}) {
        const extents shape{.batch = 2, .time = T_, .channel = C};
        check<T>(shape, channels_last(shape), 0);  // arrival::by_chunk if rows are aligned
      }
    const extents shape{.batch = 2, .time = 37, .channel = 40};
    check<T>(shape, channels_last(shape), 1);    // by_element, or read_in_place
    check<T>(shape, time_contiguous(shape), 0);  // by_element, or read_in_place
    check<T>(shape, {.batch = 40 * 48 * 2, .time = 48, .channel = 1, .group = 0}, 0);
    check<T>(shape, {.batch = 40 * 100, .time = 100, .channel = 2, .group = 0}, 0);
  };
  each(float{});
  each(std::uint32_t{});
  each(bfloat16{});
  each(std::complex<double>{});
}

TEST_CASE("warps sum the gradients of gates that channels share",
          "[cuda_lanes][vjp][broadcast][tails]") {
  // Heads of 70 channels. Each head has one gate per step, either for each batch row or for all of
  // them.
  const extents shape{.batch = 3, .time = 77, .channel = 70, .group = 2};
  const auto n = static_cast<std::size_t>(3 * 77 * 70 * 2);
  stream s;
  struct options {
    direction order;
    bool resets, updates;
  };
  const auto check_shared = [&]<class T>(T, const strides& gate_strides, int ahead,
                                         const options& with) {
    const std::size_t steps = 3 * 77 * 2;
    std::vector<T> gate(steps), state(n), grad(n), want(steps, T(7)),
        got = want, want_inputs = want, got_inputs = want;
    std::uint32_t seed = 3;
    for (auto* array : {&gate, &state, &grad})
      for (T& x : *array) x = T(static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 30));
    const auto reset_mask = std::make_unique<bool[]>(n);
    for (std::size_t i = 0; i < n; ++i)
      reset_mask[i] = (seed = seed * 1664525u + 1013904223u) >> 29 == 0;
    const sequence_view<const bool> resets(reset_mask.get(), shape);
    const auto call = [&](std::vector<T>& sums, std::vector<T>& inputs, auto then) {
      // Both gradients are sums over channels.
      then(sequence_view<const T>(gate.data(), shape, gate_strides),
           sequence_view<const T>(state.data(), shape), sequence_view<const T>(grad.data(), shape),
           scan_gradients<T>{.gate_grad = sequence_view<T>(sums.data(), shape, gate_strides),
                             .input_grad = sequence_view<T>(inputs.data(), shape, gate_strides),
                             .update = with.updates ? update::accumulate : update::overwrite},
           vjp_options<compute_t<T>>{.order = with.order,
                                     .resets = with.resets ? resets : sequence_view<const bool>()});
    };
    call(want, want_inputs, [&](const auto&... a) { linear_scan_vjp(sequential{}, a...); });
    cuda::lanes on{.stream = &s, .steps_ahead = ahead};
    call(got, got_inputs, [&](const auto&... a) {
      const auto posed = linear_scan_vjp_problem(a...);
      const std::int64_t bytes = workspace_bytes(on, posed);
      std::vector<double> room(static_cast<std::size_t>((bytes + 7) / 8), 0.0);
      on.workspace = {room.data(), bytes, cuda::workspace_content::kept};
      s.launches = 0;
      linear_scan_vjp(on, a...);
      CHECK((room == std::vector<double>(room.size())));
      CHECK(s.launches == describe(on, posed).kernels);
      if (ahead >= 0) CHECK(describe(on, posed).threads == 32);
    });
    INFO("steps ahead " << ahead << ", resets " << with.resets);
    // The numbers are small integers, so sums are exact.
    CHECK((std::memcmp(got.data(), want.data(), steps * sizeof(T)) == 0));
    CHECK((std::memcmp(got_inputs.data(), want_inputs.data(), steps * sizeof(T)) == 0));
  };
  for (const int ahead : {-1, 0, 1, 12, 1000})
    for (const scanrec::strides& strides :
         {scanrec::strides{77, 1, 0, 3 * 77}, scanrec::strides{0, 1, 0, 77}}) {
      const bool even = ahead % 2 == 0;
      check_shared(std::uint32_t{}, strides, ahead, {direction::forward, even, false});
      check_shared(std::uint32_t{}, strides, ahead, {direction::reverse, !even, true});
    }
}

TEST_CASE("rings fit in the shared memory of every GPU", "[cuda_lanes][workspace]") {
  // Three inputs, and outputs that warps sum, with elements of all sizes.
  for (const std::int64_t element : {1, 2, 4, 8, 12, 16, 64, 128, 256})
    for (const int sums : {0, 1, 5})
      for (const std::int64_t steps : {1, 500})
        for (const int ahead : {0, 1, 100, std::numeric_limits<int>::max()}) {
          problem p;
          p.shape = {.batch = 1, .time = steps, .channel = 64};
          p.count = 3 + sums;
          for (int i = 0; i < p.count; ++i) {
            array_use& array = p.arrays[static_cast<std::size_t>(i)];
            array.data = reinterpret_cast<const std::byte*>(std::intptr_t{i + 1} << 20);
            array.shape = p.shape;
            array.strides = i < 3 ? channels_last(p.shape) : strides{0, 1, 0, 0};
            array.element_bytes = element, array.wide_bytes = 2 * element;
            array.use = i < 3 ? access::read : access::accumulate;
            array.given = true;
          }
          const cuda::lanes on{.stream = nullptr, .steps_ahead = ahead};
          const cuda::detail::ring_plan ring = plan_for(on, p).ring;
          INFO(element << " bytes, " << sums << " sums, ahead " << ahead);
          CHECK(ring.bytes() <= cuda::detail::most_shared_bytes);
          CHECK(ring.steps <= steps);
          if (element <= 16 && element > 1 && ahead > 0) CHECK(ring.steps > 0);
        }
}

TEST_CASE("lanes use rings for 12288 to 20479 sequences", "[cuda_lanes][workspace]") {
  const auto plan = [](const extents& s, std::int64_t first_byte = 64) {
    const sequence_view<float> any(reinterpret_cast<float*>(first_byte), s);
    const sequence_view<float> other(reinterpret_cast<float*>(std::intptr_t{1} << 44), s);
    return describe(cuda::lanes{.stream = nullptr}, linear_scan_problem(any, any, other));
  };
  // All rings together have at most 12 MiB.
  const cuda::launch_plan some = plan({.batch = 2, .time = 4096, .channel = 8190});
  CHECK(some.threads == 32);
  CHECK(some.blocks == 2 * 256);
  CHECK(some.steps_ahead == 3 * 20);  // three stages of 20 steps, a multiple of four
  CHECK(to_string(some).find("60 steps ahead") != std::string::npos);
  CHECK(plan({.batch = 1, .time = 4096, .channel = 12288}).steps_ahead > 0);
  CHECK(plan({.batch = 1, .time = 4096, .channel = 12256}).steps_ahead == 0);
  CHECK(plan({.batch = 1, .time = 4096, .channel = 20448}).steps_ahead > 0);
  CHECK(plan({.batch = 1, .time = 4096, .channel = 20480}).steps_ahead == 0);
  CHECK(plan({.batch = 1, .time = 12, .channel = 16384}).steps_ahead == 0);
  CHECK(plan({.batch = 0, .time = 4096, .channel = 16384}).steps_ahead == 0);
}

}  // namespace
