// SPDX-License-Identifier: BSD-3-Clause
// Tests of linear attention. Errors for random problems are at most twice those of a loop over
// steps, and no access leaves an array. Bits do not depend on threads, on the pieces of a stream or
// on packing. Also covers resets, NaN, special cases, values of ONNX and invalid arguments. The
// tests of the adjoint are in linear_attention_vjp_test.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <scanrec/linear_attention.hpp>
#include <scanrec/linear_scan.hpp>

#include "catch.hpp"
#include "linear_attention_calls.hpp"
#include "linear_attention_golden.hpp"
#include "onnx_linear_attention.hpp"
#include "refused.hpp"

namespace {

using namespace scanrec;
using attention_calls::call;
using attention_calls::element;
using attention_calls::layout;
using attention_calls::loop;
using attention_calls::problem;
using attention_calls::stored_array;
using reference::generator;
using tested::refused;

// ---- values -----------------------------------------------------------------------------------

template <class V>
void check_random_problems(int count, element types, double most, std::uint64_t seed) {
  generator bits{seed};
  for (int i = 0; i < count; ++i) {
    const problem p = attention_calls::random_problem(bits, most);
    const auto lies = static_cast<layout>(bits() % 3);
    const call<V> c(p, lies, types, bits);
    const tiled on{.threads = 1 + static_cast<int>(bits() % 3)};
    INFO("problem " << i << ": " << to_string(p) << ", layout " << static_cast<int>(lies));
    c.run(on), c.check();
    const std::string results = c.results();
    c.run(sequential{});
    CHECK((c.results() == results));
  }
}

TEST_CASE("errors are at most twice those of a loop over steps, float", "[linear_attention]") {
  check_random_problems<float>(300, element::own, 2e6, 1);
}
TEST_CASE("errors are at most twice those of a loop over steps, mixed types",
          "[linear_attention]") {
  check_random_problems<float>(300, element::mixed, 1e6, 2);
}
TEST_CASE("errors are at most twice those of a loop over steps, double", "[linear_attention]") {
  check_random_problems<double>(120, element::own, 5e5, 3);
}

TEST_CASE("errors do not grow in long sequences with slow decay", "[linear_attention]") {
  generator bits{4};
  for (const unsigned which : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const bool factors = (which & 1) != 0, beta = (which & 2) != 0;
    problem p{.time = 16384, .dk = 8, .dv = 5, .gate = true, .factors = factors, .beta = beta};
    p.normalise = true, p.key_gates = (which & 4) != 0;
    call<float> c(p, layout::heads_inside, element::own, bits);
    // Rounded products of equal decays have errors that add up.
    c.in.gate = c.gate.fill([&](auto...) { return factors ? 0.99991 : -1e-4; });
    INFO(to_string(p));
    c.run(tiled{}), c.check();
  }
}

TEST_CASE("a product of all gates that overflows is no factor of a state of 0",
          "[linear_attention]") {
  generator bits{23};
  for (const unsigned which : {0, 1, 2, 3}) {
    const bool beta = (which & 1) != 0;
    // 16^31 is finite and 16^32 is not; only the first value is not 0.
    problem p{.time = 32, .dk = 3, .dv = 20, .gate = true, .factors = true, .beta = beta};
    p.key_gates = (which & 2) != 0;
    call<float> c(p, layout::heads_inside, element::own, bits);
    c.in.gate = c.gate.fill([](auto...) { return 16.0; });
    c.in.v = c.v.fill([](auto, auto t, auto...) { return t == 0 ? 1.0 : 0.0; });
    if (beta) c.in.beta = c.beta.fill([](auto, auto t, auto...) { return t == 0 ? 1.0 : 0.0; });
    c.run(tiled{});
    CHECK(std::isfinite(c.out.get(0, 31, 19, 0)));
    c.check();
  }
}

// ---- bits -------------------------------------------------------------------------------------

TEST_CASE("linear attention has the same bits for any number of threads", "[linear_attention]") {
  generator bits{5};
  for (const unsigned which : {0, 1, 2, 3})
    for (const std::int64_t heads : {1, 3}) {
      const bool beta = (which & 1) != 0;
      problem p{.time = 70, .dk = 37, .dv = 200, .heads = heads, .query_heads = 2 * heads};
      p.batch = heads == 1 ? 1 : 2, p.key_gates = (which & 2) != 0;
      p.gate = p.initial = true, p.beta = beta, p.interval = 32, p.resets = 1;
      const call<float> c(p, layout::heads_outside, element::mixed, bits);
      c.run(sequential{});
      const std::string results = c.results();
      for (const int threads : {1, 2, 3, 5, 16}) {
        c.run(tiled{.threads = threads});
        CAPTURE(which, heads, threads);
        CHECK((c.results() == results));
      }
    }
}

TEST_CASE("a sequence of a packed batch has the bits that it has alone", "[linear_attention]") {
  generator bits{6};
  const std::vector<std::int64_t> ends{0, 5, 37, 70, 71, 135, 170};
  for (const direction order : {direction::forward, direction::reverse})
    for (const unsigned which : {0, 1, 2, 3}) {
      const bool beta = (which & 1) != 0;
      problem p{.time = ends.back(), .dk = 19, .dv = 33, .heads = 2, .query_heads = 4};
      p.gate = p.initial = true, p.beta = beta, p.order = order, p.resets = 1;
      p.key_gates = (which & 2) != 0;
      call<float> packed(p, layout::heads_inside, element::mixed, bits);
      for (std::size_t t = 0; t < packed.in.resets.size(); ++t)
        packed.in.resets[t] = t > 0 && std::find(ends.begin(), ends.end(),
                                                 static_cast<std::int64_t>(t)) != ends.end();
      packed.copy_resets();
      packed.run(tiled{.threads = 2});
      const std::string results = packed.results();
      // The first sequence in scan order has the initial state. The last one has the final state.
      for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
        const bool reverse = order == direction::reverse;
        linear_attention_options<float> options{.order = order};
        if (i == (reverse ? ends.size() - 2 : 0))
          options.initial_state = packed.initial.view<const float>();
        if (i == (reverse ? 0 : ends.size() - 2)) options.final_state = packed.final_state.view();
        linear_attention(packed.arrays(ends[i], ends[i + 1]), packed.out.view(ends[i], ends[i + 1]),
                         options);
      }
      CHECK((packed.results() == results));
    }
}

