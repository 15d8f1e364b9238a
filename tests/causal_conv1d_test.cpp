// SPDX-License-Identifier: BSD-3-Clause
// Tests of causal convolutions and their adjoint. Results for random shapes, strides and types are
// within proven bounds of results in long double, and no access leaves an array. Bits do not depend
// on the number of threads or on the pieces of a stream. Also covers resets, NaN, gradients and
// invalid arguments.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <scanrec/causal_conv1d.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "guarded.hpp"
#include "reference.hpp"
#include "refused.hpp"

namespace {

using namespace scanrec;
using reference::generator;
using reference::roundoff;
using reference::storage_roundoff;
using reference::widened;
using tested::guarded;
using tested::refused;

enum class layout { channels_last, time_contiguous, random };

strides strides_of(layout of, const extents& e, generator& bits) {
  if (of == layout::random) return tested::random_strides(e, tested::broadcasts::never, bits);
  if (of == layout::channels_last)
    return {.batch = e.time * e.channel, .time = e.channel, .channel = 1};
  return {.batch = e.time * e.channel, .time = 1, .channel = e.time};
}

/// The shape, options and arrays of a call of causal_conv1d and of its adjoint. V is the compute
/// type, S the stored type.
template <class V, class S>
struct example {
  extents shape;
  std::int64_t width = 4, state_steps = 3;
  bool silu = false, has_initial = true, has_resets = false;

  guarded<S> x, out, initial, final_state, out_grad, final_grad, x_grad, initial_grad;
  guarded<V> weight, bias, weight_grad, bias_grad;
  std::unique_ptr<bool[]> reset_mask;

  example(const extents& e, std::int64_t taps, std::int64_t steps, layout of, generator& bits)
      : shape(e), width(taps), state_steps(steps) {
    const auto sequence = [&](auto& to, const extents& s) {
      to = {s, strides_of(of, s, bits), bits};
    };
    extents past = shape;
    past.time = steps;
    sequence(x, shape), sequence(out, shape), sequence(out_grad, shape), sequence(x_grad, shape);
    sequence(initial, past), sequence(final_state, past);
    sequence(final_grad, past), sequence(initial_grad, past);
    const extents taps_of{.channel = shape.channel, .group = width};
    const strides by_channel{.channel = width, .group = 1},
        by_tap{.channel = 1, .group = shape.channel};
    weight = {taps_of, bits() % 2 == 0 ? by_channel : by_tap, bits};
    weight_grad = {taps_of, bits() % 2 == 0 ? by_channel : by_tap, bits};
    bias = {{.channel = shape.channel}, {.channel = 1}, bits};
    bias_grad = {{.channel = shape.channel}, {.channel = bits() % 2 == 0 ? 1 : 3}, bits};
    const auto count = static_cast<std::size_t>(shape.batch * shape.time);
    reset_mask = std::make_unique<bool[]>(count + 1);
    for (std::size_t i = 0; i < count; ++i) reset_mask[i] = bits() % 7 == 0;
  }

  [[nodiscard]] causal_conv1d_arrays<V> arrays() const {
    return {.x = x.view(),
            .weight = weight.state(),
            .bias = bias.state(),
            .activation = silu ? conv1d_activation::silu : conv1d_activation::none};
  }
  [[nodiscard]] sequence_view<const bool> resets() const {
    if (!has_resets) return {};
    return {reset_mask.get(), {.batch = shape.batch, .time = shape.time}};
  }
  [[nodiscard]] sequence_view<S> start() const {
    return has_initial ? initial.view() : sequence_view<S>();
  }
  template <class Backend>
  void run(const Backend& on) const {
    causal_conv1d(
        on, arrays(), out.view(),
        {.initial_state = start(), .final_state = final_state.view(), .resets = resets()});
  }
  template <class Backend>
  void run_vjp(const Backend& on, update how = update::overwrite) const {
    causal_conv1d_vjp(
        on, arrays(), out_grad.view(),
        {.x = x_grad.view(),
         .weight = weight_grad.state(),
         .bias = bias_grad.state(),
         .initial_state = has_initial ? initial_grad.view() : sequence_view<S>(),
         .update = how},
        {.initial_state = start(), .final_grad = final_grad.view(), .resets = resets()});
  }

