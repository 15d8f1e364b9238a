// SPDX-License-Identifier: BSD-3-Clause
// Tests of user-defined recurrences and backends: the examples on every backend, and the concepts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/triangular_matmul.hpp>
#include <scanrec/variants.hpp>

#include "../examples/forecast_errors.hpp"
#include "../examples/halves.hpp"
#include "catch.hpp"
#if defined(SCANREC_TEST_CUDA_ON_HOST)
#include "device_backend.hpp"
#endif

namespace {

using namespace scanrec;
using doubles = std::vector<double>;

/// Small integers. Nothing rounds in so few steps, so every order of composition gives the same
/// bits.
doubles integers(std::int64_t n, unsigned seed) {
  doubles all(static_cast<std::size_t>(n));
  for (double& x : all) x = static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 29) - 3;
  return all;
}

/// The results of forecast_errors and its adjoint.
struct results {
  doubles error, decay_grad, input_grad, initial_grad;
  bool operator==(const results&) const = default;
};
struct arguments {
  extents shape;
  scanrec::strides strides, of_decay;
  doubles decay, input, level, error_grad;

  arguments(std::int64_t time, std::int64_t channels, bool time_last, bool per_channel)
      : shape{.batch = 2, .time = time, .channel = channels} {
    const std::int64_t n = 2 * time * channels;
    strides = time_last ? scanrec::strides{time * channels, 1, time} : channels_last(shape);
    of_decay = per_channel ? scanrec::strides{0, 0, 1} : strides;
    for (std::int64_t i = 0; i < n + channels; ++i) decay.push_back((i * i % 7 % 3) * 0.5);
    input = integers(n, 1), level = integers(2 * channels, 2), error_grad = integers(n, 3);
  }
  results empty() const {
    return {doubles(input.size()), doubles(input.size()), doubles(input.size()),
            doubles(level.size())};
  }
  results in_a_loop() const {
    results r = empty();
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t c = 0; c < shape.channel; ++c) {
        const auto at = [&](std::int64_t t, const scanrec::strides& by) {
          return static_cast<std::size_t>(b * by.batch + t * by.time + c * by.channel);
        };
        const auto state = static_cast<std::size_t>(b * shape.channel + c);
        double x = level[state], g = 0;
        for (std::int64_t t = 0; t < shape.time; ++t) {
          const std::size_t i = at(t, strides);
          const double d = decay[at(t, of_decay)];
          r.error[i] = input[i] - x;
          x = d * x + (1 - d) * input[i];
        }
        for (std::int64_t t = shape.time; t-- > 0;) {
          const std::size_t i = at(t, strides);
          const double d = decay[at(t, of_decay)];
          r.input_grad[i] = error_grad[i] + (1 - d) * g;
          r.decay_grad[i] = -r.error[i] * g;
          g = d * g - error_grad[i];
        }
        r.initial_grad[state] = g;
      }
    return r;
  }
  template <class Backend>
  results on(const Backend& backend) const {
    results r = empty();
    const smoothing::in d{decay.data(), shape, of_decay}, x{input.data(), shape, strides},
        g{error_grad.data(), shape, strides};
    const auto out = [&](doubles& to) { return smoothing::out{to.data(), shape, strides}; };
    smoothing::forecast_errors(backend, d, x, {level, shape}, out(r.error));
    smoothing::forecast_errors_vjp(backend, d, out(r.error), g, out(r.decay_grad),
                                   out(r.input_grad), {r.initial_grad, shape});
    return r;
  }
};

/// Calls f(name, backend) for the CPU backends, the backend of the example, and emulated
/// cuda::lanes and cuda::look_back.
template <class F>
void with_every_backend(F f) {
  f("sequential", sequential{});
  f("tiled", tiled{});
  f("tiled tile 16", tiled{.threads = 3, .tile_steps = 16});
  f("hillis_steele", hillis_steele{.threads = 2});
  f("blelloch", blelloch{.threads = 2});
  f("triangular_matmul", triangular_matmul{.chunk = 7, .threads = 2});
  f("halves", mine::halves{});
#if defined(SCANREC_TEST_CUDA_ON_HOST)
  f("cuda::lanes", tested::on_device<cuda::lanes>{});
  f("cuda::lanes through a ring",
    tested::on_device<cuda::lanes>{{.stream = nullptr, .steps_ahead = 15}});
#if !defined(__SANITIZE_ADDRESS__)
  f("cuda::look_back", tested::on_device<cuda::look_back>{});
#endif
#endif
}

}  // namespace