TEST_CASE("a stream in calls of multiples of 32 steps has the bits of one call",
          "[linear_attention]") {
  generator bits{7};
  for (const direction order : {direction::forward, direction::reverse})
    for (const unsigned which : {0, 1, 2, 3}) {
      const bool beta = (which & 1) != 0;
      problem p{.batch = 2, .time = 32 * 9 + 5, .dk = 17, .dv = 23, .heads = 2, .key_heads = 2};
      p.query_heads = 2, p.gate = p.initial = true, p.beta = beta, p.order = order;
      p.key_gates = (which & 2) != 0;
      const call<float> c(p, layout::heads_inside, element::own, bits);
      c.run(tiled{});
      const std::string out = c.out.elements(), last = c.final_state.elements();
      const stored_sequence<float> state = c.initial.view();
      // From here on, `initial` is the state of the stream. Every call updates it in place.
      std::int64_t n = 0;
      for (const std::int64_t chunks : {1, 2, 1, 4, 2}) {
        const std::int64_t end = std::min(n + 32 * chunks, p.time);
        const bool reverse = order == direction::reverse;
        const std::int64_t from = reverse ? p.time - end : n, to = reverse ? p.time - n : end;
        linear_attention(
            c.arrays(from, to), c.out.view(from, to),
            {.order = order, .initial_state = c.initial.view<const float>(), .final_state = state});
        n = end;
      }
      REQUIRE(n == p.time);
      CHECK((c.out.elements() == out));
      CHECK((c.initial.elements() == last));
    }
}