  // ---- the reference --------------------------------------------------------------------------

  using wide = long double;
  struct value {
    wide is = 0, bound = 0;
  };
  static wide u() { return roundoff<V>(); }
  [[nodiscard]] bool reset_at(std::int64_t b, std::int64_t t) const {
    return has_resets && reset_mask[static_cast<std::size_t>(b * shape.time + t)];
  }
  /// Whether no reset separates step t from step s <= t. Negative s are steps of the initial state.
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t t, std::int64_t s) const {
    for (std::int64_t i = std::max<std::int64_t>(s + 1, 0); i <= t; ++i)
      if (reset_at(b, i)) return false;
    return true;
  }
  [[nodiscard]] wide input(std::int64_t b, std::int64_t t, std::int64_t c) const {
    if (t >= 0) return widened(x.view().at(b, t, c));
    const std::int64_t i = state_steps + t;
    return has_initial && i >= 0 ? widened(initial.view().at(b, i, c)) : wide(0);
  }
  [[nodiscard]] wide tap(std::int64_t c, std::int64_t k) const {
    return weight.state()
        .data[c * weight.state().strides.channel + (width - 1 - k) * weight.state().strides.group];
  }
  [[nodiscard]] value sum(std::int64_t b, std::int64_t t, std::int64_t c) const {
    value v{bias.state().data[c]};
    wide size = std::abs(v.is);
    for (std::int64_t k = 0; k < width; ++k)
      if (sees(b, t, t - k))
        v.is += tap(c, k) * input(b, t - k, c), size += std::abs(tap(c, k) * input(b, t - k, c));
    return {v.is, (static_cast<wide>(width) + 1) * u() * size};
  }
  static wide sigmoid(wide z) { return 1 / (1 + std::exp(-z)); }
  [[nodiscard]] value output(std::int64_t b, std::int64_t t, std::int64_t c) const {
    const value z = sum(b, t, c);
    if (!silu) return z;
    // The slope of SiLU is below 1.1. The sigmoid is within 5 ULP, and a ULP is at most 2 u.
    const wide y = z.is * sigmoid(z.is);
    return {y, 1.1L * z.bound + 12 * u() * std::abs(y)};
  }
  /// The cotangent of sum(). The second derivative of SiLU is at most 0.5.
  [[nodiscard]] value sum_grad(std::int64_t b, std::int64_t t, std::int64_t c) const {
    const wide g = widened(out_grad.view().at(b, t, c));
    if (!silu) return {g, 0};
    const value z = sum(b, t, c);
    const wide s = sigmoid(z.is), part = z.is * s * (1 - s);
    return {g * (s + part),
            std::abs(g) * (0.5L * z.bound + 14 * u() * (std::abs(s) + std::abs(part)))};
  }
  [[nodiscard]] value input_grad(std::int64_t b, std::int64_t s, std::int64_t c) const {
    value v;
    wide size = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int64_t t = s + k;
      if (t < 0 || t >= shape.time || !sees(b, t, s)) continue;
      const value g = sum_grad(b, t, c);
      v.is += tap(c, k) * g.is, size += std::abs(tap(c, k) * g.is);
      v.bound += std::abs(tap(c, k)) * g.bound;
    }
    const std::int64_t i = s - (shape.time - state_steps);
    if (i >= 0 && sees(b, shape.time - 1, s)) {
      const wide g = widened(final_grad.view().at(b, i, c));
      v.is += g, size += std::abs(g);
    }
    return {v.is, v.bound + (static_cast<wide>(width) + 1) * u() * size};
  }
  static void check_value(S got, const value& want) {
    // Half the spacing of subnormal numbers, or the error of flushing one to zero.
    const wide least = std::is_same_v<S, float16> ? 0x1p-25L : std::numeric_limits<V>::min();
    const wide stored = storage_roundoff<S>() * (std::abs(want.is) + want.bound);
    CHECK(std::abs(widened(got) - want.is) <= 1.01L * want.bound + stored + least);
  }
  template <class F>
  static void for_all(const extents& e, F f) {
    for (std::int64_t b = 0; b < e.batch; ++b)
      for (std::int64_t t = 0; t < e.time; ++t)
        for (std::int64_t c = 0; c < e.channel; ++c) f(b, t, c);
  }
  void check() const {
    for_all(shape, [&](auto b, auto t, auto c) {
      INFO("output " << b << ", " << t << ", " << c);
      check_value(out.view().at(b, t, c), output(b, t, c));
    });
    extents past = shape;
    past.time = state_steps;
    for_all(past, [&](auto b, auto i, auto c) {
      INFO("final state " << b << ", " << i << ", " << c);
      const std::int64_t s = shape.time - state_steps + i;
      const wide want = sees(b, shape.time - 1, s) ? input(b, s, c) : wide(0);
      CHECK(widened(final_state.view().at(b, i, c)) == want);
    });
    CHECK((out.gaps_untouched() && final_state.gaps_untouched()));
  }
  void check_vjp() const {
    for_all(shape, [&](auto b, auto t, auto c) {
      INFO("gradient of input " << b << ", " << t << ", " << c);
      check_value(x_grad.view().at(b, t, c), input_grad(b, t, c));
    });
    if (has_initial) {
      extents past = shape;
      past.time = state_steps;
      for_all(past, [&](auto b, auto i, auto c) {
        INFO("gradient of initial state " << b << ", " << i << ", " << c);
        check_value(initial_grad.view().at(b, i, c), input_grad(b, i - state_steps, c));
      });
    }
    for (std::int64_t c = 0; c < shape.channel; ++c)
      for (std::int64_t k = 0; k <= width; ++k) {  // k == width: the bias
        value v;
        wide size = 0;
        for (std::int64_t b = 0; b < shape.batch; ++b)
          for (std::int64_t t = 0; t < shape.time; ++t) {
            if (k < width && !sees(b, t, t - k)) continue;
            const value g = sum_grad(b, t, c);
            const wide by = k < width ? input(b, t - k, c) : wide(1);
            v.is += g.is * by, v.bound += g.bound * std::abs(by), size += std::abs(g.is * by);
          }
        INFO("gradient of tap " << k << " of channel " << c);
        const auto of_weight = weight_grad.state(), of_bias = bias_grad.state();
        const V got = k < width ? of_weight.data[c * of_weight.strides.channel +
                                                 (width - 1 - k) * of_weight.strides.group]
                                : of_bias.data[c * of_bias.strides.channel];
        CHECK(std::abs(got - v.is) <= 1.01L * v.bound + 67 * u() * size);
      }
    CHECK((x_grad.gaps_untouched() && initial_grad.gaps_untouched()));
    CHECK((weight_grad.gaps_untouched() && bias_grad.gaps_untouched()));
  }
  /// The bytes of all results of the forward call.
  [[nodiscard]] std::string results() const { return out.elements() + final_state.elements(); }
  [[nodiscard]] std::string gradients() const {
    return x_grad.elements() + weight_grad.elements() + bias_grad.elements() +
           (has_initial ? initial_grad.elements() : "");
  }
};

