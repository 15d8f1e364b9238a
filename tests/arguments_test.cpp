// SPDX-License-Identifier: BSD-3-Clause
// Tests of invalid arguments: each has its own message, and nothing is written before the check.
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

constexpr extents shape{.batch = 2, .time = 8, .channel = 4};
constexpr std::size_t n = 64;

struct arrays {
  std::vector<float> a = std::vector<float>(n, 0.5f), u = std::vector<float>(n, 1.0f),
                     x = std::vector<float>(n, 7.0f), g = a, da = x, du = x, x0 = x, xT = x;
  sequence_view<float> view(std::vector<float>& v) const { return {v.data(), shape}; }
};

/// Runs f, which must throw for `argument` with `text` in its message and leave `kept` unchanged.
template <class F>
void refuses(const std::vector<float>& kept, const char* argument, const char* text, F f) {
  // f writes to `kept` through another name.
  const auto before = kept;  // NOLINT(performance-unnecessary-copy-initialization)
  try {
    f();
    FAIL("accepted: " << argument << ", " << text);
  } catch (const argument_error& e) {
    INFO(e.what());
    CHECK(e.argument() == argument);
    CHECK(std::string(e.what()).find(text) != std::string::npos);
    CHECK(!e.expected().empty());
    CHECK(!e.got().empty());
  }
  CHECK(kept == before);
}

}  // namespace

TEST_CASE("wrong shapes are rejected", "[arguments]") {
  arrays v;
  const extents wrong{.batch = 2, .time = 9, .channel = 4};
  refuses(v.x, "input", "got (batch 2, time 9, channel 4)",
          [&] { linear_scan(v.view(v.a), sequence_view(v.u.data(), wrong), v.view(v.x)); });
  refuses(v.x, "state", "as 'gate' has",
          [&] { linear_scan(v.view(v.a), v.view(v.u), sequence_view(v.x.data(), wrong)); });
  refuses(v.x, "initial_state", "(batch 2, time 1, channel 4)", [&] {
    linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
                {.initial_state = state_view(v.x0.data(), extents{.batch = 3, .channel = 4})});
  });
  // A gate per channel that was not broadcast over time.
  refuses(v.x, "input", "as 'gate' has (broadcast_to() repeats an extent of 1)", [&] {
    const extents per_channel{.batch = 2, .channel = 4};
    linear_scan(sequence_view(v.a.data(), per_channel), v.view(v.u), v.view(v.x));
  });
  refuses(v.x, "gate", "extents of 0 or more", [&] {
    const extents negative{.batch = 2, .time = -8, .channel = 4};
    linear_scan(sequence_view(v.a.data(), negative), v.view(v.u), v.view(v.x));
  });
  refuses(v.x, "gate", "fewer than 2^52 bytes", [&] {
    const extents huge{.batch = std::int64_t{1} << 31, .time = std::int64_t{1} << 31, .channel = 8};
    const strides zero{};
    linear_scan(sequence_view(v.a.data(), huge, zero), sequence_view(v.u.data(), huge, zero), none,
                {.final_state = state_view(v.xT.data(), shape)});
  });
  const std::vector<std::uint8_t> starts(64);
  const auto* reset_mask = reinterpret_cast<const bool*>(starts.data());
  refuses(v.x, "resets", "or 1 channel", [&] {
    linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
                {.resets = sequence_view(reset_mask, extents{2, 8, 3})});
  });
  refuses(v.x, "resets", "or one step more", [&] {
    linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
                {.resets = sequence_view(reset_mask, extents{2, 10, 4})});
  });
  // The reset after the last step is read, too.
  std::vector<float> room(n + 2);
  refuses(room, "state", "memory apart from 'resets'", [&] {
    linear_scan(v.view(v.a), v.view(v.u), sequence_view(room.data() + 2, shape),
                {.resets = sequence_view(reinterpret_cast<const bool*>(room.data()),
                                         extents{2, 9, 1}, strides{0, 1, 0})});
  });
  // A reset mask may have one channel or all channels, and one more step.
  linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
              {.resets = sequence_view(reset_mask, extents{2, 8, 1})});
  linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
              {.resets = sequence_view(reset_mask, extents{2, 8, 4})});
  linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
              {.resets = sequence_view(reset_mask, extents{2, 9, 1})});
}