TEST_CASE("stored states have the bits of the final states of shorter calls",
          "[linear_attention]") {
  generator bits{8};
  for (const direction order : {direction::forward, direction::reverse})
    for (const int which : {0, 1, 2, 3, 4, 5}) {
      const std::int64_t interval = 32 * (1 + which / 2);
      problem p{.batch = 2, .time = 200, .dk = 9, .dv = 18, .heads = 2, .query_heads = 2};
      p.gate = p.initial = true, p.beta = interval != 64, p.order = order, p.interval = interval;
      p.key_gates = which % 2 == 1;
      const call<float> c(p, layout::heads_outside, element::own, bits);
      c.run(tiled{});
      for (std::int64_t i = 0; i < p.intervals(); ++i) {
        const std::int64_t steps = (i + 1) * interval;
        const std::int64_t from = order == direction::reverse ? p.time - steps : 0;
        linear_attention(c.arrays(from, from + steps), {},
                         {.order = order,
                          .initial_state = c.initial.view<const float>(),
                          .final_state = c.final_state.view()});
        int wrong = 0;
        c.final_state.for_all([&](auto b, auto k, auto j, auto h) {
          wrong += c.states.get(b * p.intervals() + i, k, j, h) != c.final_state.get(b, k, j, h);
        });
        CAPTURE(interval, i);
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("the layout of arrays changes no bit of the results", "[linear_attention]") {
  // States of short calls are read and written in place if their rows are contiguous.
  generator bits{21};
  for (const std::int64_t time : {1, 5, 32, 33, 70})
    for (const std::int64_t dv : {32, 33})
      for (const unsigned which : {0, 1, 2, 3}) {
        const bool initial = (which & 1) != 0;
        problem p{.batch = 2, .time = time, .dk = 18, .dv = dv, .heads = 4, .query_heads = 8};
        p.gate = true, p.beta = bits() % 2 == 0, p.key_gates = (which & 2) != 0,
        p.initial = initial;
        const call<float> any(p, layout::random, element::own, bits);
        any.run(tiled{.threads = 2});
        for (const layout lies : {layout::heads_outside, layout::heads_inside}) {
          call<float> other(p, lies, element::own, bits);
          other.copy_inputs(any);
          other.run(tiled{.threads = 2});
          CAPTURE(time, dv, which, p.beta, static_cast<int>(lies));
          CHECK((other.results() == any.results()));
        }
      }
}

TEST_CASE("stored states change no bit of the results", "[linear_attention]") {
  generator bits{22};
  for (const int which : {0, 1, 2, 3}) {
    const std::int64_t interval = which / 2 == 0 ? 32 : 96;
    problem p{.batch = 2, .time = 200, .dk = 9, .dv = 18, .heads = 2, .query_heads = 2};
    p.gate = p.beta = true, p.key_gates = which % 2 == 1, p.interval = interval, p.resets = 1;
    call<float> c(p, layout::heads_inside, element::mixed, bits);
    // Sequences begin at multiples of 32 steps.
    for (std::int64_t i = 0; i < 2 * 201; ++i) c.in.resets[i] = i % 201 == 64 || i % 201 == 128;
    c.copy_resets();
    c.run(tiled{});
    const std::string out = c.out.elements(), final_state = c.final_state.elements();
    c.p.interval = 0, c.states = {};
    c.run(tiled{});
    CHECK((c.out.elements() == out));
    CHECK((c.final_state.elements() == final_state));
  }
}

TEST_CASE("states have the same bits without outputs", "[linear_attention]") {
  generator bits{9};
  for (const bool key_gates : {false, true}) {
    problem p{.batch = 2, .time = 100, .dk = 30, .dv = 40, .heads = 2, .query_heads = 2};
    p.beta = p.gate = true, p.key_gates = key_gates, p.resets = 2, p.interval = 32;
    const call<float> c(p, layout::heads_inside, element::own, bits);
    c.run(tiled{});
    const std::string final_state = c.final_state.elements(), states = c.states.elements();
    linear_attention(c.arrays(), {}, c.options());
    CHECK((c.final_state.elements() == final_state));
    CHECK((c.states.elements() == states));
  }
}

TEST_CASE("outputs may overwrite values, and final states initial states", "[linear_attention]") {
  generator bits{10};
  for (const std::int64_t query_heads : {1, 2})
    for (const layout lies : {layout::heads_inside, layout::random}) {
      problem p{.batch = 2, .time = 100, .dk = 33, .dv = 70, .heads = 2};
      p.query_heads = query_heads, p.beta = p.gate = p.initial = true, p.resets = 1;
      const call<float> c(p, lies, element::own, bits);
      c.run(tiled{});
      const std::string out = c.out.elements(), final_state = c.final_state.elements();
      auto options = c.options();
      options.final_state = c.initial.view();
      linear_attention(tiled{.threads = 3}, c.arrays(), c.v.view(), options);
      CHECK((c.v.elements() == out));
      CHECK((c.initial.elements() == final_state));
    }
}

// ---- NaN --------------------------------------------------------------------------------------

TEST_CASE("NaN and infinity reach no earlier step, no other head, and no step after a reset",
          "[linear_attention]") {
  generator bits{11};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double bad[]{std::numeric_limits<double>::quiet_NaN(), infinity, -infinity};
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(bits() % n); };
  for (int i = 0; i < 150; ++i) {
    problem p{.batch = 2, .time = 33 + below(60), .dk = 1 + below(20), .dv = 1 + below(40)};
    p.heads = 4, p.key_heads = 1 << below(3), p.query_heads = 1 << below(4);
    p.gate = p.beta = true, p.factors = bits() % 2 == 0, p.normalise = bits() % 3 == 0;
    p.key_gates = bits() % 2 == 0;
    p.initial = bits() % 2 == 0, p.resets = 1;
    p.order = bits() % 2 == 0 ? direction::forward : direction::reverse;
    call<float> c(p, layout::heads_inside, element::own, bits);
    c.run(tiled{.threads = 2});
    const auto was = c.out.values(), state_was = c.final_state.values();

    // The poisoned element, and the heads of states and of outputs that read it.
    stored_array<float>* const all[]{&c.q, &c.k, &c.v, &c.gate, &c.beta};
    const std::int64_t kind = below(5), n = below(p.time), b = below(2);
    stored_array<float>& of = *all[kind];
    const loop<float> steps(p, c.in);
    const std::int64_t head = below(of.shape().group);
    const double poison = bad[below(3)];
    of.set(b, steps.time_of(n), below(of.shape().channel), head, poison);
    c.run(tiled{.threads = 2});
    std::int64_t end = n + 1;  // the first step after n that is reset
    while (end < p.time && !steps.reset_before(b, end)) ++end;
    const auto reads = [&](std::int64_t state_head) {
      return kind == 0 ? false : state_head * of.shape().group / p.heads == head;
    };
    const auto reached = [&](std::int64_t m, std::int64_t out_head) {
      if (kind == 0) return m == n && out_head * p.query_heads / p.out_heads() == head;
      return m >= n && m < end && reads(out_head * p.heads / p.out_heads());
    };
    INFO("problem " << i << ": " << to_string(p) << ", " << poison << " in array " << kind
                    << ", step " << n << ", head " << head);
    int wrong = 0, wrong_states = 0, bad_numbers = 0;
    c.out.for_all([&](auto at, auto t, auto j, auto h) {
      const std::int64_t m = steps.time_of(t);
      const double x = c.out.get(at, t, j, h);
      if (at == b && reached(m, h))
        bad_numbers += !std::isfinite(x);
      else
        wrong += x != was(at, t, j, h);
    });
    c.final_state.for_all([&](auto at, auto k, auto j, auto h) {
      if (at != b || end < p.time || !reads(h))
        wrong_states += c.final_state.get(at, k, j, h) != state_was(at, k, j, h);
    });
    CHECK(wrong == 0);
    CHECK(wrong_states == 0);
    // A factor of 0 and an infinite gate may leave results finite.
    if (kind < 3 && std::isnan(poison)) CHECK(bad_numbers > 0);
  }
}

// ---- special cases ----------------------------------------------------------------------------

TEST_CASE("linear attention without steps or sequences stores the initial state",
          "[linear_attention]") {
  generator bits{12};
  for (const bool initial : {false, true})
    for (const int resets : {0, 1, 2}) {
      problem p{.batch = 2, .time = 0, .dk = 3, .dv = 20, .beta = true, .initial = initial};
      p.resets = resets;
      const call<float> c(p, layout::heads_inside, element::own, bits);
      c.run(tiled{});
      c.final_state.for_all([&](auto b, auto k, auto j, auto h) {
        CHECK(c.final_state.get(b, k, j, h) == (initial ? c.initial.get(b, k, j, h) : 0.0));
      });
      p.batch = 0, p.time = 5;
      call<float>(p, layout::heads_inside, element::own, bits).run(tiled{});
    }
}

TEST_CASE("linear attention of one key and one value is a linear scan", "[linear_attention]") {
  generator bits{13};
  for (const direction order : {direction::forward, direction::reverse}) {
    problem p{.batch = 2, .time = 200, .heads = 3, .query_heads = 3, .gate = true, .factors = true};
    p.order = order, p.initial = true, p.key_heads = 3;
    call<double> c(p, layout::heads_inside, element::own, bits);
    c.k.fill([](auto...) { return 1.0; }), c.q.fill([](auto...) { return 1.0; });
    c.run(tiled{});
    const extents shape{.batch = 2, .time = 200, .channel = 3};
    std::vector<double> x(1200), start(6);
    for (std::int64_t i = 0; i < 6; ++i)
      start[static_cast<std::size_t>(i)] = c.in.initial(i / 3, 0, 0, i % 3);
    linear_scan(sequential{}, sequence_view<const double>(c.in.gate.numbers.data(), shape),
                sequence_view<const double>(c.in.v.numbers.data(), shape),
                sequence_view<double>(x.data(), shape),
                {.order = order, .initial_state = state_view<const double>(start.data(), shape)});
    double off = 0;
    c.out.for_all([&](auto b, auto t, auto, auto h) {
      const double want = x[static_cast<std::size_t>((b * 200 + t) * 3 + h)];
      off = std::max(off, std::abs(c.out.get(b, t, 0, h) - want) / (1 + std::abs(want)));
    });
    CHECK(off < 1e-14);
  }
}

TEST_CASE("linear attention without gates is masked attention without softmax",
          "[linear_attention]") {
  generator bits{14};
  problem p{.time = 77, .dk = 6, .dv = 4, .scale = 0.25};
  const call<double> c(p, layout::heads_inside, element::own, bits);
  c.run(tiled{});
  for (std::int64_t t = 0; t < p.time; ++t)
    for (std::int64_t j = 0; j < p.dv; ++j) {
      double sum = 0;
      for (std::int64_t s = 0; s <= t; ++s) {
        double product = 0;
        for (std::int64_t i = 0; i < p.dk; ++i) product += c.in.q(0, t, i, 0) * c.in.k(0, s, i, 0);
        sum += 0.25 * product * c.in.v(0, s, j, 0);
      }
      CHECK(std::abs(c.out.get(0, t, j, 0) - sum) < 1e-14);
    }
}

TEST_CASE("linear attention of dt x, B and C with gates A dt is the scan of Mamba-2",
          "[linear_attention]") {
  // Channels of a head share A and dt. All heads share B and C.
  constexpr std::int64_t T = 70, H = 3, P = 5, N = 7;
  generator bits{15};
  std::vector<double> x(T * H * P), dt(T * H), b(T * N), c(T * N), out(x.size()), a(H);
  for (auto* const of : {&x, &b, &c})
    for (double& number : *of) number = attention_calls::uniform(bits, -1, 1);
  for (double& number : dt) number = attention_calls::uniform(bits, 0.01, 0.5);
  for (double& number : a) number = attention_calls::uniform(bits, -4, -0.1);
  std::vector<double> value(x.size()), gate(dt.size());
  for (std::int64_t i = 0; i < T * H; ++i) gate[i] = a[i % H] * dt[i];
  for (std::int64_t i = 0; i < T * H * P; ++i) value[i] = dt[i / P] * x[i];
  const auto view = [](auto& of, std::int64_t channels, std::int64_t heads) {
    const extents shape{.time = T, .channel = channels, .group = heads};
    return sequence_view(of.data(), shape, heads_inside(shape));
  };
  const linear_attention_arrays<double> arrays{.query = view(c, N, 1),
                                               .key = view(b, N, 1),
                                               .value = view(value, P, H),
                                               .gate = view(gate, 1, H)};
  linear_attention(arrays, view(out, P, H));
  for (std::int64_t h = 0; h < H; ++h)
    for (std::int64_t channel = 0; channel < P; ++channel) {
      std::array<double, N> state{};
      for (std::int64_t t = 0; t < T; ++t) {
        double y = 0;
        for (std::int64_t n = 0; n < N; ++n) {
          state[n] = std::exp(a[h] * dt[t * H + h]) * state[n] +
                     dt[t * H + h] * b[t * N + n] * x[(t * H + h) * P + channel];
          y += c[t * N + n] * state[n];
        }
        CHECK(std::abs(out[(t * H + h) * P + channel] - y) < 1e-13);
      }
    }
}

// ---- ONNX -------------------------------------------------------------------------------------

/// The inputs of tests/onnx_linear_attention.py, multiples of 1/64 between -1 and 1, as
/// `by` * (number + `plus`).
std::vector<float> onnx_numbers(std::int64_t count, std::int64_t seed, float plus, float by) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t mixed = (i * i % 1009 * 37 + i * 101 + seed * 57) % 129;
    x.push_back(by * (static_cast<float>(mixed - 64) / 64 + plus));
  }
  return x;
}

