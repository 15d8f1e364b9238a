// SPDX-License-Identifier: BSD-3-Clause
// Tests of selective scans and their adjoint. Results are within proven bounds of results in long
// double, in every layout and with random combinations of optional arrays. They have the same bits
// for any number of threads, in streams of chunks or single steps, and in sequences that resets
// separate. Gradients equal central differences.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/selective_scan.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "reference.hpp"
#include "refused.hpp"
#include "selective_calls.hpp"
#include "selective_golden.hpp"
#include "selective_reference.hpp"

namespace {

using namespace scanrec;
using selective_calls::all_orders;
using selective_calls::call;
using selective_calls::doubled;
using selective_calls::order;
using selective_calls::steps_of;
using selective_reference::problem;
using tested::refused;

template <class V, class S>
void check_random_problems(int count, std::uint64_t seed) {
  selective_calls::check_random_problems<V, S>(count, seed, tiled{.threads = 2});
}

TEST_CASE("selective scans are within the error bound, float", "[selective]") {
  check_random_problems<float, float>(60, 1);
}
TEST_CASE("selective scans are within the error bound, double", "[selective]") {
  check_random_problems<double, double>(40, 2);
}
TEST_CASE("selective scans are within the error bound, 16 bits", "[selective]") {
  check_random_problems<float, bfloat16>(30, 3);
  check_random_problems<float, float16>(30, 4);
}

TEST_CASE("selective scans are within the error bound, complex", "[selective]") {
  check_random_problems<std::complex<float>, float>(30, 5);
  check_random_problems<std::complex<float>, bfloat16>(15, 6);
  check_random_problems<std::complex<double>, double>(20, 7);
}

TEST_CASE("selective scans of many states are within the error bound", "[selective]") {
  problem p;
  p.shape = {.batch = 1, .time = 140, .channel = 18};
  for (const std::int64_t states : {40, 63, 256}) {
    p.states = states;
    call<float, float> many(p, order::channels_last, 17);
    many.run(tiled{});
    many.check();
  }
}

TEST_CASE("selective scans with several packs per task are within the error bound", "[selective]") {
  // There are enough packs for four per task, and each sequence has at least two tasks.
  problem p;
  p.shape = {.batch = 2 * detail::selective_policy::enough_strips, .time = 3, .channel = 81};
  p.states = 2, p.intervals = true;
  call<float, float> many(p, order::channels_last, 20);
  many.run(tiled{.threads = 2});
  many.check();
}

/// The usual problem with intervals.
problem usual() {
  problem p = selective_calls::usual();
  p.intervals = true;
  return p;
}

template <class V>
void check_bits() {
  for (const bool reverse : {false, true}) {
    problem p = usual();
    if (reverse) p.order = direction::reverse;
    call<V, float> one(p, order::channels_last, 7);
    one.run(tiled{.threads = 1});
    for (const int threads : {2, 3, 8}) {
      call<V, float> many(p, order::channels_last, 7);
      many.run(tiled{.threads = threads}, threads != 3);
      CHECK(many.got == one.got);
    }
    // The sequential backend groups the terms of sums differently, so gradients that are sums are
    // checked only against the bound.
    call<V, float> plain(p, order::channels_last, 7);
    plain.run(sequential{});
    CHECK(plain.got.out == one.got.out);
    CHECK(plain.got.final_state == one.got.final_state);
    CHECK(plain.got.checkpoints == one.got.checkpoints);
    CHECK(plain.got.u == one.got.u);
    CHECK(plain.got.delta == one.got.delta);
    CHECK(plain.got.z == one.got.z);
    CHECK(plain.got.initial == one.got.initial);
    plain.check();
  }
}

TEST_CASE("the bits do not depend on threads or on the presence of checkpoints", "[selective]") {
  check_bits<float>();
  check_bits<std::complex<float>>();
}

TEST_CASE("sums over channels keep groups and neighbouring intervals separate", "[selective]") {
  // Threads may add to these sums in any order. Here all sums are started before any is finished.
  const std::int64_t batch = 2, steps = 2 * memory::checkpoint_interval, states = 3, groups = 2;
  std::vector<float> grad(static_cast<std::size_t>(batch * steps * groups * states));
  detail::selective_problem<float> p;
  p.batch = batch, p.time = steps, p.channels = groups, p.states = states, p.groups = groups;
  detail::bc_array<float> of_b;
  of_b.steps = {
      reinterpret_cast<std::byte*>(grad.data()),
      {.batch = steps * groups * states, .time = groups * states, .channel = 1, .group = states},
      &detail::rows_of<float, float>};
  using totals = detail::bc_totals<float>;
  const detail::selective_plan plan(p, totals::width, 1);
  detail::arena size;
  totals(p, plan, of_b, false, size);
  std::vector<double> memory(static_cast<std::size_t>(size.bytes()) / sizeof(double));
  detail::arena room(reinterpret_cast<std::byte*>(memory.data()));
  const totals sums(p, plan, of_b, false, room);

  const auto value = [](std::int64_t group, std::int64_t interval) {
    return static_cast<float>(10 * group + interval);
  };
  const auto for_all = [&](auto f) {
    for (std::int64_t group = 0; group < batch * groups; ++group)
      for (std::int64_t k = 0; k < 2; ++k)
        f(group, k,
          detail::selective_position{.begin = k * memory::checkpoint_interval,
                                     .end = (k + 1) * memory::checkpoint_interval});
  };
  for_all([&](std::int64_t group, std::int64_t k, const detail::selective_position& at) {
    const std::vector<float> strip(
        static_cast<std::size_t>(memory::checkpoint_interval * totals::width), value(group, k));
    sums.add(group, at, true, strip.data());
  });
  for_all([&](std::int64_t group, std::int64_t, const detail::selective_position& at) {
    sums.put(group, at);
  });
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t g = 0; g < groups; ++g)
        for (std::int64_t n = 0; n < states; ++n)
          CHECK(grad[static_cast<std::size_t>(((b * steps + t) * groups + g) * states + n)] ==
                value(b * groups + g, t / memory::checkpoint_interval));
}