template <class V, class S>
void check_random_problems(int count, std::uint64_t seed) {
  generator bits{seed};
  const std::int64_t steps[]{0, 1, 2, 3, 4, 15, 16, 17, 18, 33, 64, 65, 70, 131};
  const std::int64_t channels[]{0, 1, 3, 15, 16, 17, 32, 64, 65};
  for (int i = 0; i < count; ++i) {
    const auto any = [&](const auto& of) { return of[bits() % std::size(of)]; };
    const extents e{.batch = static_cast<std::int64_t>(bits() % 3),
                    .time = any(steps),
                    .channel = any(channels)};
    const std::int64_t widths[]{4, 4, 4, 1, 2, 3, 5, 19}, width = any(widths);
    const auto of = static_cast<layout>(bits() % 3);
    example<V, S> p(e, width, width - 1 + (bits() % 3 == 0 ? bits() % 4 : 0), of, bits);
    p.silu = bits() % 2 == 0, p.has_initial = bits() % 3 > 0, p.has_resets = bits() % 3 == 0;
    CAPTURE(i, e.batch, e.time, e.channel, width, p.state_steps, static_cast<int>(of), p.silu,
            p.has_initial, p.has_resets);
    const tiled on{.threads = 1 + static_cast<int>(bits() % 3)};
    p.run(on), p.check();
    p.run_vjp(on), p.check_vjp();
    const std::string results = p.results();
    p.run(sequential{});
    CHECK((p.results() == results));
  }
}