TEST_CASE("linear attention computes the values of ONNX", "[linear_attention]") {
  namespace onnx = onnx_linear_attention;
  constexpr std::int64_t B = 2, T = 36, dk = 3, dv = 2, H = 2;
  struct example {
    std::int64_t gate_channels;
    bool beta;
    std::int64_t query_heads;
    float scale;  // 0: 1 / sqrt(dk)
    const float *out, *state;
  };
  for (const auto& [gate_channels, beta, query_heads, scale, want_out, want_state] :
       {example{0, false, 2, 0, onnx::linear_out, onnx::linear_state},
        example{1, false, 4, 0, onnx::gated_out, onnx::gated_state},
        example{3, false, 2, 0.5f, onnx::gated_by_key_out, onnx::gated_by_key_state},
        example{0, true, 2, 0, onnx::delta_out, onnx::delta_state},
        example{1, true, 4, 0.75f, onnx::gated_delta_out, onnx::gated_delta_state},
        example{3, true, 2, 0, onnx::gated_delta_by_key_out, onnx::gated_delta_by_key_state}}) {
    const auto packed = [](auto& of, std::int64_t channels, std::int64_t heads) {
      const extents shape{.batch = B, .time = T, .channel = channels, .group = heads};
      return sequence_view(of.data(), shape, heads_inside(shape));
    };
    const std::vector<float> q = onnx_numbers(B * T * query_heads * dk, 1, 0, 1),
                             k = onnx_numbers(B * T * H * dk, 2, 0, 0.5f),
                             v = onnx_numbers(B * T * H * dv, 3, 0, 1),
                             past = onnx_numbers(B * H * dk * dv, 4, 0, 1),
                             decay = onnx_numbers(B * T * H * gate_channels, 5, -1, 0.125f),
                             rate = onnx_numbers(B * T * H, 6, 1, 0.5f);
    std::vector<float> out(B * T * query_heads * dv), present(past.size());
    linear_attention_arrays<float> arrays{
        .query = packed(q, dk, query_heads), .key = packed(k, dk, H), .value = packed(v, dv, H)};
    if (gate_channels > 0) arrays.gate = packed(decay, gate_channels, H);
    if (beta) arrays.beta = packed(rate, 1, H);
    arrays.scale = scale == 0 ? 1 / std::sqrt(static_cast<float>(dk)) : scale;
    const extents state{.batch = B, .time = dk, .channel = dv, .group = H};
    linear_attention(
        arrays, packed(out, dv, query_heads),
        {.initial_state = sequence_view<const float>(past.data(), state, heads_outside(state)),
         .final_state = sequence_view<float>(present.data(), state, heads_outside(state))});
    CAPTURE(gate_channels, beta, query_heads);
    const auto check = [](float got, float want) { CHECK(std::abs(got - want) < 2e-6f); };
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < B; ++b)
      for (const int t : onnx::steps)
        for (std::int64_t c = 0; c < query_heads * dv; ++c)
          check(out[static_cast<std::size_t>((b * T + t) * query_heads * dv + c)], want_out[i++]);
    for (std::size_t n = 0; n < present.size(); ++n) check(present[n], want_state[n]);
  }
}

