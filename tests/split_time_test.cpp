// SPDX-License-Identifier: BSD-3-Clause
// Tests of sequences that are divided into parts along time: the maps of parts, and the states and
// gradients that follow from them. Here a single process runs the parts in turn.
#include <cmath>
#include <limits>

#include <scanrec/backends.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/detail/split_time/entering.hpp>

#include "catch.hpp"
#include "golden.hpp"
#include "split_time.hpp"

namespace {

using namespace scanrec;

template <class T>
void check_parts() {
  using V = compute_t<T>;
  split::for_cases<T>([](const split::whole<T>& w, const std::string& name) {
    const auto lanes = static_cast<std::size_t>(w.shape.group * w.shape.batch * w.shape.channel);
    for (const int parts : {1, 2, 3, 17}) {
      const auto boundaries =
          split::boundaries_of(w.shape.time, parts, static_cast<unsigned>(parts));
      std::vector<part_state<V>> states, grads;
      for (const V& x : w.first) states.push_back(detail::widened_state(x));
      for (const V& g : w.last_grad) grads.push_back(detail::widened_state(g));
      const auto narrowed = [&](const std::vector<part_state<V>>& from) {
        std::vector<V> to;
        for (const auto& x : from) to.push_back(detail::narrowed_state<V>(x));
        return to;
      };
      std::vector<T> x(w.input.size()), dx(w.input.size());
      for (int k = 0; k < 2 * parts; ++k) {
        // First all parts of the scan in scan order, then all parts of the adjoint in the opposite
        // order.
        const bool adjoint = k >= parts;
        const int i = adjoint ? 2 * parts - 1 - k : k;
        const auto part =
            static_cast<std::size_t>(w.order == direction::forward ? i : parts - 1 - i);
        const std::int64_t begin = boundaries[part], end = boundaries[part + 1];
        const part_options options{.order = w.order, .resets = w.resets_of(begin, end)};
        const auto gate = w.gates().steps(begin, end);
        const auto entering = narrowed(adjoint ? grads : states);
        const state_view<const V> from(entering.data(), w.shape);
        const tiled on{.threads = 1};
        if (!adjoint) {
          const auto input = w.inputs().steps(begin, end);
          linear_scan(on, gate, input, w.over(x).steps(begin, end),
                      {.order = w.order, .initial_state = from, .resets = options.resets});
          const auto maps = linear_scan_summary(on, gate, input, options);
          REQUIRE(maps.size() == lanes);
          fold_part<part_state<V>>(maps, states);
        } else {
          const auto grad = w.grads().steps(begin, end);
          linear_scan_vjp(on, gate, none, grad,
                          scan_gradients<T>{.input_grad = w.over(dx).steps(begin, end)},
                          {.order = w.order, .final_grad = from, .resets = options.resets});
          fold_part<part_state<V>>(linear_scan_vjp_summary(on, gate, grad, options), grads);
        }
      }
      const std::string where = name + ", " + std::to_string(parts) + " parts";
      w.check_states({x.data(), w.shape}, 0, w.shape.time, where + ": states");
      w.check_input_grads({dx.data(), w.shape}, 0, w.shape.time, where + ": gradients");
    }
  });
}

TEST_CASE("maps of parts have the golden bits", "[.golden]") {
  const extents shape{2, 300, 5};
  golden::numbers numbers(1);
  std::vector<float> gate(3000), input(3000);
  for (auto* const a : {&gate, &input})
    for (float& x : *a) numbers.fill(x);
  golden::row row("linear_scan_summary and linear_scan_vjp_summary, float, tiled");
  const tiled on{.threads = 2};
  for (const direction order : {direction::forward, direction::reverse}) {
    std::vector<part_state<float>> states(10, detail::widened_state(0.5f)), grads = states;
    fold_part<part_state<float>>(
        linear_scan_summary(on, sequence_view(gate.data(), shape),
                            sequence_view(input.data(), shape), {.order = order}),
        states);
    fold_part<part_state<float>>(
        linear_scan_vjp_summary(on, sequence_view(gate.data(), shape),
                                sequence_view(input.data(), shape), {.order = order}),
        grads);
    for (const auto* const all : {&states, &grads})
      for (const auto& x : *all) row.add(detail::narrowed_state<float>(x));
    row.end_hash();
  }
  row.check();
}

TEST_CASE("a sequence in parts has the states and gradients of the whole sequence",
          "[split_time][forward][vjp]") {
  check_parts<float>();
  check_parts<double>();
  check_parts<std::complex<float>>();
  check_parts<bfloat16>();
  check_parts<std::uint32_t>();
}

TEST_CASE("products of gates do not underflow before the states they multiply", "[split_time]") {
  const extents shape{.batch = 1, .time = 220, .channel = 2};
  const std::vector<float> gate(440, 0.5f), input(440, 0.0f);
  const sequence_view<const float> a(gate.data(), shape), u(input.data(), shape);
  const float first[] = {1e30f, 1e38f};
  std::vector<float> last(2);
  linear_scan(sequential{}, a, u, none,
              {.initial_state = state_view<const float>(first, shape),
               .final_state = state_view<float>(last.data(), shape)});
  const auto maps = linear_scan_summary(tiled{}, a, u);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(last[i] > 0);
    CHECK(static_cast<float>(maps[i].act(static_cast<double>(first[i]))) == last[i]);
  }
  // Products of gates that a cell computes do not underflow early either. Zoned-out steps have a
  // gate of 1.
  using cell = f_pooling<activation::identity, activation::identity>;
  const cell::arrays<sequence_view<const float>> arrays{u, a};
  std::vector<std::uint8_t> zoned(440, 0);
  for (std::size_t i = 0; i < 30; ++i) zoned[14 * i] = 1;
  const sequence_view<const bool> zoneout(reinterpret_cast<const bool*>(zoned.data()), shape);
  gated_scan(sequential{}, cell{}, arrays, none, none,
             {.initial_state = state_view<const float>(first, shape),
              .final_state = state_view<float>(last.data(), shape),
              .zoneout = zoneout});
  const auto made = gated_scan_summary(tiled{}, cell{}, arrays, {.zoneout = zoneout});
  CHECK(made[0].a == std::ldexp(1.0, 30 - 220));
  CHECK(made[1].a == std::ldexp(1.0, -220));
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(static_cast<float>(made[i].act(static_cast<double>(first[i]))) == last[i]);
}

