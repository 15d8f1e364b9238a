// SPDX-License-Identifier: BSD-3-Clause
// Tests of states that overflow their type. The carry between tiles and packs equals the carry of
// the sequential loop, even though the wide type (double for floats) could hold a larger value.
// Gates are 0 or powers of two with either sign, so finite states are exact. One test has random
// gates instead.
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"

namespace {

using namespace scanrec;

bool same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }
bool same(std::complex<float> x, std::complex<float> y) {
  return same(x.real(), y.real()) && same(x.imag(), y.imag());
}
bool same(const vec<float, 2>& x, const vec<float, 2>& y) {
  return same(x[0], y[0]) && same(x[1], y[1]);
}

/// Gates that make a float state overflow within 256 steps, shrink or clear it in the next 256, and
/// then stay at 1. Tiles end while the state of the sequential loop is infinite.
constexpr std::int64_t steps = 1024;
template <class T>
T gate_at(std::int64_t t, float back) {
  return T(t < 256 ? 2.0f : t < 512 ? back : 1.0f);
}
/// A matrix of four equal entries. It maps (x, x) to gate * (x, x) and never computes inf - inf or
/// 0 * inf.
template <>
mat<float, 2> gate_at<mat<float, 2>>(std::int64_t t, float back) {
  const float entry = gate_at<float>(t, back) / 2;
  return {{{entry, entry}, {entry, entry}}};
}

template <class Gate, class T>
struct arrays {
  extents shape;
  scanrec::strides strides;
  std::vector<Gate> gate, gate_grad;
  std::vector<T> input, state, given, last, by_loop, last_by_loop;

  arrays(std::int64_t channels, bool time_last, float back)
      : shape{1, steps, channels},
        strides(time_last ? time_contiguous(shape) : channels_last(shape)) {
    const auto n = static_cast<std::size_t>(steps * channels);
    gate.resize(n), gate_grad.resize(n);
    for (auto* v : {&input, &state, &by_loop}) v->assign(n, T{});
    for (auto* v : {&last, &last_by_loop}) v->assign(static_cast<std::size_t>(channels), T{});
    T one{};
    if constexpr (std::is_same_v<Gate, T>)
      one = T(1);
    else
      one = {1, 1};
    given.assign(static_cast<std::size_t>(channels), one);
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t c = 0; c < channels; ++c) gate[index(t, c)] = gate_at<Gate>(t, back);
    // Channel 1 stays finite beside overflowing lanes of the same pack. Packs from channel 32 on
    // stay finite as a whole.
    for (std::int64_t c = 1; c < channels; ++c)
      if (c == 1 || c >= 32)
        for (std::int64_t t = 0; t < steps; ++t) gate[index(t, c)] = gate_at<Gate>(steps, back);
  }
  [[nodiscard]] std::size_t index(std::int64_t t, std::int64_t c) const {
    return static_cast<std::size_t>(t * strides.time + c * strides.channel);
  }
  template <class E>
  sequence_view<E> view(std::vector<E>& v) {
    return {v.data(), shape, strides};
  }
  state_view<T> edge(std::vector<T>& v) { return {v.data(), shape}; }

  /// Whether `backend` gives the values of `sequential`. The call is call(backend, states, final
  /// states).
  template <class Backend, class Call>
  bool agree(const Backend& backend, Call call) {
    call(sequential{}, by_loop, last_by_loop);
    call(backend, state, last);
    bool right = !same(last_by_loop[0], given[0]);  // otherwise the test could not fail
    for (std::size_t i = 0; i < state.size(); ++i) right = right && same(state[i], by_loop[i]);
    for (std::size_t i = 0; i < last.size(); ++i) right = right && same(last[i], last_by_loop[i]);
    return right;
  }
};