TEST_CASE("the layout of arrays changes no bit of the results", "[selective]") {
  call<float, bfloat16> first(usual(), order::channels_last, 8);
  first.run(tiled{});
  for (const order lies : all_orders) {
    call<float, bfloat16> other(usual(), lies, 8);
    other.run(tiled{});
    CHECK(selective_calls::bits_of(first) == selective_calls::bits_of(other));
    CHECK(first.got.a == other.got.a);
  }
}

/// Compares streams with whole sequences. There is a separate kernel for single steps if the number
/// of states is a multiple of a pack.
template <class V>
void check_streams() {
  for (const std::int64_t states : {6, 16, 48})
    for (const order lies : {order::channels_last, order::time_contiguous}) {
      problem p = usual();
      p.resets = 0, p.states = states;
      call<V, V> whole(p, lies, 9);
      whole.run(tiled{});
      for (const std::int64_t piece : {1, 7, 130}) {
        call<V, V> parts(p, lies, 9);
        auto& state = parts.in.initial;
        for (std::int64_t t = 0; t < p.shape.time; t += piece) {
          const std::int64_t end = std::min(t + piece, p.shape.time);
          selective_scan(steps_of(parts, t, end), parts.got.out.sequence().steps(t, end),
                         {.initial_state = state.state(), .final_state = state.state()});
        }
        CHECK(parts.got.out == whole.got.out);
        CHECK(state.elements == whole.got.final_state.elements);
      }
    }
}

TEST_CASE("chunks and single steps of a stream have the bits of the whole sequence",
          "[selective]") {
  check_streams<float>();
  check_streams<double>();
}

TEST_CASE("a step without an initial state has the bits of a step from zeros", "[selective]") {
  problem p = usual();
  p.resets = 0, p.states = 16, p.shape.time = 1;
  call<float, float> absent(p, order::channels_last, 9), zeros(p, order::channels_last, 9);
  std::fill(zeros.in.initial.elements.begin(), zeros.in.initial.elements.end(), 0.0f);
  selective_scan(absent.arrays(), absent.got.out.sequence());
  selective_scan(zeros.arrays(), zeros.got.out.sequence(),
                 {.initial_state = zeros.in.initial.state()});
  CHECK(absent.got.out == zeros.got.out);
}

