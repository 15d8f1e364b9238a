// SPDX-License-Identifier: BSD-3-Clause
// Tests of planned calls: the same bits as unplanned calls, on the arrays of the plan and on
// others, and the errors for invalid arrays.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <scanrec/cells/min_gru.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/planned.hpp>
#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "guarded.hpp"

namespace {

using namespace scanrec;

std::vector<float> noise(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> v(n);
  std::generate(v.begin(), v.end(), [&] { return values(random); });
  return v;
}
template <class T>
std::vector<T> as(const std::vector<float>& from) {
  std::vector<T> to;
  for (const float x : from) to.push_back(static_cast<T>(x));
  return to;
}
template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::equal(reinterpret_cast<const char*>(x.data()),
                                            reinterpret_cast<const char*>(x.data() + x.size()),
                                            reinterpret_cast<const char*>(y.data()));
}

/// The arrays of a linear_scan, with its views and options.
template <class T>
struct scan_arrays {
  using V = compute_t<T>;
  extents shape;
  std::vector<T> gate, input, state;
  std::vector<V> initial, final;
  std::vector<char> reset_mask;

  scan_arrays(const extents& of, unsigned seed)
      : shape(of),
        gate(as<T>(noise(element_count(of), seed))),
        input(as<T>(noise(element_count(of), seed + 1))),
        state(element_count(of)),
        initial(as<V>(noise(of.batch * of.channel, seed + 2))),
        final(initial.size()),
        reset_mask(of.batch * of.time) {
    for (std::size_t i = 0; i < reset_mask.size(); i += 3 + seed % 3) reset_mask[i] = 1;
  }
  static std::int64_t element_count(const extents& e) { return e.batch * e.time * e.channel; }
  sequence_view<T> view(std::vector<T>& v) { return {v.data(), shape}; }
  const bool* resets() const { return reinterpret_cast<const bool*>(reset_mask.data()); }
  scan_options<V> options(direction order, bool with_resets) {
    scan_options<V> o;
    o.order = order;
    o.initial_state = state_view<const V>(initial.data(), shape);
    o.final_state = state_view<V>(final.data(), shape);
    if (with_resets) o.resets = {resets(), extents{shape.batch, shape.time, 1}};
    return o;
  }
};

