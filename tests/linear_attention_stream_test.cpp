// SPDX-License-Identifier: BSD-3-Clause
// Tests of streams of linear attention. Calls of any numbers of steps have the bits of a single
// call. Also covers steps that are dropped, copies of streams, NaN and invalid arguments.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <scanrec/linear_attention.hpp>
#include <scanrec/linear_attention_stream.hpp>

#include "catch.hpp"
#include "linear_attention_calls.hpp"
#include "refused.hpp"

namespace {

using namespace scanrec;
using attention_calls::call;
using attention_calls::element;
using attention_calls::layout;
using attention_calls::problem;
using reference::generator;
using tested::refused;

/// A random problem of a stream: forward, and without stored states.
problem random_stream(generator& bits, double most) {
  problem p = attention_calls::random_problem(bits, most);
  p.order = direction::forward, p.interval = 0;
  if (p.resets == 2) p.resets = 1;
  return p;
}

/// Options of a call of steps [first, last) of a stream.
template <class V>
linear_attention_options<V> part_of(const call<V>& c, std::int64_t first, std::int64_t last,
                                    linear_attention_stream<V>& stream) {
  linear_attention_options<V> options;
  if (!stream.begun()) options.initial_state = c.initial.template view<const V>();
  options.final_state = c.final_state.view();
  if (c.p.resets > 0) options.resets = c.reset_mask.view().steps(first, last);
  options.stream = &stream;
  return options;
}
/// Runs steps [first, last) of a stream.
template <class V, class Backend>
void run_part(const Backend& on, const call<V>& c, std::int64_t first, std::int64_t last,
              linear_attention_stream<V>& stream) {
  linear_attention(on, c.arrays(first, last), c.out.view(first, last),
                   part_of(c, first, last, stream));
}

template <class V, class Backend>
void check_streams(const Backend& on, int count, element types, std::uint64_t seed) {
  generator bits{seed};
  for (int i = 0; i < count; ++i) {
    const problem p = random_stream(bits, 2e5);
    const call<V> c(p, static_cast<layout>(bits() % 3), types, bits);
    c.run(on);
    const std::string out = c.out.elements(), final_state = c.final_state.elements();
    linear_attention_stream<V> stream(p.states_of());
    const std::int64_t most = bits() % 2 == 0 ? 3 : 70;
    std::int64_t t = 0;
    do {
      const std::int64_t end = std::min<std::int64_t>(p.time, t + bits() % (most + 1));
      run_part(on, c, t, end, stream);
      t = end;
    } while (t < p.time);
    INFO("problem " << i << ": " << to_string(p) << ", up to " << most << " steps");
    CHECK((c.out.elements() == out));
    CHECK((c.final_state.elements() == final_state));
  }
}

TEST_CASE("a stream in calls of any numbers of steps has the bits of one call",
          "[linear_attention]") {
  check_streams<float>(tiled{.threads = 1}, 100, element::mixed, 1);
  check_streams<float>(tiled{.threads = 3}, 100, element::own, 2);
  check_streams<double>(tiled{.threads = 2}, 60, element::own, 3);
  check_streams<float>(sequential{}, 40, element::mixed, 4);
}

TEST_CASE("the final state after each call of a stream is that of a single call",
          "[linear_attention]") {
  generator bits{5};
  for (const bool beta : {false, true}) {
    problem p{.batch = 2, .time = 75, .dk = 17, .dv = 32, .heads = 2, .query_heads = 2};
    p.gate = p.initial = true, p.beta = beta;
    const call<float> c(p, layout::heads_outside, element::own, bits);
    linear_attention_stream<float> stream(p.states_of());
    std::int64_t t = 0;
    for (const std::int64_t steps : {1, 1, 7, 23, 1, 31, 1, 10}) {
      run_part(tiled{}, c, t, t + steps, stream);
      t += steps;
      const std::string got = c.final_state.elements();
      linear_attention(
          c.arrays(0, t), {},
          {.initial_state = c.initial.view<const float>(), .final_state = c.final_state.view()});
      CAPTURE(beta, t);
      CHECK(stream.steps(1) == t % 32);
      CHECK((c.final_state.elements() == got));
    }
    REQUIRE(t == p.time);
  }
}

TEST_CASE("a stream forgets dropped steps", "[linear_attention]") {
  generator bits{6};
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 60; ++i) {
    problem p = random_stream(bits, 1e5);
    p.resets = 0, p.initial = false;
    if (p.time < 2) continue;
    call<float> c(p, layout::heads_inside, element::own, bits);
    c.run(tiled{});
    const std::string out = c.out.elements(), final_state = c.final_state.elements();
    linear_attention_stream<float> stream(p.states_of());
    INFO("problem " << i << ": " << to_string(p));
    for (std::int64_t t = 0; t < p.time;) {
      // Steps that do not complete the chunk, with NaN in the last one. They are dropped again.
      const std::int64_t room = std::min<std::int64_t>(31 - t % 32, p.time - t);
      const auto steps = room > 0 ? static_cast<std::int64_t>(bits() % (room + 1)) : 0;
      if (steps > 0 && p.batch > 0) {
        const double key = c.k.get(0, t + steps - 1, 0, 0);
        c.k.set(0, t + steps - 1, 0, 0, nan);
        run_part(tiled{}, c, t, t + steps, stream);
        c.k.set(0, t + steps - 1, 0, 0, key);
        for (std::int64_t b = 0; b < p.batch; ++b) {
          CHECK(stream.steps(b) == (t + steps) % 32);
          stream.drop(b, static_cast<int>(steps));
          CHECK(stream.steps(b) == t % 32);
        }
      }
      const std::int64_t end = std::min<std::int64_t>(p.time, t + 1 + bits() % 20);
      run_part(tiled{}, c, t, end, stream);
      t = end;
    }
    CHECK((c.out.elements() == out));
    CHECK((c.final_state.elements() == final_state));
  }
}