TEST_CASE("a reset has the bits of a new sequence", "[selective]") {
  for (const bool reverse : {false, true}) {
    problem p = usual();
    p.resets = 1, p.initial = false;
    p.order = reverse ? direction::reverse : direction::forward;
    call<float, float> packed(p, order::channels_last, 10), apart(p, order::channels_last, 10);
    constexpr std::int64_t ends[]{0, 1, 77, 205, 300};
    for (std::int64_t i = 0; i < 600; ++i) packed.in.reset_mask[i] = false;
    for (const std::int64_t b : {0, 1})
      for (const std::int64_t t : {0, 1, 77, 205}) packed.in.reset_mask[b * 300 + t] = true;
    // No gradient crosses a reset, so the parts run without final_grad.
    packed.in.final_grad = {}, apart.in.final_grad = {};
    packed.run(tiled{});
    for (int i = 0; i + 1 < 5; ++i) {
      const std::int64_t t = ends[i], end = ends[i + 1];
      auto gradients = apart.gradients();
      gradients.u = apart.got.u.sequence().steps(t, end);
      gradients.delta = apart.got.delta.sequence().steps(t, end);
      gradients.z = apart.got.z.sequence().steps(t, end);
      gradients.b.steps = apart.got.b.steps.sequence().steps(t, end);
      gradients.c.steps = apart.got.c.steps.sequence().steps(t, end);
      gradients.intervals = apart.got.intervals.sequence().steps(t, end);
      selective_scan(steps_of(apart, t, end), apart.got.out.sequence().steps(t, end),
                     {.order = p.order});
      selective_scan_vjp(steps_of(apart, t, end), apart.in.out_grad.sequence().steps(t, end),
                         gradients, {.order = p.order});
    }
    CHECK(packed.got.out == apart.got.out);
    CHECK(packed.got.u == apart.got.u);
    CHECK(packed.got.delta == apart.got.delta);
    CHECK(packed.got.z == apart.got.z);
    CHECK(packed.got.b == apart.got.b);
    CHECK(packed.got.c == apart.got.c);
    CHECK(packed.got.intervals == apart.got.intervals);
  }
}

TEST_CASE("a NaN stays in its channel and ends at a reset", "[selective]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  problem p = usual();
  p.resets = 1;
  const auto make = [&] {
    call<float, float> c(p, order::channels_last, 11);
    for (std::int64_t i = 0; i < 600; ++i) c.in.reset_mask[i] = i % 300 == 250;
    return c;
  };
  auto good = make(), bad = make();
  bad.in.u.at(1, 200, 17, 0) = nan;
  // A NaN in B reaches all channels of its group.
  bad.in.b.steps.at(0, 100, 1, 2) = nan;
  good.run(tiled{}), bad.run(tiled{});
  const auto touched = [&](std::int64_t b, std::int64_t t, std::int64_t d) {
    return b == 1 ? d == 17 && t >= 200 && t < 250 : d >= 21 && t >= 100 && t < 250;
  };
  int wrong = 0, wrong_gradients = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 300; ++t)
      for (std::int64_t d = 0; d < 42; ++d) {
        const float is = bad.got.out.at(b, t, d, 0), was = good.got.out.at(b, t, d, 0);
        wrong += touched(b, t, d) ? !std::isnan(is) : is != was;
        // The NaN in u of sequence 1 must not reach gradients of u in other channels.
        const float of_u = bad.got.u.at(b, t, d, 0), of_u_was = good.got.u.at(b, t, d, 0);
        wrong_gradients += b == 1 && d != 17 && of_u != of_u_was;
      }
  CHECK(wrong == 0);
  CHECK(wrong_gradients == 0);
  // After the reset the gradient of C has no NaN, because lanes past the last channel are reset,
  // too.
  for (std::int64_t t = 250; t < 300; ++t)
    for (std::int64_t n = 0; n < 6; ++n)
      CHECK(bad.got.c.steps.at(0, t, 1, n) == good.got.c.steps.at(0, t, 1, n));
}