template <class F>
void refuses(const char* argument, const char* text, F f) {
  try {
    f();
    FAIL("accepted: " << argument << ", " << text);
  } catch (const argument_error& e) {
    INFO(e.what());
    CHECK(e.argument() == argument);
    CHECK(std::string(e.what()).find(text) != std::string::npos);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("planned scans access no memory outside their arrays, for any strides",
                   "[planned][bounds]", float, std::uint32_t) {
  using T = TestType;
  using tested::broadcasts;
  for (unsigned number = 0; number < 100; ++number) {
    tested::guarded_layouts l(number);
    const bool starts = !l.one_in(3);
    // Arrays with the same layouts are created three times: for the plan, for a later call, and for
    // the call without a plan.
    struct arrays {
      tested::guarded<T> gate, input, state, first, last;
      tested::guarded<bool> resets;
    };
    const auto make = [&] {
      auto same = l;
      arrays a;
      a.gate = same.input<T>("gate", true), a.input = same.input<T>("input");
      a.state = same.output<T>("state");
      if (starts) a.first = same.state<T>("initial_state", broadcasts::sometimes);
      a.last = same.state<T>("final_state", broadcasts::never);
      a.resets = same.resets();
      return std::pair(a, same.text);
    };
    const auto options = [&](const arrays& a) {
      return scan_options<T>{.order = l.order,
                             .initial_state = a.first.state(),
                             .final_state = a.last.state(),
                             .resets = a.resets.view()};
    };
    const auto [planned, text] = make();
    const arrays other = make().first, want = make().first;
    for (const tiled& backend : {tiled{}, tiled{.threads = 2, .tile_steps = 16}}) {
      INFO(text << ", threads " << backend.threads);
      linear_scan(backend, want.gate.view(), want.input.view(), want.state.view(), options(want));
      auto scan = plan_linear_scan(backend, planned.gate.view(), planned.input.view(),
                                   planned.state.view(), options(planned));
      scan();
      scan({.gate = other.gate.view().data,
            .input = other.input.view().data,
            .state = other.state.view().data,
            .initial_state = other.first.state().data,
            .final_state = other.last.state().data,
            .resets = other.resets.view().data});
      for (const arrays* a : {&planned, &other}) {
        CHECK((a->state.gaps_untouched() && a->last.gaps_untouched()));
        CHECK(a->state.elements() == want.state.elements());
        CHECK(a->last.elements() == want.last.elements());
      }
    }
  }
}

TEMPLATE_TEST_CASE("a planned scan has the bits of the unplanned scan", "[planned]", float,
                   bfloat16, std::complex<double>) {
  using T = TestType;
  for (const extents shape : {extents{1, 1, 64}, extents{1, 1, 5}, extents{3, 1, 17},
                              extents{1, 7, 48}, extents{2, 300, 3}, extents{1, 40000, 1},
                              extents{1, 0, 4}, extents{0, 3, 4}, extents{1, 2, 0}})
    for (const direction order : {direction::forward, direction::reverse})
      for (const bool resets : {false, true})
        for (const int threads : {0, 2}) {
          CAPTURE(shape.batch, shape.time, shape.channel, order == direction::reverse, resets);
          scan_arrays<T> first(shape, 1), other(shape, 2), want(shape, 1), want_other(shape, 2);
          const tiled backend{.threads = threads};
          for (scan_arrays<T>* w : {&want, &want_other})
            linear_scan(backend, w->view(w->gate), w->view(w->input), w->view(w->state),
                        w->options(order, resets));

          auto call = plan_linear_scan(backend, first.view(first.gate), first.view(first.input),
                                       first.view(first.state), first.options(order, resets));
          CHECK(same_bits(first.state,
                          std::vector<T>(first.state.size())));  // planning writes nothing
          for (int again = 0; again < 2; ++again) {
            call();
            CHECK(same_bits(first.state, want.state));
            CHECK(same_bits(first.final, want.final));
            std::fill(first.state.begin(), first.state.end(), T{});
          }
          call({.gate = other.gate.data(),
                .input = other.input.data(),
                .state = other.state.data(),
                .initial_state = other.initial.data(),
                .final_state = other.final.data(),
                .resets = resets ? other.resets() : nullptr});
          CHECK(same_bits(other.state, want_other.state));
          CHECK(same_bits(other.final, want_other.final));
          CHECK(same_bits(first.state, std::vector<T>(first.state.size())));
          // Arrays that a call does not name stay those of the previous call.
          auto moved = std::move(call);
          std::fill(other.state.begin(), other.state.end(), T{});
          moved();
          CHECK(same_bits(other.state, want_other.state));
          moved({.gate = first.gate.data(),
                 .input = first.input.data(),
                 .initial_state = first.initial.data(),
                 .resets = resets ? first.resets() : nullptr});
          CHECK(same_bits(other.state, want.state));
        }
}

TEST_CASE("planned steps of a stream have the bits of the whole sequence", "[planned]") {
  const extents whole{.batch = 2, .time = 37, .channel = 24}, one{.batch = 2, .channel = 24};
  scan_arrays<float> all(whole, 5);
  linear_scan(all.view(all.gate), all.view(all.input), all.view(all.state),
              all.options(direction::forward, false));

  std::vector<float> states(all.state.size()), carried = all.initial;
  const strides in_sequence = channels_last(whole);
  const state_view<float> carry(carried.data(), one);
  using view = sequence_view<float>;
  const extents step_shape{.batch = 2, .time = 1, .channel = 24};
  auto step = plan_linear_scan(view(all.gate.data(), step_shape, in_sequence),
                               view(all.input.data(), step_shape, in_sequence),
                               view(states.data(), step_shape, in_sequence),
                               {.initial_state = carry, .final_state = carry});
  for (std::int64_t t = 0; t < whole.time; ++t)
    step({.gate = all.gate.data() + t * 24,
          .input = all.input.data() + t * 24,
          .state = states.data() + t * 24});
  CHECK(same_bits(states, all.state));
  CHECK(same_bits(carried, all.final));
}

TEST_CASE("planned scans accept matrices, a final state alone and a workspace", "[planned]") {
  using m = mat<double, 2>;
  using v = vec<double, 2>;
  const extents shape{.batch = 1, .time = 9, .channel = 4};
  std::vector<m> gate(36);
  std::vector<v> input(36), want(36), got(36), last(4), want_last(4);
  const auto values = noise(36 * 6, 9);
  for (std::size_t i = 0; i < 36; ++i) {
    for (int k = 0; k < 2; ++k) input[i].at[k] = values[i * 6 + k];
    for (int k = 0; k < 4; ++k) gate[i](k / 2, k % 2) = values[i * 6 + 2 + k];
  }
  const sequence_view<m> a(gate.data(), shape);
  const sequence_view<v> u(input.data(), shape), x(got.data(), shape);
  linear_scan(a, u, sequence_view<v>(want.data(), shape));
  plan_linear_scan(a, u, x)();
  CHECK(same_bits(got, want));

  linear_scan(a, u, none, {.final_state = state_view<v>(want_last.data(), shape)});
  alignas(64) std::byte memory[8192];
  const auto planned = [&](std::size_t bytes) {
    return plan_linear_scan(tiled{.workspace = {memory, bytes}}, a, u, none,
                            {.final_state = state_view<v>(last.data(), shape)});
  };
  auto call = planned(sizeof memory);
  call();
  CHECK(same_bits(last, want_last));
  CHECK(call.plan().workspace_bytes <= std::int64_t{sizeof memory});
  refuses("workspace", "the value of workspace_bytes()", [&] { planned(1); });
}

TEST_CASE("a planned call rejects the arrays that the unplanned call rejects",
          "[planned][arguments]") {
  const extents shape{.batch = 1, .time = 2, .channel = 8};
  scan_arrays<float> v(shape, 3), want(shape, 3);
  linear_scan(want.view(want.gate), want.view(want.input), want.view(want.state));
  refuses("state", "apart from 'gate'", [&] {
    static_cast<void>(plan_linear_scan(v.view(v.gate), v.view(v.input), v.view(v.gate)));
  });
  auto call = plan_linear_scan(v.view(v.gate), v.view(v.input), v.view(v.state));
  refuses("state", "apart from 'gate'", [&] { call({.state = v.gate.data()}); });
  refuses("state", "apart from 'gate'", [&] { call({.gate = v.state.data() + 4}); });
  refuses("state", "or the same pointer", [&] { call({.state = v.input.data() + 1}); });
  refuses("input", "aligned to 4 bytes", [&] {
    call({.input =
              reinterpret_cast<const float*>(reinterpret_cast<const char*>(v.gate.data()) + 1)});
  });
  refuses("initial_state", "absent when the call was planned",
          [&] { call({.initial_state = v.initial.data()}); });
  refuses("resets", "absent when the call was planned", [&] { call({.resets = v.resets()}); });
  // The rejected calls have changed nothing.
  call();
  CHECK(same_bits(v.state, want.state));
  // The documented aliasing of input and state works.
  call({.state = v.input.data()});
  CHECK(same_bits(v.input, want.state));

  // Interleaved slices of one buffer: first disjoint, then overlapping.
  std::vector<float> pack(2 * 3 * 8 + 8);
  const auto slice = [&](int at) {
    return sequence_view<float>(pack.data() + at, shape, {.time = 24, .channel = 1});
  };
  auto packed = plan_linear_scan(slice(0), slice(8), slice(16));
  packed({.gate = pack.data() + 16, .state = pack.data()});
  refuses("state", "apart from 'gate'", [&] { packed({.state = pack.data() + 12}); });
}

TEST_CASE("a planned gated scan has the bits of the unplanned scan", "[planned][gated]") {
  const extents shape{.batch = 1, .time = 3, .channel = 20};
  using arrays = fo_pooling<>::arrays<sequence_view<const float>>;
  using pointers = fo_pooling<>::arrays<const float*>;
  const fo_pooling<> cell{.forget_bias = 1};
  const auto z = noise(60, 1), f = noise(60, 2), o = noise(60, 3), before = noise(20, 4);
  const auto at = [&](const std::vector<float>& v) {
    return sequence_view<const float>(v.data(), shape);
  };
  const std::vector<char> zoned{0, 1, 0, 1, 0}, reset_mask{0, 0, 1};
  for (const direction order : {direction::forward, direction::reverse})
    for (const bool more : {false, true}) {
      gated_options<float> options{.order = order,
                                   .initial_state = state_view(before.data(), shape)};
      std::vector<float> want(60), got(60), last(20), want_last(20);
      options.final_state = state_view(want_last.data(), shape);
      if (more) {
        options.zoneout = {reinterpret_cast<const bool*>(zoned.data()), shape, {.time = 1}};
        options.resets = {reinterpret_cast<const bool*>(reset_mask.data()), extents{1, 3, 1}};
      }
      gated_scan(cell, arrays{at(z), at(f), at(o)}, sequence_view(want.data(), shape), none,
                 options);

      options.final_state = state_view(last.data(), shape);
      std::vector<float> elsewhere(60);
      auto call = plan_gated_scan(cell, arrays{at(o), at(o), at(o)},
                                  sequence_view(elsewhere.data(), shape), options);
      call({.arrays = pointers{z.data(), f.data(), nullptr}, .output = got.data()});
      CHECK(same_bits(got, want));
      CHECK(same_bits(last, want_last));
      call();
      CHECK(same_bits(got, want));

      // A final state without outputs.
      std::fill(last.begin(), last.end(), 0.0f);
      auto silent = plan_gated_scan(cell, arrays{at(z), at(f), at(o)}, none, options);
      silent();
      CHECK(same_bits(last, want_last));
      std::vector<float> last_elsewhere(20);
      silent({.final_state = last_elsewhere.data()});
      CHECK(same_bits(last_elsewhere, want_last));
      refuses("initial_state", "aligned to 4 bytes", [&] {
        silent({.initial_state = reinterpret_cast<const float*>(
                    reinterpret_cast<const char*>(before.data()) + 2)});
      });
      refuses("final_state", "apart from 'forget_gate'",
              [&] { silent({.final_state = const_cast<float*>(f.data())}); });
    }
}
