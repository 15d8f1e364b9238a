// SPDX-License-Identifier: BSD-3-Clause
// Tests of views: strides, spans, parts, reversal and broadcasts. Scans of views have the bits of
// scans of copies.
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

using floats = std::vector<float>;
using view = sequence_view<float>;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(),
                       least = std::numeric_limits<std::int64_t>::min();

/// 0, 1, 2, ...: the value of an element is its index.
floats counted(std::size_t n) {
  floats x(n);
  std::iota(x.begin(), x.end(), 0.0f);
  return x;
}
/// Gates and inputs whose products round. All elements differ.
floats uneven(std::size_t n, int seed) {
  floats x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint32_t>((i + 1) * 2654435761u) ^ (seed * 40503u);
    x[i] = static_cast<float>(bits >> 8) * 0x1p-24f - 0.3f;
  }
  return x;
}

template <class F>
void for_each(const extents& s, F f) {
  for (std::int64_t g = 0; g < s.group; ++g)
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0; t < s.time; ++t)
        for (std::int64_t c = 0; c < s.channel; ++c) f(g, b, t, c);
}
/// The elements of a view in the order (group, batch, time, channel).
template <class T>
std::vector<std::remove_const_t<T>> copied(const sequence_view<T>& x) {
  std::vector<std::remove_const_t<T>> all;
  for_each(x.shape, [&](auto g, auto b, auto t, auto c) { all.push_back(x.at(b, t, c, g)); });
  return all;
}
bool same(const view& x, const view& y) {
  return x.data == y.data && x.shape == y.shape && x.strides == y.strides;
}