/// Compares gradients with central differences. Real and imaginary parts of complex numbers are
/// varied separately.
template <class V>
void check_central_differences(int count, std::uint64_t seed) {
  reference::generator bits{seed};
  for (int i = 0; i < count; ++i) {
    problem p = selective_calls::random_problem(bits);
    p.shape.time = 1 + p.shape.time % 40, p.shape.batch = 2;
    p.shape.channel = 2 * p.groups, p.states = 1 + p.states % 5;
    INFO("problem " << i << ": " << selective_calls::to_string(p));
    call<V, double> c(p, order::channels_last, bits());
    c.run(tiled{}, false);
    const auto loss = [&] {
      selective_scan(c.arrays(), c.got.out.sequence(), c.options());
      double sum = 0;
      for (std::size_t k = 0; k < c.got.out.elements.size(); ++k)
        sum += c.got.out.elements[k] * c.in.out_grad.elements[k];
      for (std::size_t k = 0; k < c.got.final_state.elements.size(); ++k) {
        const std::complex<double> x = c.got.final_state.elements[k];
        sum += (std::conj(x) * c.in.final_grad.elements[k]).real();
      }
      return sum;
    };
    const auto compare = [&](const char* name, auto& of, const auto& gradient) {
      constexpr std::size_t parts = sizeof(of.elements[0]) / sizeof(double);
      auto* const numbers = reinterpret_cast<double*>(of.elements.data());
      const auto* const got = reinterpret_cast<const double*>(gradient.elements.data());
      for (std::size_t n = 0; n < 6 && !of.absent(); ++n) {
        const std::size_t k = bits() % (parts * of.elements.size());
        const double was = loss(), want = central_difference(numbers[k], loss);
        INFO(name << ", number " << k);
        CHECK(std::abs(got[k] - want) <= 1e-7 * (1 + std::abs(want) + std::abs(was)));
      }
    };
    compare("u", c.in.u, c.got.u), compare("delta", c.in.delta, c.got.delta);
    compare("a", c.in.a, c.got.a), compare("d", c.in.d, c.got.d);
    compare("z", c.in.z, c.got.z), compare("bias", c.in.bias, c.got.bias);
    compare("intervals", c.in.intervals, c.got.intervals);
    compare("b", c.in.b.steps, c.got.b.steps), compare("b", c.in.b.channels, c.got.b.channels);
    compare("c", c.in.c.steps, c.got.c.steps), compare("c", c.in.c.channels, c.got.c.channels);
    compare("b", c.in.b.imaginary, c.got.b.imaginary);
    compare("c", c.in.c.imaginary, c.got.c.imaginary);
    compare("initial", c.in.initial, c.got.initial);
  }
}

TEST_CASE("gradients equal central differences", "[selective]") {
  check_central_differences<double>(12, 12);
  check_central_differences<std::complex<double>>(8, 18);
}

TEST_CASE("complex B and C may be one array or separate parts", "[selective]") {
  problem p = usual();
  p.d = p.z = p.intervals = false;
  call<std::complex<float>, float> of(p, order::channels_last, 19);
  of.run(tiled{});
  const extents shape = of.in.b.steps.shape;
  std::vector<std::complex<float>> b, b_grad(of.in.b.steps.elements.size());
  for (std::size_t i = 0; i < b_grad.size(); ++i)
    b.emplace_back(of.in.b.steps.elements[i], of.in.b.imaginary.elements[i]);
  const auto whole = [&](auto& x) {
    return sequence_view<std::complex<float>>(x.data(), shape, of.in.b.steps.strides);
  };
  const auto out = of.got.out;
  auto arrays = of.arrays();
  arrays.b = whole(b);
  selective_scan(arrays, of.got.out.sequence(), of.options());
  CHECK(of.got.out == out);
  arrays.b.imaginary = {};
  CHECK(refused([&] { selective_scan(arrays, of.got.out.sequence(), of.options()); }) == "b");
  arrays.b = whole(b);
  selective_scan_vjp(arrays, of.in.out_grad.sequence(), {.b = whole(b_grad)}, of.vjp_options());
  for (std::size_t i = 0; i + 1 < b_grad.size(); ++i) {
    const bool own = of.got.b.steps.elements[i] != 0.25f;  // gaps hold 0.25
    if (own) CHECK(b_grad[i].real() == of.got.b.steps.elements[i]);
    if (own) CHECK(b_grad[i].imag() == of.got.b.imaginary.elements[i]);
  }
}

