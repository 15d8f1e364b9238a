// SPDX-License-Identifier: BSD-3-Clause
// Tests of cuda::triangular_matmul: precision on matrix units, infinities, and several levels of
// chunks. Also tests that bits of all comparison backends for GPUs do not depend on the schedule.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/cuda/scan.cuh>

#include "catch.hpp"
#include "device_backend.hpp"

namespace {

using namespace scanrec;

double random(std::uint32_t& seed) {
  seed = seed * 1664525u + 1013904223u;
  return static_cast<double>(seed >> 8) / 16777216.0;
}

/// A scan whose gate is shared over channels or over time.
struct shared_gates {
  extents shape{.batch = 2, .time = 300, .channel = 37};
  scanrec::strides strides;  // of the gate
  std::vector<float> gate, input, state;
  std::vector<std::uint8_t> resets;

  explicit shared_gates(bool in_time)
      : strides(in_time ? scanrec::strides{0, 0, 1} : scanrec::strides{300, 1}),
        gate(600),
        input(2 * 300 * 37),
        state(input.size()),
        resets(300) {
    std::uint32_t seed = 3;
    for (float& a : gate) a = static_cast<float>(0.8 + 0.2 * random(seed));
    for (float& u : input) u = static_cast<float>(2 * random(seed) - 1);
    if (!in_time) resets[40] = resets[128] = resets[200] = resets[299] = 1;
  }
  float gate_at(std::int64_t b, std::int64_t t, std::int64_t c) const {
    return gate[static_cast<std::size_t>(b * strides.batch + t * strides.time +
                                         c * strides.channel)];
  }
  template <class Backend>
  void run(const Backend& on) {
    linear_scan(
        on, sequence_view<const float>(gate.data(), shape, strides),
        sequence_view<const float>(input.data(), shape), sequence_view<float>(state.data(), shape),
        {.resets = sequence_view<const bool>(
             strides.time == 0 ? nullptr : reinterpret_cast<const bool*>(resets.data()),
             strides.time == 0 ? extents{0, 0, 0, 0} : shape, scanrec::strides{0, 1, 0, 0})});
  }
  double largest_error() const {
    double largest = 0;
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t c = 0; c < shape.channel; ++c) {
        double x = 0, magnitude = 0;
        for (std::int64_t t = 0; t < shape.time; ++t) {
          const double a = resets[static_cast<std::size_t>(t)] ? 0 : gate_at(b, t, c);
          const auto i = static_cast<std::size_t>((b * shape.time + t) * shape.channel + c);
          x = a * x + input[i], magnitude = a * magnitude + std::abs(input[i]);
          largest = std::max(largest, std::abs(state[i] - x) / magnitude);
        }
      }
    return largest;
  }
};

}  // namespace

TEST_CASE("products on matrix units have the documented precision",
          "[bound][cuda_triangular_matmul][forward][resets]") {
  for (const bool in_time : {false, true}) {
    shared_gates p(in_time);
    const auto error_of = [&]<class Precision>(Precision) {
      for (float& x : p.state) x = std::numeric_limits<float>::quiet_NaN();
      p.run(tested::on_device<cuda::triangular_matmul<Precision>>{});
      return p.largest_error();
    };
    INFO((in_time ? "in time" : "along channels"));
    const double full = error_of(cuda::precision::full{});
    const double three = error_of(cuda::precision::tf32x3{});
    const double tf32 = error_of(cuda::precision::tf32{});
    const double bf16 = error_of(cuda::precision::bf16{});
    CHECK(full < 0x1p-20);
    CHECK(three < full + 0x1p-19);
    CHECK(tf32 < full + 0x1p-9);
    CHECK(bf16 < full + 0x1p-7);
    // The errors show that matrix units were used.
    CHECK(tf32 > 0x1p-15);
    CHECK(bf16 > 2 * tf32);
  }
}