TEST_CASE("outputs and gradients are within the error bound, float", "[causal_conv1d]") {
  check_random_problems<float, float>(150, 1);
}
TEST_CASE("outputs and gradients are within the error bound, double", "[causal_conv1d]") {
  check_random_problems<double, double>(60, 2);
}
TEST_CASE("outputs and gradients are within the error bound, 16 bits", "[causal_conv1d]") {
  check_random_problems<float, bfloat16>(60, 3);
  check_random_problems<float, float16>(60, 4);
}

TEST_CASE("causal convolutions have the same bits for any number of threads", "[causal_conv1d]") {
  generator bits{5};
  for (const auto of : {layout::channels_last, layout::time_contiguous}) {
    // Large enough for several parts along each axis.
    example<float, float> p({.batch = 2, .time = 700, .channel = 330}, 4, 3, of, bits);
    for (const bool resets : {false, true}) {
      p.silu = true, p.has_resets = resets;
      std::string results, gradients;
      for (const int threads : {1, 2, 3, 16}) {
        CAPTURE(static_cast<int>(of), resets, threads);
        p.run(tiled{.threads = threads}), p.run_vjp(tiled{.threads = threads});
        if (threads == 1) results = p.results(), gradients = p.gradients();
        CHECK((p.results() == results));
        CHECK((p.gradients() == gradients));
      }
      p.run(sequential{});
      CHECK((p.results() == results));
    }
  }
}

TEST_CASE("large causal convolutions keep up to 128 threads busy", "[causal_conv1d]") {
  generator bits{10};
  const auto exponent = [&](double most) {
    return most * static_cast<double>(bits() % 1024) / 1024;
  };
  int shapes = 0;
  for (int i = 0; i < 2000; ++i) {
    const double size = 22 + exponent(6), channels = exponent(14), batch = exponent(8);
    detail::causal_conv1d_problem<float> p;
    p.channels = static_cast<std::int64_t>(std::exp2(channels));
    p.batch = static_cast<std::int64_t>(std::exp2(std::min(batch, size - channels)));
    p.time = static_cast<std::int64_t>(std::exp2(size)) / (p.channels * p.batch);
    p.width = bits() % 8 == 0 ? 100 : 4;
    p.x.strides = {.batch = p.time * p.channels, .time = p.channels, .channel = 1};
    if (bits() % 2 == 0) std::swap(p.x.strides.time, p.x.strides.channel);
    if (p.time < 4 * p.width) continue;
    ++shapes;
    const detail::conv1d_plan plan(p, simd::lanes_v<float>, 128);
    CAPTURE(p.batch, p.time, p.channels, p.width, p.x.strides.channel, plan.parts);
    CHECK(plan.part_steps >= p.width - 1);
    std::vector<double> parts;
    double total = 0;
    for (std::int64_t part = 0; part < plan.parts; ++part) {
      const std::int64_t packs = plan.packs - plan.first_pack_of(part);
      double steps = 0;
      plan.for_tiles(part,
                     [&](auto begin, auto end) { steps += static_cast<double>(end - begin); });
      parts.push_back(steps * static_cast<double>(std::min(packs, plan.tile.packs)));
      total += parts.back();
    }
    CHECK(total == static_cast<double>(p.batch * p.time * plan.packs));
    // Threads claim parts in order.
    for (const auto& [threads, efficiency] :
         {std::pair{8, 0.9}, {32, 0.8}, {64, 0.7}, {128, 0.5}}) {
      std::vector<double> busy(static_cast<std::size_t>(threads));
      for (const double part : parts) *std::min_element(busy.begin(), busy.end()) += part;
      CAPTURE(threads);
      CHECK(total / (*std::max_element(busy.begin(), busy.end()) * threads) >= efficiency);
    }
  }
  CHECK(shapes > 1000);
}