TEST_CASE("gradients accumulate, alias their inputs and accept empty shapes", "[selective]") {
  problem p = usual();
  p.shape.channel = 10;
  call<double, double> once(p, order::time_contiguous, 13), twice(p, order::time_contiguous, 13);
  once.run(tiled{}), twice.run(tiled{});
  auto gradients = twice.gradients();
  gradients.update = update::accumulate;
  selective_scan_vjp(twice.arrays(), twice.in.out_grad.sequence(), gradients, twice.vjp_options());
  CHECK(doubled(once.got.u, twice.got.u));
  CHECK(doubled(once.got.a, twice.got.a));
  CHECK(doubled(once.got.b.steps, twice.got.b.steps));
  CHECK(doubled(once.got.initial, twice.got.initial));
  CHECK(doubled(once.got.bias, twice.got.bias));
  CHECK(doubled(once.got.intervals, twice.got.intervals));

  // The gradient of delta overwrites delta; the output overwrites u.
  call<double, double> in_place(p, order::time_contiguous, 13);
  gradients = in_place.gradients();
  gradients.delta = in_place.in.delta.sequence();
  selective_scan_vjp(in_place.arrays(), in_place.in.out_grad.sequence(), gradients,
                     in_place.vjp_options(false));
  CHECK(in_place.in.delta.elements == once.got.delta.elements);
  call<double, double> over(p, order::time_contiguous, 13);
  selective_scan(over.arrays(), over.in.u.sequence(), over.options());
  CHECK(over.in.u.elements == once.got.out.elements);

  for (const extents shape : {extents{2, 0, 5}, extents{0, 9, 5}, extents{2, 9, 0}}) {
    problem empty;
    empty.shape = shape, empty.states = 3;
    call<float, float> c(empty, order::channels_last, 14);
    c.run(tiled{});
    c.check();
  }
}

template <class V, class S>
void check_in_place() {
  problem p = usual();
  p.shape.channel = 10;
  const auto make = [&] { return call<V, S>(p, order::time_contiguous, 13); };
  auto apart = make();
  apart.run(tiled{});
  // The output overwrites the input that `choose` selects. The other results stay the same.
  const auto check_out = [&](const char* name, auto choose) {
    auto c = make();
    auto& over = choose(c.in);
    selective_scan(c.arrays(), over.sequence(), c.options());
    INFO("out over " << name);
    CHECK(over == apart.got.out);
    CHECK(c.got.final_state == apart.got.final_state);
    CHECK(c.got.checkpoints == apart.got.checkpoints);
  };
  check_out(
      "u", [](auto& in) -> auto& { return in.u; });
  check_out(
      "delta", [](auto& in) -> auto& { return in.delta; });
  check_out(
      "z", [](auto& in) -> auto& { return in.z; });

  auto streamed = make();
  auto options = streamed.options();
  options.final_state = streamed.in.initial.state();
  selective_scan(streamed.arrays(), streamed.got.out.sequence(), options);
  CHECK(streamed.got.out == apart.got.out);
  CHECK(streamed.in.initial == apart.got.final_state);

  // A gradient overwrites an input, with and without checkpoints.
  const auto check_grad = [&](const char* name, auto choose, auto result, auto set) {
    for (const bool kept : {true, false}) {
      auto c = make();
      selective_scan(c.arrays(), c.got.out.sequence(), c.options());
      auto gradients = c.gradients();
      auto& over = choose(c.in);
      set(gradients, over);
      selective_scan_vjp(c.arrays(), c.in.out_grad.sequence(), gradients, c.vjp_options(kept));
      result(c.got) = over;
      INFO(name << (kept ? ", checkpoints" : ""));
      CHECK(c.got == apart.got);
    }
  };
  const auto set_u = [](auto& g, auto& over) { g.u = over.sequence(); };
  const auto result_u = [](auto& got) -> auto& { return got.u; };
  check_grad(
      "u_grad over u", [](auto& in) -> auto& { return in.u; }, result_u, set_u);
  check_grad(
      "u_grad over out_grad", [](auto& in) -> auto& { return in.out_grad; }, result_u, set_u);
  check_grad(
      "delta_grad over delta", [](auto& in) -> auto& { return in.delta; },
      [](auto& got) -> auto& { return got.delta; },
      [](auto& g, auto& over) { g.delta = over.sequence(); });
  check_grad(
      "z_grad over z", [](auto& in) -> auto& { return in.z; },
      [](auto& got) -> auto& { return got.z; }, [](auto& g, auto& over) { g.z = over.sequence(); });
  check_grad(
      "initial_grad over final_grad", [](auto& in) -> auto& { return in.final_grad; },
      [](auto& got) -> auto& { return got.initial; },
      [](auto& g, auto& over) { g.initial_state = over.state(); });
}

TEST_CASE("results that alias arguments have the bits of separate results", "[selective]") {
  check_in_place<double, double>();
  check_in_place<float, float>();
}