// ---- arguments --------------------------------------------------------------------------------

/// Arrays of a valid call: 2 sequences of 40 steps, dk = 4, dv = 5, 6 heads, 3 key heads.
struct valid_call {
  std::vector<float> numbers = std::vector<float>(20000, 0.5f), results = numbers;
  linear_attention_arrays<float> arrays;
  stored_sequence<float> out;
  linear_attention_options<float> options;

  sequence_view<float> view(std::int64_t channels, std::int64_t heads, std::int64_t time = 40,
                            std::int64_t batch = 2) {
    return {numbers.data(), {.batch = batch, .time = time, .channel = channels, .group = heads}};
  }
  sequence_view<float> result(std::int64_t at, const extents& shape) {
    return {results.data() + at, shape};
  }
  valid_call() {
    arrays = {.query = view(4, 6), .key = view(4, 3), .value = view(5, 6)};
    arrays.gate = view(1, 6), arrays.beta = view(1, 6);
    out = result(0, {.batch = 2, .time = 40, .channel = 5, .group = 6});
  }
};

TEST_CASE("linear attention refuses invalid arguments by name and writes nothing",
          "[linear_attention]") {
  const auto with = [](auto change) {
    valid_call c;
    change(c);
    const std::string name = refused([&] { linear_attention(c.arrays, c.out, c.options); });
    CHECK((name.empty() || c.results == std::vector<float>(20000, 0.5f)));
    return name;
  };
  const extents state{.batch = 2, .time = 4, .channel = 5, .group = 6};
  CHECK(with([](auto&) {}).empty());
  CHECK(with([](auto& c) { c.arrays.query = {}; }) == "query");
  CHECK(with([](auto& c) { c.arrays.key = {}; }) == "key");
  CHECK(with([](auto& c) { c.arrays.value = {}; }) == "value");
  CHECK(with([](auto& c) { c.arrays.query = c.view(5, 6); }) == "query");
  CHECK(with([](auto& c) { c.arrays.query = c.view(4, 4); }) == "query");
  CHECK(with([](auto& c) { c.arrays.query = c.view(4, 9); }) == "query");
  CHECK(with([](auto& c) { c.arrays.query = c.view(4, 6, 39); }) == "query");
  CHECK(with([](auto& c) { c.arrays.query = c.view(4, 6, 40, 1); }) == "query");
  CHECK(with([](auto& c) { c.arrays.query = c.view(4, 0); }) == "query");
  CHECK(with([](auto& c) { c.arrays.key = c.view(4, 4); }) == "key");
  CHECK(with([](auto& c) { c.arrays.key = c.view(4, 12); }) == "key");
  CHECK(with([](auto& c) { c.arrays.key = c.view(4, 3, 41); }) == "key");
  CHECK(with([](auto& c) { c.arrays.key = c.view(0, 3); }) == "key");
  CHECK(with([](auto& c) { c.arrays.key = c.view(4097, 3, 40, 0); }) == "key");
  CHECK(with([](auto& c) { c.arrays.value = c.view(0, 6); }) == "value");
  CHECK(with([](auto& c) { c.arrays.value = c.view(4097, 6, 40, 0); }) == "value");
  CHECK(with([](auto& c) { c.arrays.value = c.view(5, 0); }) == "value");
  CHECK(with([](auto& c) { c.arrays.gate = c.view(2, 6); }) == "gate");
  CHECK(with([](auto& c) { c.arrays.gate = c.view(1, 3); }) == "gate");
  CHECK(with([](auto& c) { c.arrays.gate = c.view(4, 3); }) == "gate");
  CHECK(with([](auto& c) { c.arrays.gate = c.view(4, 6); }).empty());
  CHECK(with([](auto& c) { c.arrays.beta = c.view(4, 6); }) == "beta");
  CHECK(with([](auto& c) { c.arrays.beta = c.view(1, 1); }) == "beta");
  CHECK(with([](auto& c) {
          c.out = c.result(0, {.batch = 2, .time = 40, .channel = 4, .group = 6});
        }) == "out");
  CHECK(with([](auto& c) {
          c.arrays.query = c.view(4, 12);  // the output has the larger number of heads
        }) == "out");
  CHECK(with([](auto& c) { c.out = c.view(5, 6).reversed(); }) == "out");
  CHECK(with([&](auto& c) {
          c.options.initial_state = c.result(0, {.batch = 2, .time = 5, .channel = 4, .group = 6});
        }) == "initial_state");
  CHECK(with([&](auto& c) {
          c.options.final_state = c.result(9000, {.batch = 1, .time = 4, .channel = 5, .group = 6});
        }) == "final_state");
  CHECK(with([&](auto& c) { c.options.final_state = c.result(0, state); }) != "");
  CHECK(with([&](auto& c) {
          auto view = c.result(9000, state);
          view.strides.group = 0;
          c.options.final_state = view;
        }) == "final_state");
  for (const std::int64_t interval : {0, -32, 16, 33})
    CHECK(with([&](auto& c) {
            c.options.states = c.result(9000, state), c.options.interval = interval;
          }) == "interval");
  CHECK(with([&](auto& c) {
          c.options.states = c.result(9000, {.batch = 4, .time = 4, .channel = 5, .group = 6});
          c.options.interval = 32;
        }) == "states");
  CHECK(with([&](auto& c) {
          c.options.states = c.result(9000, state), c.options.interval = 32;
        }).empty());
  const bool mask[84]{};
  const auto resets = [&](std::int64_t time, std::int64_t channels) {
    return [&mask, time, channels](auto& c) {
      c.options.resets =
          sequence_view<const bool>(mask, {.batch = 2, .time = time, .channel = channels});
    };
  };
  CHECK(with(resets(40, 1)).empty());
  CHECK(with(resets(41, 1)).empty());
  CHECK(with(resets(42, 1)) == "resets");
  CHECK(with(resets(39, 1)) == "resets");
  CHECK(with(resets(20, 2)) == "resets");
}