TEST_CASE("products of gates are computed until all of them are zero", "[split_time][resets]") {
  // The smallest denormal times a gate above 1/2 rounds to itself. The product of gates must
  // nevertheless become zero.
  const std::int64_t steps = 100000;
  std::vector<double> gate(200000, 0.99), input(200000, 1.0);
  gate[1] = 1e300, gate[3] = 1e-300;
  const extents shape{.batch = 1, .time = steps, .channel = 2};
  const sequence_view<double> a(gate.data(), shape), u(input.data(), shape);
  const auto products = detail::products_of(tiled{}, a, direction::forward, {});
  CHECK(products.vanish_after > 70000);
  CHECK(products.vanish_after < 80000);
  CHECK((products.values[0] == 0 && products.values[1] == 0));
  // Products of float gates vanish earlier. For a constant gate the reported number of steps is
  // rounded up to a power of two.
  const float same = 0.99f;
  const std::vector<float> floats(200000, same);
  const sequence_view<const float> copies(floats.data(), shape);
  CHECK(detail::products_of(tiled{}, copies, direction::reverse, {}).vanish_after < 30000);
  const sequence_view<const float> constant(&same, shape, strides{});
  CHECK(detail::products_of(tiled{}, constant, direction::forward, {}).vanish_after == 32768);
  // A gate that is not finite makes the map not finite, even after the step at which all products
  // are zero, unless a reset follows it.
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    gate[2 * 90000] = bad;
    std::vector<std::uint8_t> reset_mask(static_cast<std::size_t>(steps), 0);
    const sequence_view<const bool> resets(reinterpret_cast<const bool*>(reset_mask.data()),
                                           {.batch = 1, .time = steps, .channel = 1});
    const auto maps = linear_scan_summary(tiled{}, a, u, {.resets = resets});
    CHECK_FALSE(std::isfinite(maps[0].act(1.0)));
    CHECK(std::isfinite(maps[1].act(1.0)));
    reset_mask[95000] = 1;
    const auto reset = linear_scan_summary(tiled{}, a, u, {.resets = resets});
    CHECK((reset[0].a == 0 && std::isfinite(reset[0].u)));
  }
}

/// Processes each part from an initial state of 0 and then adds the effect of the entering state.
template <class T>
void check_entering() {
  using V = compute_t<T>;
  split::for_cases<T>([](const split::whole<T>& w, const std::string& name) {
    for (const int parts : {1, 3}) {
      const auto boundaries =
          split::boundaries_of(w.shape.time, parts, static_cast<unsigned>(parts));
      std::vector<V> states = w.first;
      std::vector<T> x(w.input.size());
      for (int k = 0; k < parts; ++k) {
        const auto part =
            static_cast<std::size_t>(w.order == direction::forward ? k : parts - 1 - k);
        const std::int64_t begin = boundaries[part], end = boundaries[part + 1];
        const auto gate = w.gates().steps(begin, end);
        const auto state = w.over(x).steps(begin, end);
        const auto resets = w.resets_of(begin, end);
        detail::lane_array<V> ends(w.shape);
        linear_scan(tiled{.threads = 1}, gate, w.inputs().steps(begin, end), state,
                    {.order = w.order, .final_state = ends.view(), .resets = resets});
        REQUIRE(detail::add_entering<V>(tiled{.threads = 1}, gate, state, w.order, resets,
                                        ends.values(), states));
      }
      w.check_states({x.data(), w.shape}, 0, w.shape.time,
                     name + ", " + std::to_string(parts) + " parts");
    }
  });
}