TEST_CASE("missing arrays and null pointers are rejected", "[arguments]") {
  arrays v;
  float* nothing = nullptr;
  refuses(v.x, "gate", "a null pointer",
          [&] { linear_scan(sequence_view(nothing, shape), v.view(v.u), v.view(v.x)); });
  refuses(v.x, "input", "got none",
          [&] { linear_scan(v.view(v.a), sequence_view<float>(), v.view(v.x)); });
  refuses(v.x, "state", "final_state", [&] { linear_scan(v.view(v.a), v.view(v.u), none); });
  refuses(v.da, "state", "gate_grad depends on the states",
          [&] { linear_scan_vjp(v.view(v.a), none, v.view(v.g), {.gate_grad = v.view(v.da)}); });
  refuses(v.x, "state", "multiplied by the states",
          [&] { linear_scan_jvp(v.view(v.a), none, v.view(v.u), none, v.view(v.x)); });
  refuses(v.x, "state_tangent", "final_tangent",
          [&] { linear_scan_jvp(v.view(v.a), none, none, v.view(v.u), none); });
}

TEST_CASE("invalid strides and misaligned pointers are rejected", "[arguments]") {
  arrays v;
  refuses(v.x, "state", "a zero stride", [&] {
    linear_scan(v.view(v.a), v.view(v.u), sequence_view(v.x.data(), shape, strides{0, 4, 1}));
  });
  refuses(v.x, "state", "its own address", [&] {
    linear_scan(v.view(v.a), v.view(v.u), sequence_view(v.x.data(), shape, strides{8, 4, 1}));
  });
  refuses(v.da, "gate_grad", "its own address", [&] {
    linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g),
                    {.gate_grad = sequence_view(v.da.data(), shape, strides{0, 2, 1})});
  });
  refuses(v.x, "input", "address space", [&] {
    linear_scan(v.view(v.a), sequence_view(v.u.data(), shape, strides{std::int64_t{1} << 62, 4, 1}),
                v.view(v.x));
  });
  refuses(v.x, "input", "aligned to 4 bytes", [&] {
    const auto* off = reinterpret_cast<const float*>(reinterpret_cast<const char*>(v.u.data()) + 1);
    linear_scan(v.view(v.a), sequence_view(off, shape), v.view(v.x));
  });
}