TEST_CASE("linear attention needs the workspace that it reports", "[linear_attention]") {
  generator bits{16};
  for (const bool key_gates : {false, true}) {
    problem p{.batch = 2, .time = 70, .dk = 40, .dv = 50, .heads = 2, .query_heads = 4};
    p.beta = p.gate = true, p.key_gates = key_gates;
    const call<float> c(p, layout::heads_inside, element::own, bits);
    linear_attention(c.arrays(), c.out.view(), c.options());
    const std::string results = c.results();
    const auto check = [&](auto on) {
      const auto memory = attention_calls::add_workspace(
          on, linear_attention_workspace_bytes(on, c.arrays(), c.out.view(), c.options()));
      linear_attention(on, c.arrays(), c.out.view(), c.options());
      CHECK((c.results() == results));
      on.workspace = on.workspace.first(on.workspace.size() - 1);
      CHECK(refused([&] { linear_attention(on, c.arrays(), c.out.view(), c.options()); }) ==
            "workspace");
    };
    for (const int threads : {1, 2, 7}) check(tiled{.threads = threads});
    check(sequential{});
  }
}

// ---- golden bits ------------------------------------------------------------------------------

TEST_CASE("linear attention has the golden bits", "[linear_attention][.golden]") {
  const auto check = [](const char* name, auto add) {
    golden::row row(std::string("linear_attention, ") + name);
    add(row);
    row.check();
  };
  const auto results = [](const auto& c) {
    c.run(tiled{});
    return c.results();
  };
  check("float, tiled",
        [&](auto& row) { attention_calls::add_golden<call<float>>(row, element::own, results); });
  check("bfloat16, tiled", [&](auto& row) {
    attention_calls::add_golden<call<float>>(row, element::bfloat, results);
  });
  check("double, tiled",
        [&](auto& row) { attention_calls::add_golden<call<double>>(row, element::own, results); });
}

