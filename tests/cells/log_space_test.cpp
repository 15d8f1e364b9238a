// SPDX-License-Identifier: BSD-3-Clause
// Tests of scans with logarithmic gates: gradients, infinities, gates of 0 and 1, and slow decay
// and growth over many steps (forward and adjoint).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/cells/log_space.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/split_time.hpp>

#include "gated_loss.hpp"
#if defined(SCANREC_TEST_CUDA_ON_HOST)
#include "device_backend.hpp"
#endif

namespace {

using namespace scanrec;
using reference::same_bits;
using floats = std::vector<float>;
using cell = log_space<activation::exponential, activation::identity>;
using arrays = cell::arrays<sequence_view<float>>;

floats random_numbers(const extents& shape, unsigned seed) {
  reference::generator bits{seed};
  floats x(static_cast<std::size_t>(shape.batch * shape.time * shape.channel));
  for (float& v : x) v = static_cast<float>(bits() >> 8) * 0x1p-24f;
  return x;
}
floats zeros(const extents& shape) { return floats(random_numbers(shape, 1).size()); }

/// Calls f(name, backend) for the backends that keep the rounding error of a gate (its rest, see
/// logarithmic gates in docs/numerics.md), also when they compose maps.
template <class F>
void for_backends([[maybe_unused]] const extents& shape, F f) {
  f("sequential", sequential{});
  f("tiled", tiled{});
  f("tiled tile 128", tiled{.threads = 2, .tile_steps = 128});
  f("tiled tile 37", tiled{.threads = 3, .tile_steps = 37});
#if defined(SCANREC_TEST_CUDA_ON_HOST)
  if (shape.time * shape.channel > 20000) return;  // too slow on the emulator
  using tested::on_device;
  f("cuda::lanes", on_device<cuda::lanes>{{.stream = nullptr}});
  f("cuda::look_back", on_device<cuda::look_back>{});
#endif
}

/// Runs two loops with exact gates. One has exact states. The other rounds products and states to
/// float, as the loop of an adjoint does.
struct exact_gates {
  long double a;
  explicit exact_gates(float log_gate) : a(std::exp(static_cast<long double>(log_gate))) {}
  long double exact = 0, rounded = 0, loop_error = 0, largest = 0;
  long double step(float input) {
    exact = a * exact + input;
    rounded = static_cast<float>(static_cast<float>(a * rounded) + input);
    loop_error = std::max(loop_error, std::abs(rounded - exact));
    largest = std::max(largest, std::abs(exact));
    return exact;
  }
};

/// Compares a forward call and its adjoint with loops whose gates are exact exponentials. Inputs
/// are random, so rounding errors of states have both signs. The error of a rounded gate would have
/// the same sign at every step.
void check_slow(float log_gate, const extents& shape, const strides& layout, direction order) {
  floats l(zeros(shape).size(), log_gate), u = random_numbers(shape, 2), x = zeros(shape),
                                           dx = random_numbers(shape, 3), dl = zeros(shape),
                                           du = zeros(shape);
  const auto view = [&](floats& v) { return sequence_view<float>(v.data(), shape, layout); };
  const std::int64_t T = shape.time;
  for_backends(shape, [&](const std::string& name, const auto& backend) {
    const arrays pre{view(l), view(u)};
    gated_scan(backend, cell{}, pre, view(x), none, {.order = order});
    gated_scan_vjp(backend, cell{}, pre, memory::store{view(x)}, view(dx),
                   {.arrays = {view(dl), view(du)}}, {.order = order});
    INFO(name << ", channels " << shape.channel << ", log gate " << log_gate << ", "
              << (order == direction::forward ? "forward" : "reverse"));
    for (std::int64_t c = 0; c < shape.channel; ++c) {
      const auto at = [&](floats& v, std::int64_t t) {
        return view(v).at(0, order == direction::forward ? t : T - 1 - t, c);
      };
      std::vector<long double> states;
      exact_gates forward(log_gate), adjoint(log_gate);
      long double off = 0, off_grad = 0, off_log = 0;
      for (std::int64_t t = 0; t < T; ++t) {
        states.push_back(forward.step(at(u, t)));
        off = std::max(off, std::abs(at(x, t) - states.back()));
      }
      for (std::int64_t t = T - 1; t >= 0; --t) {
        const long double g = adjoint.step(at(dx, t));
        off_grad = std::max(off_grad, std::abs(at(du, t) - g));
        const long double before = t > 0 ? states[static_cast<std::size_t>(t - 1)] : 0;
        off_log = std::max(off_log, std::abs(at(dl, t) - g * adjoint.a * before));
      }
      // Twice the error of the loop with exact gates, and the roundings within a pack along time.
      const auto allowed = [](const exact_gates& of) {
        return 2 * of.loop_error + 140 * 0x1p-24L * of.largest;
      };
      const long double of_states = allowed(forward), of_gradients = allowed(adjoint);
      CHECK(off <= of_states);
      CHECK(off_grad <= of_gradients);
      CHECK(off_log <= 1.01L * (of_states * adjoint.largest + of_gradients * forward.largest));
    }
  });
}

TEST_CASE("gradients of log_space equal central differences", "[log_space]") {
  tested::check_gradients("log_space", log_space<>{});
  tested::check_gradients("log_space, of gates", cell{});
}

TEST_CASE("gradients of log_space have the golden bits", "[.golden]") {
  tested::check_golden("log_space", log_space<>{});
}

TEST_CASE("slow decay and growth keep the precision of their logarithms",
          "[log_space][sequential][tiled][forward][vjp]") {
  for (const direction order : {direction::forward, direction::reverse}) {
    for (const std::int64_t time : {20000, 100000}) {
      const extents one{.batch = 1, .time = time, .channel = 1};
      check_slow(-1e-4f, one, channels_last(one), order);
    }
    const extents many{.batch = 1, .time = 30000, .channel = 19};
    check_slow(-1e-4f, many, channels_last(many), order);
    check_slow(1e-4f, many, channels_last(many), order);
    check_slow(-1e-4f, many, time_contiguous(many), order);
  }
}

TEST_CASE("the summary of a chunk of time is as precise as its logarithms",
          "[log_space][split_time]") {
  const extents shape{.batch = 1, .time = 100000, .channel = 2};
  floats l(200000, -1e-4f), u(200000);
  std::vector<std::uint8_t> zoned(200000);
  for (std::size_t i = 0; i < 100000; i += 2) zoned[i] = 1;  // half the steps of the first channel
  const sequence_view<const bool> zoneout(reinterpret_cast<const bool*>(zoned.data()), shape);
  const cell::arrays<sequence_view<const float>> pre{sequence_view<const float>(l.data(), shape),
                                                     sequence_view<const float>(u.data(), shape)};
  const auto maps = gated_scan_summary(tiled{}, cell{}, pre, {.zoneout = zoneout});
  for (std::size_t c = 0; c < 2; ++c) {
    const long double sum = (c == 0 ? 50000 : 100000) * static_cast<long double>(-1e-4f);
    // Each factor is exp(l (1 + d)) with |d| at most 3 units of roundoff. Products are rounded to
    // double.
    const long double allowed = 1.01L * (3 * 0x1p-24L * -sum + 2e5L * 0x1p-53L);
    CHECK(std::abs(maps[c].a / std::exp(sum) - 1) <= allowed);
  }
}

TEST_CASE("gates of 0 and of 1 are exact", "[log_space][sequential][tiled][forward][vjp]") {
  // States are integers below 2^24, so none is rounded.
  const extents shape{.batch = 2, .time = 300, .channel = 19};
  const float infinity = std::numeric_limits<float>::infinity();
  floats l = random_numbers(shape, 1), u = random_numbers(shape, 2), dx = random_numbers(shape, 3),
         a = l, x = zeros(shape), y = x, dl = x, du = x, da = x, dv = x;
  for (std::size_t i = 0; i < l.size(); ++i) {
    a[i] = l[i] < 0.1f ? 0.0f : 1.0f, l[i] = a[i] == 0 ? -infinity : 0.0f;
    u[i] = std::floor(100 * u[i]), dx[i] = std::floor(100 * dx[i]);
  }
  const auto view = [&](floats& v) { return sequence_view<float>(v.data(), shape); };
  linear_scan(sequential{}, view(a), view(u), view(y));
  linear_scan_vjp(sequential{}, view(a), view(y), view(dx),
                  {.gate_grad = view(da), .input_grad = view(dv)});
  for (std::size_t i = 0; i < a.size(); ++i) da[i] *= a[i];  // the gradient of the logarithm
  for_backends(shape, [&](const std::string& name, const auto& backend) {
    const arrays pre{view(l), view(u)};
    gated_scan(backend, cell{}, pre, view(x));
    gated_scan_vjp(backend, cell{}, pre, memory::store{view(x)}, view(dx),
                   {.arrays = {view(dl), view(du)}});
    INFO(name);
    CHECK((same_bits(x, y)));
    CHECK((same_bits(du, dv)));
    CHECK(dl == da);  // zeros may differ in sign
  });
}

TEST_CASE("infinite states and gradients stay infinite when gates keep their rounding error",
          "[log_space][sequential][tiled][forward][vjp]") {
  const extents shape{.batch = 1, .time = 300, .channel = 19};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float log_gate : {-1e-4f, -0.3f, 0.0f, 1e-4f})
    for (const float bad : {infinity, -infinity}) {
      floats l(zeros(shape).size(), log_gate), u = random_numbers(shape, 1), x = zeros(shape),
                                               dx = u, dl = x, du = x;
      const std::size_t at = 150 * 19 + 3;
      u[at] = dx[at] = bad;
      const auto view = [&](floats& v) { return sequence_view<float>(v.data(), shape); };
      for_backends(shape, [&](const std::string& name, const auto& backend) {
        const arrays pre{view(l), view(u)};
        gated_scan(backend, cell{}, pre, view(x));
        gated_scan_vjp(backend, cell{}, pre, memory::store{view(x)}, view(dx),
                       {.arrays = {view(dl), view(du)}});
        INFO(name << ", log gate " << log_gate);
        bool good = true;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool same_channel = i % 19 == 3;
          good = good && (same_channel && i >= at ? x[i] == bad : std::isfinite(x[i]));
          good = good && (same_channel && i <= at ? du[i] == bad : std::isfinite(du[i]));
        }
        CHECK(good);
      });
    }
}