TEST_CASE("a stream of chunks has the bits of the whole sequence", "[causal_conv1d]") {
  generator bits{6};
  for (const std::int64_t state_steps : {3, 4, 9}) {
    const extents e{.batch = 2, .time = 150, .channel = 48};
    example<float, bfloat16> p(e, 4, state_steps, layout::channels_last, bits);
    p.silu = p.has_resets = true;
    p.run(tiled{});
    const std::string whole = p.results();
    // From here on, `initial` is the state of the stream. Every piece updates it in place.
    std::int64_t t = 0;
    for (const std::int64_t steps : {1, 1, 2, 40, 3, 1, 64, 38}) {
      const auto from = [&](auto view) {
        view.data += t * view.strides.time, view.shape.time = steps;
        return view;
      };
      auto arrays = p.arrays();
      arrays.x = from(p.x.view());
      causal_conv1d(arrays, from(p.out.view()),
                    {.initial_state = p.initial.view(),
                     .final_state = p.initial.view(),
                     .resets = from(sequence_view<const bool>(p.reset_mask.get(),
                                                              {.batch = 2, .time = 150}))});
      t += steps;
    }
    REQUIRE(t == e.time);
    CHECK((p.out.elements() + p.initial.elements() == whole));
  }
}

TEST_CASE("a final state may overwrite the initial state", "[causal_conv1d]") {
  generator bits{11};
  for (const auto of : {layout::channels_last, layout::time_contiguous})
    for (const std::int64_t width : {4, 19, 70, 200}) {
      CAPTURE(static_cast<int>(of), width);
      example<float, float> p({.batch = 1, .time = 150, .channel = 40}, width, width + 1, of, bits);
      p.run(tiled{.threads = 2});
      const std::string want = p.results();
      causal_conv1d(tiled{.threads = 2}, p.arrays(), p.out.view(),
                    {.initial_state = p.initial.view(), .final_state = p.initial.view()});
      CHECK((p.out.elements() + p.initial.elements() == want));
    }
}

TEST_CASE("gradients have the same bits if other gradients are absent", "[causal_conv1d]") {
  generator bits{12};
  example<float, float> p({.batch = 2, .time = 50, .channel = 32}, 4, 3, layout::channels_last,
                          bits);
  p.silu = true;
  const auto arrays = p.arrays();
  causal_conv1d_vjp(
      arrays, p.out_grad.view(),
      {.x = p.x_grad.view(), .weight = p.weight_grad.state(), .bias = p.bias_grad.state()});
  const std::string x = p.x_grad.elements(), weight = p.weight_grad.elements(),
                    bias = p.bias_grad.elements();
  causal_conv1d_vjp(arrays, p.out_grad.view(), {.weight = p.weight_grad.state()});
  CHECK((p.weight_grad.elements() == weight));
  causal_conv1d_vjp(arrays, p.out_grad.view(), {.bias = p.bias_grad.state()});
  CHECK((p.bias_grad.elements() == bias));
  causal_conv1d_vjp(arrays, p.out_grad.view(), {.x = p.x_grad.view()});
  CHECK((p.x_grad.elements() == x));
}