// ---- the plan ---------------------------------------------------------------------------------

TEST_CASE("linear attention keeps up to 128 threads busy", "[linear_attention]") {
  generator bits{17};
  const auto up_to = [&](double exponent) {
    return static_cast<std::int64_t>(std::exp2(exponent * (bits() % 1024) / 1024));
  };
  for (int i = 0; i < 3000; ++i) {
    detail::linear_attention_problem<float> p;
    p.batch = up_to(7), p.time = up_to(14);
    p.dk = static_cast<int>(up_to(9)), p.dv = static_cast<int>(up_to(9));
    p.heads = static_cast<int>(up_to(6)), p.key_heads = p.heads, p.query_heads = p.heads;
    static std::byte present{};
    if (bits() % 2 == 0) p.beta.data = &present;
    const int threads = static_cast<int>(up_to(7));
    const int lanes = bits() % 4 == 0 ? 1 : simd::lanes_v<float>;
    const detail::linear_attention_plan plan(p, lanes, threads);
    CAPTURE(i, p.batch, p.time, p.dk, p.dv, p.heads, threads, lanes, plan.blocks);
    REQUIRE((1 <= plan.workers && plan.workers <= threads));
    const detail::attention_costs cost = detail::attention_costs::of(p);
    std::vector<double> busy(static_cast<std::size_t>(plan.workers));
    // Packs that tasks have covered, for each head of each sequence.
    std::vector<int> covered(static_cast<std::size_t>(p.batch * p.heads));
    bool in_order = true;
    for (std::int64_t task = 0; task < plan.tasks; ++task) {
      const detail::attention_part part = plan.part(task);
      in_order = in_order && part.heads > 0 && part.packs > 0 && part.heads <= plan.task_heads &&
                 part.packs <= plan.task_packs();
      for (int head = part.head; head < part.head + part.heads; ++head) {
        int& packs = covered.at(static_cast<std::size_t>(part.batch * p.heads + head));
        in_order = in_order && packs == part.pack;
        packs += part.packs;
      }
      // Threads claim tasks in order.
      *std::min_element(busy.begin(), busy.end()) +=
          part.heads * static_cast<double>(cost.of_task + cost.of_column * part.packs * lanes);
    }
    CHECK(in_order);
    CHECK((std::count(covered.begin(), covered.end(), plan.packs) == p.batch * p.heads));
    // The least time if work could be divided at will, except below one pack.
    const double total = static_cast<double>(p.batch * p.heads) *
                         static_cast<double>(cost.of_task + cost.of_column * plan.packs * lanes);
    const auto smallest = static_cast<double>(cost.of_task + cost.of_column * lanes);
    const double least = std::max(total / threads, smallest);
    const double busiest = *std::max_element(busy.begin(), busy.end());
    CHECK(busiest <= 2 * least);
  }
}

}  // namespace