/// Runs f, which must throw argument_error for `argument` of `call`. Its message must contain
/// `expected` and `got`.
template <class F>
void refuses(const std::string& call, const std::string& argument, const std::string& expected,
             const std::string& got, F f) {
  try {
    f();
    FAIL("accepted: " << call << ", " << argument);
  } catch (const argument_error& e) {
    INFO(e.what());
    CHECK(std::string(e.what()).rfind(call + ":", 0) == 0);
    CHECK(e.argument() == argument);
    CHECK(e.expected().find(expected) != std::string::npos);
    CHECK(e.got().find(got) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("views take strides after the extents, and a missing stride is zero", "[views]") {
  static_assert(std::is_constructible_v<view, float*, extents, strides>);
  static_assert(std::is_constructible_v<view, std::span<float>, extents, strides>);
  static_assert(!std::is_constructible_v<view, float*, extents, extents>);
  static_assert(!std::is_constructible_v<view, float*, strides>);
  static_assert(!std::is_constructible_v<view, std::span<float>, extents, extents>);
  static_assert(std::is_constructible_v<state_view<float>, float*, extents, strides>);
  static_assert(!std::is_constructible_v<state_view<float>, float*, extents, extents>);
  static_assert(!std::is_constructible_v<state_view<float>, std::span<float>, extents, extents>);
  static_assert(view{}.strides == strides{} && state_view<float>{}.strides == strides{});

  // A missing stride reads one element for all positions of its axis, groups included.
  floats x = counted(8);
  const view shared(x.data(), extents{.batch = 2, .time = 2, .group = 3}, {.batch = 4, .time = 1});
  CHECK(copied(shared) == floats{0, 1, 4, 5, 0, 1, 4, 5, 0, 1, 4, 5});
}

TEST_CASE("a view may be made of a whole span, vector or array", "[views]") {
  floats v = counted(12);
  const floats fixed = v;
  std::array<double, 6> a{};
  float c[8] = {};
  const std::span<float> s(v);
  const std::span<const double, 6> six(a);
  const auto check = [](const auto& x, const void* data, std::int64_t T, std::int64_t C) {
    CHECK(x.data == data);
    CHECK(x.shape == extents{.time = T, .channel = C});
    CHECK(x.strides == channels_last(x.shape));
  };
  check(sequence_view(v), v.data(), 12, 1), check(sequence_view(v, 4), v.data(), 3, 4);
  check(sequence_view(fixed), fixed.data(), 12, 1), check(sequence_view(a), a.data(), 6, 1);
  check(sequence_view(a, 2), a.data(), 3, 2), check(sequence_view(c), c, 8, 1);
  check(sequence_view(c, 8), c, 1, 8), check(sequence_view(s), v.data(), 12, 1);
  check(sequence_view(s.first(0)), v.data(), 0, 1), check(sequence_view(six, 3), a.data(), 2, 3);
  check(sequence_view(s.first(0), std::size_t{5}), v.data(), 0, 5);
  check(sequence_view<const float>(v), v.data(), 12, 1);
  static_assert(std::same_as<decltype(sequence_view(v)), view>);
  static_assert(std::same_as<decltype(sequence_view(fixed)), sequence_view<const float>>);
  static_assert(std::same_as<decltype(sequence_view(a, 2)), sequence_view<double>>);
  static_assert(std::same_as<decltype(sequence_view(c)), view>);
  static_assert(std::same_as<decltype(sequence_view(six, 3)), sequence_view<const double>>);
  // Extents must fit the number of elements. A view of a view has the same type.
  CHECK(sequence_view(v, extents{2, 3, 2}).strides == strides{6, 2, 1, 12});
  CHECK(sequence_view(v, extents{2, 3}, strides{6, 2}).strides == strides{6, 2});
  CHECK(state_view(v, extents{.batch = 3, .channel = 4}).strides == strides{4, 0, 1, 12});
  CHECK_THROWS_AS(sequence_view(v, extents{2, 3, 3}), argument_error);
  CHECK_THROWS_AS(state_view(v, extents{4, 1, 4}), argument_error);
  CHECK(sequence_view(c, extents{.time = 8}).data == c);
  static_assert(std::same_as<decltype(sequence_view(view())), view>);
  // Braced numbers are extents, even one or none.
  CHECK(view(v, {3}).shape == extents{.batch = 3});
  CHECK(view(v.data(), {}).shape == extents{});
  // Views are not made from temporaries and never implicitly.
  static_assert(!std::is_constructible_v<view, floats> && !std::is_convertible_v<floats&, view>);
  static_assert(!std::is_convertible_v<std::span<float>, view>);
  static_assert(!std::is_constructible_v<view, float*> &&
                !std::is_constructible_v<view, float*, int>);

  refuses("sequence_view", "data", "a multiple of 5 elements", "12", [&] { (void)view(v, 5); });
  refuses("sequence_view", "channels", "1 or more", "0", [&] { (void)sequence_view(v, 0); });
  refuses("sequence_view", "channels", "1 or more", "-3", [&] { (void)sequence_view(v, -3); });
}

TEST_CASE("at() finds an element by its indices", "[views]") {
  floats x = counted(2 * 3 * 5 * 4);
  const extents shape{.batch = 3, .time = 5, .channel = 4, .group = 2};
  const view all(x, shape);
  CHECK(all.at(2, 3, 1) == (2 * 5 + 3) * 4 + 1);
  CHECK(all.at(2, 3, 1, 1) == ((3 + 2) * 5 + 3) * 4 + 1);
  all.at(0, 1, 2) = -1;
  CHECK(x[6] == -1);
  const view turned(x.data() + 9, {.time = 10}, {.time = -1});
  CHECK(turned.at(0, 2, 0) == 7);
  const state_view<const float> states(x.data(), shape);
  CHECK(states.at(2, 1) == 9);
  CHECK(states.at(2, 1, 1) == 12 + 9);
  CHECK(states.shape.time == 1);
  static_assert(std::same_as<decltype(states.at(0, 0)), const float&>);
  constexpr static float fixed[]{1, 2, 3, 4, 5, 6};
  static_assert(sequence_view<const float>(fixed, {.time = 2, .channel = 3}).at(0, 1, 2) == 6);
}

TEST_CASE("steps() and channels() select parts of a view", "[views]") {
  floats x = counted(2 * 6 * 4);
  const extents shape{.batch = 2, .time = 6, .channel = 4};
  const view all(x, shape), in_time(x, shape, time_contiguous(shape));
  for (const view& v : {all, in_time, all.reversed()}) {
    const view part = v.steps(1, 4).channels(2, 4);
    CHECK(part.shape == extents{.batch = 2, .time = 3, .channel = 2});
    CHECK(part.strides == v.strides);
    for_each(part.shape, [&](auto, auto b, auto t, auto c) {
      CHECK(&part.at(b, t, c) == &v.at(b, t + 1, c + 2));
    });
    CHECK(same(v.steps(0, 6), v));
    CHECK(same(v.channels(0, 4), v));
    CHECK(same(v.steps(1, 6).steps(2, 4), v.steps(3, 5)));
    // An empty part keeps the address of the view.
    for (const std::int64_t i : {0, 3, 6}) CHECK(v.steps(i, i).data == v.data);
    for (const std::int64_t i : {0, 4}) CHECK(v.channels(i, i).data == v.data);
    CHECK(v.steps(6, 6).shape.time == 0);
  }
  // Parts of broadcast, empty and absent views.
  const view shared(x.data(), shape, {.channel = 1});
  CHECK(shared.steps(4, 6).data == x.data());
  CHECK(shared.steps(2, 2).channels(1, 3).data ==
        x.data() + 1);  // an empty axis of stride 0 has an element
  const view empty(x.data(), {.batch = 0, .time = 6, .channel = 4}, {most, most, most});
  CHECK(empty.steps(5, 6).data == x.data());
  CHECK(view().steps(0, 0).absent());
  CHECK(view().channels(0, 0).absent());
  CHECK(view(nullptr, shape).steps(2, 3).data == nullptr);

  refuses("steps", "first", "0 to 6", "-1", [&] { (void)all.steps(-1, 3); });
  refuses("steps", "first", "0 to 6", "7", [&] { (void)all.steps(7, 7); });
  refuses("steps", "last", "2 to 6", "7", [&] { (void)all.steps(2, 7); });
  refuses("steps", "last", "2 to 6", "1", [&] { (void)all.steps(2, 1); });
  refuses("channels", "last", "0 to 4", "5", [&] { (void)all.channels(0, 5); });
  refuses("channels", "first", "0 to 4", "-9223372036854775808",
          [&] { (void)all.channels(least, 5); });

  const state_view<float> states(x, extents{.batch = 12, .channel = 4});
  const state_view<float> half = states.channels(2, 4);
  CHECK(half.shape == extents{.batch = 12, .channel = 2});
  CHECK(half.strides == states.strides);
  CHECK(&half.at(3, 1) == &states.at(3, 3));
  CHECK(states.channels(4, 4).data == x.data());
  refuses("channels", "last", "1 to 4", "5", [&] { (void)states.channels(1, 5); });
}

TEST_CASE("reversed() reverses time", "[views]") {
  floats x = counted(2 * 5 * 3);
  const extents shape{.batch = 2, .time = 5, .channel = 3};
  for (const view& v : {view(x, shape), view(x, shape, time_contiguous(shape)),
                        view(x.data(), shape, strides{.batch = 0, .time = 0, .channel = 1})}) {
    const view turned = v.reversed();
    CHECK(turned.shape == v.shape);
    CHECK(turned.strides.time == -v.strides.time);
    for_each(shape, [&](auto, auto b, auto t, auto c) {
      CHECK(&turned.at(b, t, c) == &v.at(b, 4 - t, c));
    });
    CHECK(same(turned.reversed(), v));
    CHECK(same(turned.steps(0, 2).reversed(), v.steps(3, 5)));
  }
  // Views without elements or with at most one step keep their address.
  const view empty(x.data(), {.batch = 2, .time = 0, .channel = 3});
  CHECK(empty.reversed().data == x.data());
  CHECK(empty.reversed().shape.time == 0);
  for (const std::int64_t odd : {most, least, least + 1}) {
    CHECK(view(x.data(), {0, 5, 3}, {odd, odd, odd}).reversed().data == x.data());
    CHECK(view(x.data(), {2, 0, 3}, {odd, odd, odd}).reversed().data == x.data());
    CHECK(view(x.data(), {1, 1, 1}, {odd, odd, odd}).reversed().data == x.data());
  }
  CHECK(view().reversed().absent());
  CHECK(view(nullptr, shape).reversed().data == nullptr);
  // An empty batch axis of stride 0 has elements, so the view gets the address of the last step.
  const view sum(x.data(), {.batch = 0, .time = 5}, {.time = 1});
  CHECK(sum.reversed().data == x.data() + 4);
}

TEST_CASE("broadcast_to() repeats axes of extent 1", "[views]") {
  floats x = counted(12);
  const extents shape{.batch = 4, .time = 5, .channel = 3, .group = 2};
  const auto check = [&](const extents& from, const strides& expected) {
    const view v(x, from), wide = broadcast_to(v, shape);
    CHECK(wide.data == x.data());
    CHECK(wide.shape == shape);
    CHECK(wide.strides == expected);
    for_each(shape, [&](auto g, auto b, auto t, auto c) {
      const auto at = [](std::int64_t i, std::int64_t n) { return n == 1 ? 0 : i; };
      CHECK(&wide.at(b, t, c, g) ==
            &v.at(at(b, from.batch), at(t, from.time), at(c, from.channel), at(g, from.group)));
    });
    CHECK(same(broadcast_to(wide, shape), wide));
    // An axis that repeats may have any extent.
    if (from.batch == 1) CHECK(broadcast_to(wide, {9, 5, 3, 2}).strides == expected);
  };
  check({.channel = 3}, {.channel = 1});
  check({.time = 5}, {.time = 1});
  check({.batch = 4, .channel = 3}, {.batch = 3, .channel = 1});
  check({.time = 5, .group = 2}, {.time = 1, .group = 5});
  check({}, {});
  // An axis of the right extent keeps its stride, even if the extent is 1 or the stride negative.
  const view turned(x.data() + 4, {.time = 5}, {.batch = 7, .time = -1, .channel = 9});
  CHECK(broadcast_to(turned, {.time = 5, .channel = 2}).strides ==
        strides{.batch = 7, .time = -1, .channel = 0});
  // Broadcasts to an empty shape, and from an empty shape to an empty shape.
  CHECK(broadcast_to(view(x, {.channel = 3}), {.batch = 0, .time = 5, .channel = 3}).strides ==
        strides{.channel = 1, .group = 3});
  CHECK(broadcast_to(view(x, {.time = 0}), {.batch = 2, .time = 0}).shape.time == 0);
  CHECK(broadcast_to(view(), {0, 0, 0, 0}).absent());

  refuses("broadcast_to", "view", "(batch 4, time 5, channel 3, group 2)", "time 4",
          [&] { (void)broadcast_to(view(x, {.time = 4}), shape); });
  refuses("broadcast_to", "view", "are 1 or have", "channel 3",
          [&] { (void)broadcast_to(view(x, {.channel = 3}), {}); });
  refuses("broadcast_to", "view", "stride of 0", "batch 0",
          [&] { (void)broadcast_to(view(x, {.batch = 0}), {.batch = 2}); });
  refuses("broadcast_to", "view", "stride of 0", "batch 0",
          [&] { (void)broadcast_to(view(x.data(), {.batch = 0}, strides{}), {.batch = 2}); });
  refuses("broadcast_to", "shape", "0 or more", "time -1",
          [&] { (void)broadcast_to(view(x, {}), {.time = -1}); });

  const state_view<float> states(x, extents{.channel = 3});
  const state_view<float> shared = broadcast_to(states, shape);
  CHECK(shared.shape == extents{.batch = 4, .time = 1, .channel = 3, .group = 2});
  CHECK(shared.strides == strides{.channel = 1});
  CHECK(&shared.at(3, 2, 1) == &x[2]);
  refuses("broadcast_to", "view", "channel 2", "channel 3",
          [&] { (void)broadcast_to(states, {.channel = 2}); });
  static_assert(std::same_as<decltype(broadcast_to(sequence_view<const float>(), {})),
                             sequence_view<const float>>);
}

namespace {

/// The results of a scan and its adjoint.
struct scanned {
  floats state, gate_grad, input_grad;
  bool operator==(const scanned&) const = default;
};
template <class Backend>
scanned scan(const Backend& backend, const view& gate, const view& input,
             direction order = direction::forward) {
  const extents& shape = input.shape;
  const auto n = static_cast<std::size_t>(shape.group * shape.batch * shape.time * shape.channel);
  scanned r{floats(n), floats(n), floats(n)};
  const floats grad = uneven(n, 9);
  linear_scan(backend, gate, input, view(r.state, shape), {.order = order});
  linear_scan_vjp(backend, gate, sequence_view<const float>(view(r.state, shape)),
                  sequence_view(grad, shape),
                  {.gate_grad = view(r.gate_grad, shape), .input_grad = view(r.input_grad, shape)},
                  {.order = order});
  return r;
}
template <class Backend>
void check_parts(const Backend& backend, const extents& shape) {
  INFO(to_string(shape));
  const extents wide{shape.batch, shape.time + 3, shape.channel + 5, shape.group};
  const auto n = static_cast<std::size_t>(wide.group * (wide.batch + 1) * wide.time * wide.channel);
  floats gates = uneven(n, 1), inputs = uneven(n, 2);
  const auto dense = [&](floats& x) { return view(x, shape); };
  const auto check = [&](const view& gate, const view& input) {
    floats a = copied(gate), u = copied(input);
    CHECK(scan(backend, gate, input) == scan(backend, dense(a), dense(u)));
  };
  const view gate(gates, wide), input(inputs, wide);
  const auto part = [&](const view& v) {
    return v.steps(2, 2 + shape.time).channels(4, 4 + shape.channel);
  };
  check(part(gate), part(input));
  check(part(gate).reversed(), part(input).reversed());
  check(part(gate).reversed(), part(input));
  // Gates shared over time, over channels, over batch, and over everything.
  check(broadcast_to(part(gate).steps(0, shape.time > 0 ? 1 : 0), shape), part(input));
  check(broadcast_to(part(gate).channels(0, 1), shape), part(input));
  check(broadcast_to(view(gates, {.time = shape.time, .channel = shape.channel}), shape),
        part(input));
  check(broadcast_to(view(gates, extents{}), shape), part(input));
}
template <class Backend>
void check_turns(const Backend& backend, const extents& shape) {
  INFO(to_string(shape));
  const auto n = static_cast<std::size_t>(shape.group * shape.batch * shape.time * shape.channel);
  floats a = uneven(n, 1), u = uneven(n, 2);
  const auto dense = [&](floats& x) { return view(x, shape); };
  // A reverse scan equals a forward scan of reversed views.
  scanned back = scan(backend, dense(a), dense(u), direction::reverse);
  floats state(back.state.size());
  linear_scan(backend, dense(a).reversed(), dense(u).reversed(), dense(state).reversed());
  CHECK(state == back.state);
  scanned turned{floats(state.size()), floats(state.size()), floats(state.size())};
  floats grad = uneven(state.size(), 9);
  linear_scan_vjp(backend, dense(a).reversed(), dense(state).reversed(), dense(grad).reversed(),
                  {.gate_grad = dense(turned.gate_grad).reversed(),
                   .input_grad = dense(turned.input_grad).reversed()});
  CHECK(turned.gate_grad == back.gate_grad);
  CHECK(turned.input_grad == back.input_grad);

  // A gradient view from broadcast_to equals one with explicit zero strides.
  floats by_channel(static_cast<std::size_t>(shape.channel)), by_hand = by_channel;
  const auto vjp_of_gate = [&](const view& sum) {
    linear_scan_vjp(backend, dense(a), dense(state), dense(grad), {.gate_grad = sum});
  };
  vjp_of_gate(broadcast_to(view(by_channel, {.channel = shape.channel}), shape));
  vjp_of_gate(view(by_hand.data(), shape, strides{.channel = shape.channel == 1 ? 0 : 1}));
  CHECK(by_channel == by_hand);
}

}  // namespace

TEST_CASE("scans of views have the bits of scans of copies", "[views]") {
  // Whole packs with a tail, lanes along time, groups, split time, a single element and empty
  // shapes.
  for (const extents shape :
       {extents{2, 33, 19}, extents{3, 130, 1}, extents{1, 70, 3, 2}, extents{1, 30000, 2},
        extents{1, 1, 1}, extents{2, 0, 3}, extents{0, 4, 3}}) {
    check_parts(sequential{}, shape), check_turns(sequential{}, shape);
    check_turns(tiled{}, shape);
    // With one channel, a contiguous copy has its lanes along time, which rounds in another order.
    if (shape.channel > 1) check_parts(tiled{}, shape);
  }
}