TEST_CASE("every call on matrix units has the documented precision",
          "[bound][cuda_triangular_matmul][forward][vjp][jvp][resets][reverse][empty]") {
  struct arrays {
    std::vector<float> state, input_grad, gate_grad, tangent;
  };
  const auto run = []<class Backend>(const Backend& on, const extents& shape, bool in_time,
                                     direction order, bool magnitudes) {
    const auto n = static_cast<std::size_t>(shape.batch * shape.time * shape.channel);
    const scanrec::strides strides =
        in_time ? scanrec::strides{0, 0, 1, 0} : scanrec::strides{0, 1, 0, 0};
    const std::size_t gates =
        in_time ? static_cast<std::size_t>(shape.channel) : static_cast<std::size_t>(shape.time);
    std::uint32_t seed = 11;
    std::vector<float> gate(gates), gate_tangent(gates), input(n), grad(n), input_tangent(n);
    for (float& a : gate) a = static_cast<float>(0.8 + 0.2 * random(seed));
    for (auto* array : {&gate_tangent, &input, &grad, &input_tangent})
      for (float& x : *array) {
        x = static_cast<float>(2 * random(seed) - 1);
        if (magnitudes) x = std::abs(x);
      }
    std::vector<std::uint8_t> reset_mask(static_cast<std::size_t>(shape.time));
    for (std::size_t t = 50; t < reset_mask.size(); t += 101) reset_mask[t] = 1;
    const sequence_view<const bool> resets(reinterpret_cast<const bool*>(reset_mask.data()), shape,
                                           scanrec::strides{0, 1, 0, 0});
    const auto dense = [&](auto& v) { return sequence_view<float>(v.data(), shape); };
    const auto shared = [&](auto& v) { return sequence_view<float>(v.data(), shape, strides); };
    arrays out{std::vector<float>(n), std::vector<float>(n), std::vector<float>(gates),
               std::vector<float>(n)};
    linear_scan(on, shared(gate), dense(input), dense(out.state),
                {.order = order, .resets = resets});
    linear_scan_vjp(on, shared(gate), dense(out.state), dense(grad),
                    {.gate_grad = shared(out.gate_grad), .input_grad = dense(out.input_grad)},
                    {.order = order, .resets = resets});
    linear_scan_jvp(on, shared(gate), dense(out.state), shared(gate_tangent), dense(input_tangent),
                    dense(out.tangent), {.order = order, .resets = resets});
    return out;
  };
  const auto check = [&]<class Precision>(Precision, double bound) {
    for (const bool in_time : {false, true})
      for (const direction order : {direction::forward, direction::reverse})
        for (const std::int64_t steps : {0, 1, 129, 300}) {
          const extents shape{.batch = 2, .time = steps, .channel = 37};
          const arrays want = run(sequential{}, shape, in_time, order, false);
          const arrays most = run(sequential{}, shape, in_time, order, true);
          const arrays got = run(tested::on_device<cuda::triangular_matmul<Precision>>{}, shape,
                                 in_time, order, false);
          INFO((in_time ? "in time" : "along channels")
               << ", T " << steps << ", reverse " << (order == direction::reverse));
          // Products of two imprecise factors have the errors of both.
          const auto within = [&](const auto& x, const auto& y, const auto& size, double of) {
            for (std::size_t i = 0; i < x.size(); ++i)
              if (!(std::abs(x[i] - y[i]) <= of * (bound + 0x1p-20) * size[i])) return false;
            return true;
          };
          CHECK(within(got.state, want.state, most.state, 1));
          CHECK(within(got.input_grad, want.input_grad, most.input_grad, 1));
          CHECK(within(got.gate_grad, want.gate_grad, most.gate_grad, 2.1));
          CHECK(within(got.tangent, want.tangent, most.tangent, 2.1));
        }
  };
  check(cuda::precision::full{}, 0);
  check(cuda::precision::tf32x3{}, 0x1p-19);
  check(cuda::precision::tf32{}, 0x1p-9);
  check(cuda::precision::bf16{}, 0x1p-7);
}

TEST_CASE("an infinity stays in its channel and sequence and ends at a reset",
          "[nan][cuda_triangular_matmul][forward][resets]") {
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto check = []<class Precision>(Precision) {
    const tested::on_device<cuda::triangular_matmul<Precision>> on{};
    shared_gates clean(false);
    clean.run(on);
    shared_gates p(false);
    const std::size_t nonfinite =
        150 * 37 + 5;  // row 0, step 150, channel 5; the next reset is at 200
    p.input[nonfinite] = infinity;
    p.run(on);
    for (std::size_t i = 0; i < p.state.size(); ++i) {
      const std::size_t t = i / 37 % 300;
      INFO("element " << i);
      if (i < 300 * 37 && i % 37 == 5 && t >= 150 && t < 200)
        CHECK(p.state[i] == infinity);
      else if (i % 37 != 5 || i >= 300 * 37)
        CHECK(p.state[i] == clean.state[i]);
      else
        CHECK(std::abs(p.state[i] - clean.state[i]) <= 0x1p-6f * 20);
    }
  };
  check(cuda::precision::full{});
  check(cuda::precision::tf32x3{});
  check(cuda::precision::bf16{});
}

TEST_CASE("bits of comparison backends do not depend on the schedule",
          "[determinism][cuda_hillis_steele][cuda_blelloch][cuda_triangular_matmul][forward]") {
  const auto check = [](const auto& on) {
    shared_gates want(false);
    want.run(on);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const cuda_on_host::scheduled as({.seed = seed, .resident_blocks = static_cast<int>(seed)});
      shared_gates got(false);
      got.run(on);
      CHECK((got.state == want.state));
    }
  };
  check(tested::on_device<cuda::hillis_steele>{});
  check(tested::on_device<cuda::blelloch>{});
  check(tested::on_device<cuda::triangular_matmul<>>{});
  check(tested::on_device<cuda::triangular_matmul<cuda::precision::tf32>>{});
}

TEST_CASE("three levels of chunks are exact", "[exact][cuda_triangular_matmul][forward][vjp]") {
  // 128 * 128 steps are two levels.
  const extents shape{.batch = 1, .time = 40000, .channel = 2};
  std::vector<std::uint32_t> gate(80000), input(80000), want(80000), got(80000), grad(80000);
  std::vector<std::uint8_t> resets(80000);
  std::uint32_t seed = 11;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = seed = seed * 1664525u + 1013904223u;
    input[i] = seed = seed * 1664525u + 1013904223u;
    resets[i] = seed % 4099 == 0;
  }
  const sequence_view<std::uint32_t> a(gate.data(), shape), u(input.data(), shape);
  for (const bool with_resets : {false, true}) {
    scan_options<std::uint32_t> options;
    if (with_resets)
      options.resets =
          sequence_view<const bool>(reinterpret_cast<const bool*>(resets.data()), shape);
    linear_scan(sequential{}, a, u, sequence_view(want.data(), shape), options);
    linear_scan(tested::on_device<cuda::triangular_matmul<>>{}, a, u,
                sequence_view(got.data(), shape), options);
    CHECK((got == want));
  }
  const auto adjoint = [&](const auto& on, std::vector<std::uint32_t>& gradient) {
    linear_scan_vjp(on, a, sequence_view<const std::uint32_t>(want.data(), shape), u,
                    {.gate_grad = sequence_view(gradient.data(), shape)});
  };
  adjoint(sequential{}, got), adjoint(tested::on_device<cuda::triangular_matmul<>>{}, grad);
  CHECK((grad == got));
}