TEST_CASE("a caller-provided workspace changes no bit", "[selective]") {
  const problem p = usual();
  call<float, float> own(p, order::channels_last, 15), given(p, order::channels_last, 15);
  own.run(tiled{.threads = 2});
  const tiled two{.threads = 2};
  const std::int64_t forward = selective_scan_workspace_bytes(
                         two, given.arrays(), given.got.out.sequence(), given.options()),
                     back = selective_scan_vjp_workspace_bytes(
                         two, given.arrays(), given.in.out_grad.sequence(), given.gradients(),
                         given.vjp_options());
  std::vector<std::byte> memory(static_cast<std::size_t>(std::max(forward, back)) + 64);
  const std::size_t gap = -reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const std::span<std::byte> all(memory.data() + gap, memory.size() - 64);
  given.run(tiled{.threads = 2, .workspace = all});
  CHECK(given.got == own.got);
  CHECK_THROWS_AS(given.run(tiled{.threads = 2, .workspace = all.first(64)}), argument_error);
}

namespace {

/// Parallel efficiency: the work of all tasks divided by `threads` times the finishing time.
/// Threads claim tasks in order and wait for the previous interval of the same channels.
double efficiency_of(const detail::selective_plan& plan, int threads) {
  std::vector<double> free(static_cast<std::size_t>(threads));
  std::vector<double> done(static_cast<std::size_t>(plan.strips()));
  double work = 0;
  for (std::int64_t n = 0; n < plan.checkpoint_intervals; ++n)
    for (std::int64_t strip = 0; strip < plan.strips(); ++strip) {
      double task = 0;
      plan.for_packs(strip, n, [&](const detail::selective_position& at, std::int64_t) {
        task += static_cast<double>(at.end - at.begin);
      });
      double& worker = *std::min_element(free.begin(), free.end());
      double& before = done[static_cast<std::size_t>(strip)];
      worker = before = std::max(worker, before) + task;
      work += task;
    }
  return work / (*std::max_element(free.begin(), free.end()) * threads);
}

}  // namespace

TEST_CASE("selective scans keep one thread per 16 channels busy", "[selective]") {
  reference::generator bits{11};
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(bits() % most);
  };
  int shapes = 0;
  for (int i = 0; i < 400; ++i) {
    detail::selective_problem<float> p;
    p.states = 16;
    p.groups = up_to(3);
    p.batch = up_to(6), p.channels = p.groups * up_to(1500), p.time = 2048 + up_to(2048);
    for (const int threads : {8, 32, 64, 128}) {
      const detail::selective_plan plan(p, 16, threads);
      if (plan.packs() * 16 * p.time * p.states < (1 << 22) || 4 * plan.packs() < 3 * threads)
        continue;
      CAPTURE(p.batch, p.time, p.channels, p.groups, plan.strip_packs, threads);
      CHECK(plan.workers == std::min<std::int64_t>(threads, plan.strips()));
      CHECK(4 * plan.workers >= 3 * threads);
      CHECK(efficiency_of(plan, threads) >= 0.7);
      ++shapes;
    }
  }
  CHECK(shapes > 1000);
}