TEST_CASE("overlapping arrays are rejected except for documented aliases",
          "[arguments][aliasing]") {
  arrays v;
  std::vector<float> pack(3 * n + 8, 0.5f);
  const auto slice = [&](int k) {
    return sequence_view(pack.data() + 4 * k, shape,
                         strides{.batch = 96, .time = 12, .channel = 1});
  };
  refuses(v.a, "state", "apart from 'gate'",
          [&] { linear_scan(v.view(v.a), v.view(v.u), v.view(v.a)); });
  refuses(v.u, "state", "or the same pointer", [&] {
    const extents six{.batch = 2, .time = 6, .channel = 4};
    linear_scan(sequence_view(v.a.data(), six), sequence_view(v.u.data(), six),
                sequence_view(v.u.data() + 4, six));
  });
  refuses(pack, "state", "overlaps", [&] {
    linear_scan(slice(0), v.view(v.u), sequence_view(pack.data() + 3, shape, strides{96, 12, 1}));
  });
  refuses(v.x, "gate_grad", "apart from 'state'", [&] {
    linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g), {.gate_grad = v.view(v.x)});
  });
  refuses(v.x, "input_grad", "apart from 'state'", [&] {
    linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g), {.input_grad = v.view(v.x)});
  });
  refuses(v.da, "gate_grad", "apart from 'input_grad'", [&] {
    linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g),
                    {.gate_grad = v.view(v.da), .input_grad = v.view(v.da)});
  });
  refuses(v.a, "gate_grad", "apart from 'gate'", [&] {
    linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g), {.gate_grad = v.view(v.a)});
  });
  refuses(v.x, "state_tangent", "apart from 'state'",
          [&] { linear_scan_jvp(v.view(v.a), v.view(v.x), v.view(v.g), none, v.view(v.x)); });
  refuses(v.x, "state", "apart from 'final_state'", [&] {
    linear_scan(v.view(v.a), v.view(v.u), v.view(v.x),
                {.final_state = state_view(v.x.data(), shape)});
  });
  // A sum must not overwrite the cotangent that it sums.
  refuses(v.g, "input_grad", "state_grad", [&] {
    const sequence_view<float> sum(v.g.data(), shape, strides{0, 0, 1});
    linear_scan_vjp(v.view(v.a), none, v.view(v.g), {.input_grad = sum});
  });
  // The same holds if the cotangent has the same zero strides.
  refuses(v.g, "input_grad", "state_grad", [&] {
    const sequence_view<float> sum(v.g.data(), shape, strides{0, 0, 1});
    linear_scan_vjp(v.view(v.a), none, sum, {.input_grad = sum});
  });
  // Interleaved slices of one buffer do not overlap.
  linear_scan(slice(0), slice(1), slice(2));
  linear_scan_vjp(v.view(v.a), v.view(v.x), v.view(v.g),
                  {.gate_grad = slice(0), .input_grad = slice(2)});
  // The documented aliasing of input and state works.
  linear_scan(v.view(v.a), v.view(v.u), v.view(v.u));
}

TEST_CASE("spans that are too short for their view are rejected", "[arguments][views]") {
  std::vector<float> v(31);
  CHECK_THROWS_AS(sequence_view(std::span<float>(v), extents{1, 8, 4}), argument_error);
  CHECK_THROWS_AS(sequence_view(std::span<float>(v), extents{1, 8, 4}, strides{0, -4, 1}),
                  argument_error);
  CHECK_THROWS_AS(state_view(std::span<float>(v), extents{8, 100, 4}), argument_error);
  // For strides in bytes instead of elements, the message names the strides.
  refuses(v, "data", "strides, counted in elements, (batch 0, time 16, channel 4)", [&] {
    (void)sequence_view(std::span<float>(v), extents{1, 7, 4}, strides{0, 16, 4});
  });
  CHECK(sequence_view(std::span<float>(v), extents{1, 7, 4}).data == v.data());
  CHECK(state_view(std::span<float>(v), extents{7, 100, 4}).data == v.data());
}

TEST_CASE("views whose number of elements overflows are rejected", "[arguments][views]") {
  constexpr std::int64_t big = std::int64_t{1} << 31,
                         most = std::numeric_limits<std::int64_t>::max();
  using view = sequence_view<float>;
  std::vector<float> one(1, 7.0f);
  const std::span<float> some(one), nothing;
  for (const std::span<float> elements : {some, nothing}) {
    // 2^64 elements: a product that wraps would give 0.
    refuses(one, "shape", "batch 2147483648", [&] { (void)view(elements, extents{big, big, 4}); });
    refuses(one, "shape", "2^63", [&] {
      const extents shape{big, big, 4};
      (void)view(elements, shape, time_contiguous(shape));
    });
    refuses(one, "shape", "2^63", [&] {
      (void)state_view<float>(elements, extents{big, 1, big, 4});
    });
    refuses(one, "shape", "2^63", [&] {
      (void)view(elements, extents{2, 2, 2}, strides{most, most, most});
    });
    refuses(one, "data", "4611686018427387904 elements", [&] {
      (void)view(elements, extents{big, big, 1});
    });
  }
  // An empty axis needs no element and a full broadcast needs one, however long the other axes are.
  CHECK(view(nothing, extents{big, big, 0}).shape.batch == big);
  CHECK(view(nothing, extents{0, big, big, 4}).shape.group == 4);
  CHECK(view(some, extents{most, most, most, most}, strides{0, 0, 0, 0}).data == one.data());
  static_assert(detail::span_needed({big, big, 4, 1}, channels_last({big, big, 4, 1})) ==
                detail::beyond_count);
  static_assert(channels_last({big, big, 4, 1}).batch == 4 * big);
}