TEST_CASE("states of a part from 0, plus the entering state, are those of the whole sequence",
          "[split_time]") {
  check_entering<float>();
  check_entering<double>();
  check_entering<std::complex<float>>();
  check_entering<std::uint32_t>();
}

TEST_CASE("the entering state is dropped only where it no longer changes states", "[split_time]") {
  // Channel 0 halves 2^100 at every step and has inputs of 0. Channel 1 has small normal states:
  // gates of 0.999 and inputs of 2^-120.
  const extents shape{.batch = 1, .time = 100000, .channel = 2};
  std::vector<float> gate(200000, 0.5f), input(200000, 0.0f), want(200000), got(200000);
  for (std::size_t i = 1; i < 200000; i += 2) gate[i] = 0.999f, input[i] = 0x1p-120f;
  const sequence_view<const float> a(gate.data(), shape), u(input.data(), shape);
  const sequence_view<float> x(got.data(), shape);
  const std::vector<float> first{0x1p100f, 1.0f};
  linear_scan(sequential{}, a, u, sequence_view<float>(want.data(), shape),
              {.initial_state = state_view<const float>(first.data(), shape)});
  detail::lane_array<float> ends(shape);
  linear_scan(sequential{}, a, u, x, {.final_state = ends.view()});
  std::vector<float> states = first;
  REQUIRE(
      detail::add_entering<float>(tiled{}, a, x, direction::forward, {}, ends.values(), states));
  for (std::size_t i = 0; i < 200000; i += 2) CHECK(got[i] == want[i]);
  // The relative error of `sequential` is at most 2^-24 / 0.001, and that of add_entering has the
  // same bound.
  constexpr float bound = 0x1p-23f / 0.001f;
  for (std::size_t i = 1; i < 200000; i += 2) CHECK(std::fabs(got[i] - want[i]) <= bound * want[i]);
  CHECK((states[0] == got[199998] && states[1] == got[199999]));
}

TEST_CASE("add_entering returns false if states computed from 0 overflow", "[split_time]") {
  const extents shape{.batch = 1, .time = 4};
  const std::vector<float> gate(4, 1.0f), input{3e38f, 3e38f, -3e38f, -3e38f};
  const bool reset_mask[] = {false, false, false, true};
  const sequence_view<const bool> resets(reset_mask, shape);
  const sequence_view<const float> a(gate.data(), shape), u(input.data(), shape);
  std::vector<float> got(4), states{-3e38f};
  const sequence_view<float> x(got.data(), shape);
  detail::lane_array<float> ends(shape);
  linear_scan(sequential{}, a, u, x, {.final_state = ends.view(), .resets = resets});
  CHECK(std::isfinite(ends.values()[0]));
  CHECK_FALSE(detail::add_entering<float>(tiled{}, a, x, direction::forward, resets, ends.values(),
                                          states));
  CHECK(states[0] == -3e38f);
}

TEST_CASE(
    "the map of an empty part is the identity, and the map of a part with a reset has gate zero",
    "[split_time][resets]") {
  const extents shape{.batch = 1, .time = 3, .channel = 2};
  const float gate[] = {2, 3, 2, 3, 2, 3}, input[] = {1, 1, 1, 1, 1, 1};
  const bool reset_mask[] = {false, true, false};
  const sequence_view<const float> a(gate, shape), u(input, shape);
  const auto nothing = linear_scan_summary(tiled{}, a.steps(1, 1), u.steps(1, 1));
  const auto all = linear_scan_summary(tiled{}, a, u);
  const auto reset = linear_scan_summary(
      tiled{}, a, u,
      {.resets = sequence_view<const bool>(reset_mask, {.batch = 1, .time = 3, .channel = 1})});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK((nothing[i].a == 1 && nothing[i].u == 0));
    CHECK(reset[i].a == 0);
  }
  CHECK((all[0].a == 8 && all[0].u == 7));
  CHECK((all[1].a == 27 && all[1].u == 13));
  CHECK((reset[0].u == 3 && reset[1].u == 4));
}

}  // namespace