template <class F>
void for_tilings(F f) {
  for (const std::int64_t channels : {1, 3, 40})
    for (const bool time_last : {false, true})
      for (const float back : {0.5f, -0.5f, 0.0f})
        for (const std::int64_t tile : {64, 128, 256, int{steps}})
          for (const int threads : {1, 3}) {
            INFO(channels << " channels, " << (time_last ? "time" : "channels") << " last, back by "
                          << back << ", tiles of " << tile << ", threads " << threads);
            f(channels, time_last, back, tiled{.threads = threads, .tile_steps = tile});
          }
}

}  // namespace

TEMPLATE_TEST_CASE("tiles carry an infinite state as the sequential loop does",
                   "[overflow][tiled][forward][vjp][jvp]", float, std::complex<float>) {
  using T = TestType;
  for_tilings([](std::int64_t channels, bool time_last, float back, const tiled& backend) {
    arrays<T, T> a(channels, time_last, back);
    CHECK(a.agree(backend, [&](const auto& on, std::vector<T>& state, std::vector<T>& last) {
      linear_scan(on, a.view(a.gate), a.view(a.input), a.view(state),
                  {.initial_state = a.edge(a.given), .final_state = a.edge(last)});
    }));
    // The adjoint of a reverse scan runs from the first step to the last.
    CHECK(a.agree(backend, [&](const auto& on, std::vector<T>& grad, std::vector<T>& last) {
      linear_scan_vjp(on, a.view(a.gate), none, a.view(a.input),
                      {.input_grad = a.view(grad), .initial_grad = a.edge(last)},
                      {.order = direction::reverse, .final_grad = a.edge(a.given)});
    }));
    CHECK(a.agree(backend, [&](const auto& on, std::vector<T>& tangent, std::vector<T>& last) {
      linear_scan_jvp(on, a.view(a.gate), none, none, a.view(a.input), a.view(tangent),
                      {.initial_tangent = a.edge(a.given), .final_tangent = a.edge(last)});
    }));
  });
}

TEST_CASE("an infinity in one channel changes no bit of other channels",
          "[overflow][tiled][forward]") {
  // With random gates and inputs a wide carry has more bits than a float.
  const extents last{1, steps, 20}, contiguous{1, steps, 3};
  for (const auto& [shape, strides] :
       {std::pair{last, channels_last(last)}, std::pair{contiguous, time_contiguous(contiguous)}}) {
    const auto n = static_cast<std::size_t>(steps * shape.channel);
    std::mt19937 bits(1);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> gate(n), input(n), tame(n), wild(n);
    for (std::vector<float>* all : {&gate, &input})
      for (float& x : *all) x = values(bits);
    std::vector<float> growing = gate;
    const auto view = [&, s = shape, at = strides](std::vector<float>& of) {
      return sequence_view<float>(of.data(), s, at);
    };
    for (std::int64_t t = 0; t < steps; ++t) view(growing).at(0, t, 1) = 4;
    for (const int threads : {1, 3}) {
      INFO("strides " << to_string(strides) << ", threads " << threads);
      const tiled backend{.threads = threads, .tile_steps = 128};
      CHECK(describe(backend, linear_scan_problem(view(gate), view(input), view(tame))).time_split);
      linear_scan(backend, view(gate), view(input), view(tame));
      linear_scan(backend, view(growing), view(input), view(wild));
      CHECK(std::isinf(view(wild).at(0, steps / 2, 1)));
      for (std::int64_t t = 0; t < steps; ++t) view(wild).at(0, t, 1) = view(tame).at(0, t, 1);
      CHECK((wild == tame));
    }
  }
}

TEST_CASE("tiles carry an infinite vector state as the sequential loop does",
          "[overflow][tiled][matrix]") {
  using T = vec<float, 2>;
  for_tilings([](std::int64_t channels, bool time_last, float back, const tiled& backend) {
    arrays<mat<float, 2>, T> a(channels, time_last, back);
    CHECK(a.agree(backend, [&](const auto& on, std::vector<T>& state, std::vector<T>& last) {
      linear_scan(on, a.view(a.gate), a.view(a.input), a.view(state),
                  {.initial_state = a.edge(a.given), .final_state = a.edge(last)});
    }));
  });
}