TEST_CASE("sequences of a stream may drop different numbers of steps", "[linear_attention]") {
  // Sequence b drops b + 1 of 9 steps. The others continue with the steps after them.
  generator bits{7};
  problem p{.batch = 3, .time = 20, .dk = 6, .dv = 20, .heads = 2, .query_heads = 2};
  p.gate = p.beta = true;
  const call<float> c(p, layout::heads_inside, element::own, bits);
  linear_attention_stream<float> stream(p.states_of());
  run_part(tiled{}, c, 0, 9, stream);
  for (int b = 0; b < 3; ++b) stream.drop(b, b + 1);
  run_part(tiled{}, c, 9, 20, stream);
  const auto got = c.out.values();
  for (std::int64_t b = 0; b < p.batch; ++b) {
    CHECK(stream.steps(b) == 19 - b);
    // The steps 0 to 8 - b, then 9 to 19, of a sequence by itself.
    linear_attention_stream<float> alone(p.states_of());
    run_part(tiled{}, c, 0, 8 - b, alone), run_part(tiled{}, c, 9, 20, alone);
    int wrong = 0;
    c.out.for_all([&](auto at, auto t, auto j, auto h) {
      wrong += at == b && t >= 9 && c.out.get(at, t, j, h) != got(at, t, j, h);
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("copies of a stream continue independently", "[linear_attention]") {
  generator bits{8};
  problem p{.batch = 2, .time = 60, .dk = 5, .dv = 9, .heads = 2, .query_heads = 2};
  p.gate = p.beta = p.initial = true;
  const call<float> c(p, layout::heads_inside, element::own, bits);
  c.run(tiled{});
  const std::string out = c.out.elements();
  linear_attention_stream<float> stream(p.states_of());
  CHECK((!stream.begun() && stream.shape() == p.states_of()));
  run_part(tiled{}, c, 0, 40, stream);
  linear_attention_stream<float> copy = stream, moved = std::move(copy), assigned(extents{});
  CHECK((moved.begun() && moved.steps(1) == 8));
  // Continue the original with other steps, and then the copies with the right ones.
  run_part(tiled{}, c, 0, 30, stream);
  assigned = moved;
  run_part(tiled{}, c, 40, 60, moved), run_part(tiled{}, c, 0, 40, stream);
  stream.clear();
  CHECK((!stream.begun() && stream.steps(0) == 0));
  run_part(tiled{}, c, 0, 40, stream);
  CHECK((c.out.elements() == out));
  run_part(tiled{}, c, 40, 60, assigned);
  CHECK((c.out.elements() == out));
  run_part(tiled{}, c, 40, 60, stream);
  CHECK((c.out.elements() == out));
}

TEST_CASE("a NaN in a stream reaches no other head and no step after a reset",
          "[linear_attention]") {
  generator bits{9};
  for (const bool beta : {false, true}) {
    problem p{.batch = 2, .time = 50, .dk = 6, .dv = 18, .heads = 2, .key_heads = 2};
    p.query_heads = 2, p.gate = true, p.beta = beta, p.resets = 1;
    call<float> c(p, layout::heads_inside, element::own, bits);
    for (std::int64_t i = 0; i < 2 * 51; ++i) c.in.resets[i] = i % 51 == 23;
    c.copy_resets();
    c.run(tiled{});
    const auto was = c.out.values();
    c.k.set(1, 12, 3, 1, std::numeric_limits<double>::quiet_NaN());
    linear_attention_stream<float> stream(p.states_of());
    for (std::int64_t t = 0; t < p.time; t += 5) run_part(tiled{}, c, t, t + 5, stream);
    int wrong = 0, finite = 0;
    c.out.for_all([&](auto b, auto t, auto j, auto h) {
      const double x = c.out.get(b, t, j, h);
      if (b == 1 && h == 1 && t >= 12 && t < 23)
        finite += !std::isnan(x);
      else
        wrong += x != was(b, t, j, h);
    });
    CHECK(wrong == 0);
    CHECK(finite == 0);
  }
}

TEST_CASE("streams refuse invalid arguments by name", "[linear_attention]") {
  generator bits{10};
  problem p{.batch = 2, .time = 40, .dk = 3, .dv = 4, .heads = 2, .query_heads = 2};
  p.initial = true, p.interval = 32;
  const call<float> c(p, layout::heads_inside, element::own, bits);
  linear_attention_stream<float> stream(p.states_of());
  const auto with = [&](auto change) {
    linear_attention_options<float> options{.stream = &stream};
    change(options);
    return refused([&] { linear_attention(c.arrays(), c.out.view(), options); });
  };
  CHECK(with([](auto& o) { o.order = direction::reverse; }) == "order");
  CHECK(with([&](auto& o) { o.states = c.states.view(), o.interval = 32; }) == "states");
  for (const extents& shape : {extents{.batch = 1, .time = 3, .channel = 4, .group = 2},
                               extents{.batch = 2, .time = 4, .channel = 3, .group = 2},
                               extents{.batch = 2, .time = 3, .channel = 4, .group = 1}}) {
    linear_attention_stream<float> other(shape);
    CHECK(with([&](auto& o) { o.stream = &other; }) == "stream");
  }
  CHECK(with([&](auto& o) { o.initial_state = c.initial.view<const float>(); }).empty());
  CHECK(with([&](auto& o) { o.initial_state = c.initial.view<const float>(); }) == "initial_state");
  CHECK(with([](auto&) {}).empty());
  CHECK(refused([&] {
          linear_attention(sequential{}, c.arrays(), c.out.view(), {.stream = &stream});
        }) == "stream");
  problem keys = p;
  keys.gate = keys.key_gates = true;
  const call<float> per_key(keys, layout::heads_inside, element::own, bits);
  const auto run = [&](const auto& of, auto& to) {
    return refused([&] { linear_attention(of.arrays(), of.out.view(), {.stream = &to}); });
  };
  CHECK(run(per_key, stream) == "gate");
  linear_attention_stream<float> of_keys(p.states_of());
  CHECK((run(per_key, of_keys).empty() && of_keys.has_key_gates()));
  CHECK(run(c, of_keys) == "gate");
  CHECK(refused([&] {
          auto arrays = per_key.arrays();
          arrays.gates = gate_form::factor;
          linear_attention(arrays, per_key.out.view(), {.stream = &of_keys});
        }) == "gates");
  of_keys.clear();
  CHECK((run(c, of_keys).empty() && !of_keys.has_key_gates()));
  CHECK(stream.steps(0) == 16);
  CHECK(refused([&] { stream.drop(0, 17); }) == "count");
  CHECK(refused([&] { stream.drop(0, -1); }) == "count");
  CHECK(refused([&] { stream.drop(2, 0); }) == "batch");
  CHECK(refused([&] { (void)stream.steps(-1); }) == "batch");
  CHECK(refused([&] { linear_attention_stream<float>({.batch = -1, .time = 3, .channel = 4}); }) ==
        "states");
}

}  // namespace