TEST_CASE("selective scans reject invalid arguments", "[selective][errors]") {
  call<float, float> c(usual(), order::channels_last, 16);
  const auto forward = [&](auto change) {
    return refused([&] {
      auto arrays = c.arrays();
      auto options = c.options();
      stored_sequence<float> out = c.got.out.sequence();
      change(arrays, options, out);
      selective_scan(arrays, out, options);
    });
  };
  const auto back = [&](auto change) {
    return refused([&] {
      auto gradients = c.gradients();
      auto options = c.vjp_options();
      change(gradients, options);
      selective_scan_vjp(c.arrays(), c.in.out_grad.sequence(), gradients, options);
    });
  };
  std::vector<float> some(1 << 16);
  const auto sequence = [&](extents e) { return sequence_view<float>(some.data(), e); };
  const auto state = [&](extents e) { return state_view<float>(some.data(), e); };
  CHECK(forward([](auto&, auto&, auto&) {}).empty());
  CHECK(forward([](auto& a, auto&, auto&) { a.u = {}; }) == "u");
  CHECK(forward([](auto& a, auto&, auto&) { a.delta = {}; }) == "delta");
  CHECK(forward([&](auto& a, auto&, auto&) { a.delta = sequence({2, 300, 41}); }) == "delta");
  CHECK(forward([&](auto& a, auto&, auto&) { a.a = state({.channel = 41, .group = 6}); }) == "a");
  CHECK(forward([&](auto& a, auto&, auto&) { a.a = {}; }) == "a");
  const std::int64_t too_many = std::int64_t{1} << 31;
  CHECK(forward([&](auto& a, auto&, auto&) { a.a = state({.channel = 41, .group = too_many}); }) ==
        "a");
  CHECK(forward([&](auto& a, auto&, auto&) {
          a.b = sequence({.batch = 2, .time = 300, .channel = 5, .group = 6});
        }) == "b");
  CHECK(forward([&](auto& a, auto&, auto&) {
          a.c = sequence({.batch = 2, .time = 300, .channel = 1, .group = 6});
        }) == "c");
  CHECK(forward([&](auto& a, auto&, auto&) {
          a.c = sequence({.batch = 2, .time = 300, .channel = 2, .group = 5});
        }) == "c");
  CHECK(forward([&](auto& a, auto&, auto&) { a.b = state({.channel = 42, .group = 5}); }) == "b");
  CHECK(forward([&](auto& a, auto&, auto&) { a.b.channels = a.a; }) == "b");
  CHECK(forward([&](auto& a, auto&, auto&) { a.b.imaginary = a.b.steps; }) == "b");
  CHECK(forward([&](auto& a, auto&, auto&) { a.d = state({.channel = 1}); }) == "d");
  CHECK(forward([&](auto& a, auto&, auto&) { a.delta_bias = state({.channel = 2}); }) ==
        "delta_bias");
  CHECK(forward([&](auto& a, auto&, auto&) { a.z = sequence({2, 300, 1}); }) == "z");
  CHECK(forward([&](auto&, auto&, auto& out) { out = sequence({2, 299, 42}); }) == "out");
  CHECK(forward([&](auto&, auto&, auto& out) {
          out = sequence_view<float>(some.data(), {2, 300, 42}, {.time = 42, .channel = 1});
        }) == "out");
  CHECK(forward([&](auto&, auto&, auto& out) { out = c.in.b.steps.sequence(); }) == "out");
  CHECK(forward([&](auto& a, auto&, auto& out) {
          out = sequence_view<float>(some.data(), {2, 300, 42});
          a.u = sequence_view<float>(some.data() + 1, {2, 300, 42});
        }) == "out");
  CHECK(forward([&](auto&, auto& o, auto&) {
          o.initial_state = state({.batch = 2, .channel = 42, .group = 5});
        }) == "initial_state");
  CHECK(forward([&](auto&, auto& o, auto&) {
          o.checkpoints = sequence({.batch = 2, .time = 3, .channel = 42, .group = 6});
        }) == "checkpoints");
  const bool mark = false;
  CHECK(forward([&](auto&, auto& o, auto&) { o.resets = {&mark, {2, 298, 42}, {}}; }) == "resets");
  CHECK(forward([&](auto& a, auto&, auto&) {
          a.intervals = sequence({2, 300, 42});
        }) == "intervals");
  CHECK(back([](auto&, auto&) {}).empty());
  CHECK(back([&](auto& g, auto&) { g.intervals = sequence({1, 300, 1}); }) == "intervals_grad");
  CHECK(back([&](auto& g, auto&) { g.b = state({.channel = 42, .group = 6}); }) == "b_grad");
  CHECK(back([&](auto& g, auto&) { g.u = g.delta; }) != "");
  CHECK(back([&](auto& g, auto&) { g.a = state({.channel = 42, .group = 7}); }) == "a_grad");
  CHECK(back([&](auto&, auto& o) {
          o.final_grad = state({.batch = 1, .channel = 42, .group = 6});
        }) == "final_grad");
}

TEST_CASE("selective scans have the golden bits", "[.golden]") {
  using selective_calls::check_golden;
  check_golden<float, float>("float, sequential", sequential{});
  for (const int threads : {1, 3}) {
    const tiled on{.threads = threads};
    check_golden<float, float>("float, tiled", on);
    check_golden<double, double>("double, tiled", on);
    check_golden<float, bfloat16>("bfloat16, tiled", on);
    check_golden<std::complex<float>, float>("complex_float, tiled", on);
  }
}

}  // namespace