TEST_CASE("overflowing byte counts are rejected, and strides of empty arrays are ignored",
          "[arguments]") {
  constexpr std::int64_t big = std::int64_t{1} << 31,
                         most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::vector<float> one(1, 7.0f), other(1);
  using view = sequence_view<float>;
  const strides nowhere{0, 0, 0, 0};
  const auto scan = [&](const extents& shape, const scanrec::strides& strides) {
    linear_scan(view(one.data(), shape, strides), view(one.data(), shape, strides),
                view(other.data(), shape, strides));
  };
  for (const extents& shape :
       {extents{big, big, 4}, extents{big, big, 0}, extents{0, big, big}, extents{0, 1, most, 4},
        extents{most, most, most, 0}, extents{1, 1, std::int64_t{1} << 50}})
    refuses(one, "gate", "fewer than 2^52 bytes", [&] { scan(shape, nowhere); });
  // The strides of an array without elements have no effect.
  for (const std::int64_t odd : {most, least, least + 1, big * big})
    for (const extents& shape : {extents{0, 5, 4}, extents{3, 0, 4}, extents{3, 5, 0, 2}}) {
      scan(shape, {odd, odd, odd, odd});
      scan(shape, channels_last(shape));
      linear_scan(hillis_steele{}, view(one.data(), shape, {odd, odd, odd, odd}),
                  view(one.data(), shape, {odd, odd, odd, odd}),
                  view(other.data(), shape, {odd, odd, odd, odd}), {.order = direction::reverse});
      linear_scan(tiled{}, view(one.data(), shape, {odd, odd, odd, odd}),
                  view(one.data(), shape, {odd, odd, odd, odd}),
                  view(other.data(), shape, {odd, odd, odd, odd}), {.order = direction::reverse});
    }
  CHECK(other[0] == 0);
  // An array with a zero stride along its empty axis has elements. Its other strides matter,
  // because gradients must not overlap these elements.
  refuses(one, "gate", "address space", [&] {
    const extents empty{.batch = 0, .time = 5, .channel = 4};
    const view gate(one.data(), empty, {0, most, 1});
    linear_scan_vjp(gate, view(), view(other.data(), empty),
                    {.input_grad = view(other.data(), empty, {0, 0, 0})});
  });
}

TEST_CASE("storage types with one compute type can be mixed in a call", "[arguments][views]") {
  std::vector<float> a(n, 0.5f), x(n);
  std::vector<bfloat16> u(n, bfloat16(1.0f)), da(n);
  std::vector<float16> h(n), g(n, float16(1.0f));
  linear_scan(sequence_view(a.data(), shape), sequence_view(u.data(), shape),
              sequence_view(h.data(), shape));
  linear_scan(sequence_view(a.data(), shape), sequence_view(u.data(), shape),
              sequence_view(x.data(), shape));
  CHECK(static_cast<float>(h[4]) == 1.5f);
  CHECK(x[4] == 1.5f);
  std::vector<float> ga(n);
  linear_scan_vjp(sequence_view(a.data(), shape), sequence_view(x.data(), shape),
                  sequence_view(g.data(), shape), {.gate_grad = sequence_view(ga.data(), shape)});
  linear_scan_vjp(sequence_view(a.data(), shape), sequence_view(x.data(), shape),
                  sequence_view(g.data(), shape),
                  scan_gradients<bfloat16, float>{.gate_grad = sequence_view(da.data(), shape)});
  CHECK(static_cast<float>(da[8]) == static_cast<float>(bfloat16(ga[8])));
}