TEST_CASE("a NaN stays in its sequence, its channel and the steps that its taps reach",
          "[causal_conv1d]") {
  const std::int64_t B = 2, T = 40, C = 33;
  const extents e{.batch = B, .time = T, .channel = C};
  for (const std::int64_t bad : {0, 9, 30}) {
    std::vector<float> x(static_cast<std::size_t>(B * T * C), 1), y = x, g = x, weight(C * 4, 1);
    const auto resets = std::make_unique<bool[]>(static_cast<std::size_t>(B * T));
    resets[T + 31] = true;  // in sequence 1, which contains the NaN
    const auto index = [&](auto b, auto t, auto c) {
      return static_cast<std::size_t>((b * T + t) * C + c);
    };
    x[index(1, bad, 7)] = std::numeric_limits<float>::quiet_NaN();
    const causal_conv1d_arrays<float> arrays{
        .x = sequence_view<const float>(x.data(), e),
        .weight = state_view<const float>(weight.data(), {.channel = C, .group = 4},
                                          {.channel = 4, .group = 1}),
        .activation = conv1d_activation::silu};
    const sequence_view<const bool> reset_mask(resets.get(), {.batch = B, .time = T});
    causal_conv1d(arrays, sequence_view<float>(y.data(), e), {.resets = reset_mask});
    std::vector<float> x_grad(x.size());
    causal_conv1d_vjp(arrays, sequence_view<const float>(g.data(), e),
                      {.x = sequence_view<float>(x_grad.data(), e)}, {.resets = reset_mask});
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t c = 0; c < C; ++c) {
          const bool column = b == 1 && c == 7;
          const auto one_sequence = [&](auto s, auto until) { return !(s < 31 && until >= 31); };
          const bool sees = column && t >= bad && t < bad + 4 && one_sequence(bad, t);
          // Inputs up to 3 steps before and after the NaN share an output with it.
          bool feels = false;
          for (std::int64_t at = t; at < t + 4; ++at)
            feels = feels || (column && at >= bad && at < bad + 4 && at < T &&
                              one_sequence(bad, at) && one_sequence(t, at));
          CAPTURE(bad, b, t, c);
          CHECK(std::isnan(y[index(b, t, c)]) == sees);
          CHECK(std::isnan(x_grad[index(b, t, c)]) == feels);
        }
  }
}

TEST_CASE("gradients of causal convolutions equal central differences", "[causal_conv1d]") {
  generator bits{8};
  for (const std::int64_t width : {2, 4}) {
    example<double, double> p({.batch = 2, .time = 21, .channel = 5}, width, width,
                              layout::channels_last, bits);
    p.silu = p.has_resets = true;
    p.run_vjp(tiled{});
    const auto loss = [&] {
      p.run(tiled{});
      double total = 0;
      std::vector<double> of;
      p.out_grad.each([&](double g) { of.push_back(g); });
      p.final_grad.each([&](double g) { of.push_back(g); });
      std::size_t i = 0;
      p.out.each([&](double y) { total += y * of[i++]; });
      p.final_state.each([&](double y) { total += y * of[i++]; });
      return total;
    };
    const auto compare = [&](auto& of, auto& gradient) {
      std::vector<double> want;
      of.each([&](double& x) { want.push_back(central_difference(x, loss)); });
      std::size_t i = 0;
      gradient.each([&](double g) {
        CHECK(std::abs(g - want.at(i)) <= 1e-8 * (1 + std::abs(want[i])));
        ++i;
      });
      CHECK(i == want.size());
    };
    compare(p.x, p.x_grad), compare(p.weight, p.weight_grad), compare(p.bias, p.bias_grad);
    compare(p.initial, p.initial_grad);
  }
}