TEST_CASE("final states from bfloat16 logarithms are as precise as in a loop with exact gates",
          "[log_space][tiled]") {
  for (const std::int64_t channels : {1, 19}) {
    const extents shape{.batch = 1, .time = 100000, .channel = channels};
    const auto n = static_cast<std::size_t>(shape.time * channels);
    const bfloat16 log_gate(-1e-4f);
    std::vector<bfloat16> l(n, log_gate), u(n);
    const floats numbers = random_numbers(shape, 1);
    for (std::size_t i = 0; i < n; ++i) u[i] = bfloat16(numbers[i]);
    floats last(static_cast<std::size_t>(channels));
    using view = sequence_view<bfloat16>;
    gated_scan(cell{}, cell::arrays<view>{view(l.data(), shape), view(u.data(), shape)}, none, none,
               {.final_state = state_view<float>(last.data(), shape)});
    for (std::int64_t c = 0; c < channels; ++c) {
      exact_gates want(static_cast<float>(log_gate));
      for (std::int64_t t = 0; t < shape.time; ++t)
        want.step(static_cast<float>(u[static_cast<std::size_t>(t * channels + c)]));
      CHECK(std::abs(last[static_cast<std::size_t>(c)] - want.exact) <=
            2 * want.loop_error + 140 * 0x1p-24L * want.largest);
    }
  }
}

}  // namespace