TEST_CASE("gradients that are sums over an empty axis are written and checked", "[arguments]") {
  const extents empty{.batch = 0, .time = 5, .channel = 4};
  const strides once{.batch = 0, .time = 0, .channel = 1};
  std::vector<float> gate(4, 0.5f), sum(4, 7.0f), one(1);
  const sequence_view a(gate.data(), empty, once);
  const sequence_view<float> x(one.data(), empty);
  linear_scan_vjp(a, x, x, {.gate_grad = sequence_view(sum.data(), empty, once)});
  CHECK(sum == std::vector<float>(4, 0.0f));
  refuses(gate, "gate_grad", "a null pointer", [&] {
    float* const nowhere = nullptr;
    linear_scan_vjp(a, x, x, {.gate_grad = sequence_view(nowhere, empty, once)});
  });
  refuses(gate, "gate_grad", "memory apart from 'gate'", [&] {
    linear_scan_vjp(a, x, x, {.gate_grad = sequence_view(gate.data(), empty, once)});
  });
  refuses(gate, "data", "at least 4 elements",
          [&] { (void)sequence_view(std::span(one), empty, once); });
}

TEST_CASE("a tile may be longer than the sequence", "[arguments]") {
  for (const std::int64_t steps : {std::int64_t{5000}, std::numeric_limits<std::int64_t>::max()}) {
    const extents line{.time = 5000};
    std::vector<float> a(5000, 0.5f), u(5000, 1), x(5000), y(5000);
    using view = sequence_view<float>;
    linear_scan(sequential{}, view(a.data(), line), view(u.data(), line), view(x.data(), line));
    linear_scan(tiled{.tile_steps = steps}, view(a.data(), line), view(u.data(), line),
                view(y.data(), line));
    CHECK(y[4999] == x[4999]);  // rounds to 2 in every order of addition
  }
}

TEST_CASE("an absent view has the same effect as `none`", "[arguments]") {
  const extents shape{.batch = 2, .time = 40, .channel = 20};
  const std::size_t n = shape.batch * shape.time * shape.channel;
  std::vector<float> a(n), u(n), x(n), with_none(n), with_absent(n);
  for (std::size_t i = 0; i < n; ++i)
    a[i] = 0.5f + static_cast<float>(i % 7) / 16, u[i] = static_cast<float>(i % 5) - 2;
  using view = sequence_view<float>;
  const view A(a.data(), shape), U(u.data(), shape), X(x.data(), shape), absent;
  const auto same = [&](const auto& call) {
    call(none, view(with_none.data(), shape));
    call(absent, view(with_absent.data(), shape));
    return with_none == with_absent;
  };
  std::vector<float> last(shape.batch * shape.channel);
  CHECK(same([&](const auto& nothing, const view& to) {
    linear_scan(A, U, nothing, {.final_state = state_view<float>(last, shape)});
    std::copy(last.begin(), last.end(), to.data);
  }));
  linear_scan(A, U, X);
  CHECK(same([&](const auto& nothing, const view& to) {
    linear_scan_vjp(A, nothing, U, {.input_grad = to});
  }));
  CHECK(same([&](const auto& nothing, const view& to) {
    linear_scan_vjp(A, X, nothing, {.gate_grad = to},
                    {.final_grad = state_view<float>(last, shape)});
  }));
  CHECK(same(
      [&](const auto& nothing, const view& to) { linear_scan_jvp(A, nothing, nothing, U, to); }));
  CHECK(same([&](const auto& nothing, const view& to) { linear_scan_jvp(A, X, U, nothing, to); }));
  CHECK(same([&](const auto& nothing, const view& to) {
    linear_scan_jvp(A, X, U, U, nothing, {.final_tangent = state_view<float>(last, shape)});
    std::copy(last.begin(), last.end(), to.data);
  }));
  const min_gru<>::arrays<view> gates{U, A};
  CHECK(same([&](const auto& nothing, const view& to) {
    gated_scan(min_gru<>{}, gates, nothing, memory::store{to});
  }));
  CHECK(same([&](const auto& nothing, const view& to) {
    gated_scan_vjp(min_gru<>{}, gates, memory::store{X}, nothing, {.arrays = {to, view()}},
                   {.final_grad = state_view<float>(last, shape)});
  }));
}