TEST_CASE("update::accumulate adds to the gradients", "[causal_conv1d]") {
  generator bits{9};
  example<double, double> p({.batch = 1, .time = 40, .channel = 20}, 4, 3, layout::channels_last,
                            bits);
  p.run_vjp(tiled{});
  const auto values = [&] {
    std::vector<double> all;
    const auto take = [&](double x) { all.push_back(x); };
    p.x_grad.each(take), p.weight_grad.each(take), p.bias_grad.each(take);
    p.initial_grad.each(take);
    return all;
  };
  const std::vector<double> once = values();
  p.run_vjp(tiled{}, update::accumulate);
  const std::vector<double> twice = values();
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2 * once[i]);
}

TEST_CASE("causal convolutions reject invalid arguments by name", "[causal_conv1d]") {
  std::vector<float> x(60), y(60), w(20), state(15);
  const auto sequence = [](auto& of, std::int64_t time) {
    return sequence_view<float>(of.data(), {.batch = 1, .time = time, .channel = 5});
  };
  const auto arrays = [&] {
    return causal_conv1d_arrays<float>{
        .x = sequence(x, 12),
        .weight = state_view<const float>(w.data(), {.channel = 5, .group = 4},
                                          {.channel = 4, .group = 1})};
  };
  const auto with = [&](auto change) {
    auto a = arrays();
    causal_conv1d_options<float> options;
    auto out = sequence(y, 12);
    change(a, out, options);
    return refused([&] { causal_conv1d(a, out, options); });
  };
  CHECK(with([](auto&, auto&, auto&) {}).empty());
  CHECK(with([](auto& a, auto&, auto&) { a.x = {}; }) == "x");
  CHECK(with([](auto& a, auto&, auto&) { a.weight = state_view<const float>(); }) == "weight");
  CHECK(with([&](auto& a, auto&, auto&) {
          a.weight = state_view<const float>(w.data(), {.channel = 4, .group = 4});
        }) == "weight");
  CHECK(with([&](auto& a, auto&, auto&) {
          a.bias = state_view<const float>(w.data(), {.channel = 6});
        }) == "bias");
  CHECK(with([&](auto&, auto& out, auto&) { out = sequence(y, 11); }) == "out");
  CHECK(with([&](auto&, auto& out, auto&) { out = sequence(x, 12); }) == "out");
  CHECK(with([&](auto&, auto&, auto& o) { o.initial_state = sequence(state, 2); }) ==
        "initial_state");
  CHECK(with([&](auto&, auto&, auto& o) { o.final_state = sequence(y, 3); }) != "");
  const bool reset_mask[13] = {};
  CHECK(with([&](auto&, auto&, auto& o) {
          o.resets = sequence_view<const bool>(reset_mask, {.batch = 1, .time = 13});
        }) == "resets");
  const auto all = arrays();
  CHECK(refused([&] { causal_conv1d_vjp(all, sequence(y, 12), {.x = sequence(y, 12)}); }) ==
        "x_grad");
  CHECK(refused([&] {
          causal_conv1d_vjp(all, sequence(y, 12), {.initial_state = sequence(state, 3)},
                            {.initial_state = sequence(w, 4)});
        }) == "initial_grad");
  CHECK(refused([&] {
          causal_conv1d_vjp(all, sequence(y, 12), {.initial_state = sequence(state, 3)},
                            {.final_grad = sequence(state, 3)});
        }) == "initial_grad");
  // A caller-provided workspace.
  const auto needed = causal_conv1d_workspace_bytes(tiled{}, all, sequence(y, 12));
  std::vector<std::byte> memory(static_cast<std::size_t>(needed) + 64);
  void* pointer = memory.data();
  std::size_t room = memory.size();
  auto* const aligned =
      static_cast<std::byte*>(std::align(64, static_cast<std::size_t>(needed), pointer, room));
  CHECK(refused([&] {
          causal_conv1d(tiled{.workspace = {aligned, static_cast<std::size_t>(needed) - 1}}, all,
                        sequence(y, 12));
        }) == "workspace");
  causal_conv1d(tiled{.workspace = {aligned, static_cast<std::size_t>(needed)}}, all,
                sequence(y, 12));
}

}  // namespace