TEST_CASE("a user's recurrence and its adjoint have the bits of a loop", "[extend]") {
  int compared = 0;
  for (const std::int64_t time : {0, 1, 2, 15, 16, 17, 40})
    for (const std::int64_t channels : {1, 3, 17})
      for (const bool time_last : {false, true})
        for (const bool per_channel : {false, true}) {
          const arguments a(time, channels, time_last, per_channel);
          const results wanted = a.in_a_loop();
          with_every_backend([&](const std::string& name, const auto& backend) {
            INFO(name << ", " << time << " steps, " << channels << " channels, time last "
                      << time_last << ", decay per channel " << per_channel);
            CHECK(a.on(backend) == wanted);
            ++compared;
          });
        }
  CHECK(compared >= 7 * 84);
}

TEST_CASE("calls of a user's recurrence check their arguments", "[extend]") {
  doubles x(12), longer(16), y(12);
  const extents shape{.time = 4, .channel = 3}, other{.time = 4, .channel = 4};
  const auto call = [&](const smoothing::in& decay, const scanrec::strides& to) {
    smoothing::forecast_errors(sequential{}, decay, {x, shape}, {}, {y.data(), shape, to});
  };
  CHECK_THROWS_WITH(call({longer, other}, channels_last(shape)),
                    Catch::Matchers::Contains("forecast_errors: argument 'decay': expected shape"));
  CHECK_THROWS_WITH(call({}, channels_last(shape)),
                    Catch::Matchers::Contains("forecast_errors: argument 'decay'"));
  // Outputs that are not gradients must have an element per step.
  CHECK_THROWS_WITH(call({x, shape}, {.batch = 0, .time = 0, .channel = 1}),
                    Catch::Matchers::Contains("forecast_errors: argument 'error'"));
}

TEST_CASE("a user's backend runs the library's recurrences", "[extend]") {
  const extents shape{.batch = 2, .time = 23, .channel = 3};
  const scanrec::strides per_channel{.batch = 0, .time = 0, .channel = 1};
  const std::int64_t n = 2 * 23 * 3;
  const doubles gate{0.5, 1, -1}, input = integers(n, 4), weight = integers(n, 5);
  const sequence_view<const double> a(gate.data(), shape, per_channel), u(input, shape),
      w(weight, shape);
  const auto calls = [&](const auto& backend) {
    doubles state(n), gate_grad(3), input_grad(n), tangent(n), output(n);
    const sequence_view<double> x(state, shape);
    linear_scan(backend, a, u, x);
    // The gradient of a gate per channel is a sum over batch and time.
    linear_scan_vjp(backend, a, x, w,
                    scan_gradients<double>{.gate_grad = {gate_grad.data(), shape, per_channel},
                                           .input_grad = {input_grad, shape}});
    linear_scan_jvp(backend, a, x, w, u, sequence_view<double>(tangent, shape));
    using cell = fo_pooling<activation::identity, activation::identity>;
    gated_scan(backend, cell{}, typename cell::arrays<sequence_view<const double>>{u, a, w},
               sequence_view<double>(output, shape), none);
    return std::vector{state, gate_grad, input_grad, tangent, output};
  };
  CHECK(calls(mine::halves{}) == calls(sequential{}));
}

namespace lacking {

struct no_workspace {};
template <class R>
void run_recurrence(const no_workspace&, R, const problem&) {}

struct no_run {};
[[maybe_unused]] std::int64_t workspace_bytes(const no_run&, const problem&) { return 0; }

struct no_number {};
[[maybe_unused]] const char* workspace_bytes(const no_number&, const problem&) { return ""; }
template <class R>
void run_recurrence(const no_number&, R, const problem&) {}

/// Recurrences with members of the wrong kind. messages.sh tests missing members.
struct next_of_nothing : smoothing::forward {
  void next(auto, auto, auto) const {}
};
struct map_to_lanes : smoothing::forward {
  double map(auto, auto) const { return 0; }
};
struct begin_of_text : smoothing::forward {
  template <class Lane>
  const char* begin(auto) const {
    return "";
  }
};
struct modified_by_end : smoothing::forward {
  void end(auto, auto) {}
};

}  // namespace lacking

using smoothing::adjoint;
using smoothing::forward;
static_assert(step_recurrence<forward> && step_recurrence<adjoint>);
static_assert(step_recurrence<recurrence::vjp<float, float, float, float, float>>);
static_assert(!step_recurrence<double> && !step_recurrence<sequential>);
static_assert(!step_recurrence<lacking::next_of_nothing>);
static_assert(!step_recurrence<lacking::map_to_lanes>);
static_assert(!step_recurrence<lacking::begin_of_text>);
static_assert(!step_recurrence<lacking::modified_by_end>);
static_assert(backend_for<mine::halves, forward> && backend_for<tiled, adjoint>);
static_assert(!backend_for<mine::halves, double> && !backend_for<forward, forward>);
static_assert(!backend<lacking::no_workspace> && !backend<lacking::no_number>);
static_assert(backend<lacking::no_run> && !backend_for<lacking::no_run, forward>);
