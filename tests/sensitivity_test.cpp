// SPDX-License-Identifier: BSD-3-Clause
// Tests of linear_scan_sensitivity: comparison with linear_scan_jvp, aliasing and memory bounds.
#include <cmath>
#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/scan.hpp>
#include <scanrec/sensitivity.hpp>
#include <scanrec/variants.hpp>

#include "catch.hpp"
#include "guarded.hpp"
#include "reference.hpp"

namespace {

using namespace scanrec;
using complex = std::complex<double>;
using reference::random_numbers;

template <class T, class B>
void check_sensitivity(const B& backend) {
  const extents shape{.batch = 2, .time = 90, .channel = 3};
  const strides once{.batch = 0, .time = 0, .channel = 1};
  const std::vector<double> numbers = random_numbers(2000, 6);
  const auto number = [&](std::size_t i) {
    if constexpr (reference::complex<T>)
      return T(numbers[2 * i], numbers[2 * i + 1]);
    else
      return T(numbers[i]);
  };
  std::vector<T> u(540), state(540), sensitivity(540), plain(540), tangent(540), last(6);
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = number(i);
  T lambda[3], one[3] = {T(1), T(1), T(1)}, start[6], start_tangent[6];
  for (std::size_t c = 0; c < 3; ++c)
    lambda[c] = T(0.95) * number(600 + c) / std::abs(number(600 + c));
  for (std::size_t i = 0; i < 6; ++i)
    start[i] = number(700 + i), start_tangent[i] = number(720 + i);
  const sequence_view<const T> gate(lambda, shape, once), ones(one, shape, once);
  bool reset_mask[182] = {};
  reset_mask[17] = reset_mask[90] = reset_mask[101] =
      true;  // index 90 lies after the last step of the first sequence
  const sequence_view<const bool> resets(reset_mask, {2, 91, 1});
  for (const direction order : {direction::forward, direction::reverse}) {
    linear_scan_sensitivity(backend, gate, sequence_view<const T>(u.data(), shape),
                            sequence_view(state.data(), shape),
                            sequence_view(sensitivity.data(), shape),
                            {.order = order,
                             .initial_state = state_view<const T>(start, shape),
                             .initial_sensitivity = state_view<const T>(start_tangent, shape),
                             .final_sensitivity = state_view<T>(last.data(), shape),
                             .resets = resets});
    linear_scan(
        sequential{}, gate, sequence_view<const T>(u.data(), shape),
        sequence_view(plain.data(), shape),
        {.order = order, .initial_state = state_view<const T>(start, shape), .resets = resets});
    linear_scan_jvp(sequential{}, gate, sequence_view<const T>(plain.data(), shape), ones, none,
                    sequence_view(tangent.data(), shape),
                    {.order = order,
                     .initial_state = state_view<const T>(start, shape),
                     .initial_tangent = state_view<const T>(start_tangent, shape),
                     .resets = resets});
    for (std::size_t i = 0; i < u.size(); ++i) {
      CHECK(std::abs(state[i] - plain[i]) <= 1e-13 * (1 + std::abs(plain[i])));
      CHECK(std::abs(sensitivity[i] - tangent[i]) <= 1e-12 * (1 + std::abs(tangent[i])));
    }
    for (std::size_t i = 0; i < 6; ++i) {
      const std::size_t t = order == direction::forward ? 89 : 0;
      CHECK(last[i] == sensitivity[(i / 3 * 90 + t) * 3 + i % 3]);
    }
  }
}

TEST_CASE("sensitivities equal the tangents of linear_scan_jvp for a gate tangent of 1",
          "[sensitivity]") {
  check_sensitivity<double>(sequential{});
  check_sensitivity<complex>(tiled{.threads = 2, .tile_steps = 32});
  check_sensitivity<complex>(blelloch{});
}

/// Runs sensitivities on arrays beside inaccessible pages.
template <class T>
void check_bounds(unsigned cases) {
  using tested::broadcasts;
  for (unsigned number = 0; number < cases; ++number) {
    tested::guarded_layouts given(number);
    const auto gate = given.input<T>("gate", true), input = given.input<T>("input");
    const auto first = given.state<T>("initial_state", broadcasts::sometimes),
               first_sensitivity = given.state<T>("initial_sensitivity", broadcasts::sometimes);
    const auto resets = given.resets();
    const bool starts = !given.one_in(3), no_states = given.one_in(4);
    std::string wanted;
    const auto check = [&](const auto& backend) {
      auto l = given;  // every backend has the same layouts
      const auto state = l.output<T>("state"), sensitivity = l.output<T>("sensitivity");
      const auto last = l.state<T>("final_state", broadcasts::never),
                 last_sensitivity = l.state<T>("final_sensitivity", broadcasts::never);
      sensitivity_options<T> options{.order = l.order,
                                     .final_state = last.state(),
                                     .final_sensitivity = last_sensitivity.state(),
                                     .resets = resets.view()};
      if (starts)
        options.initial_state = first.state(),
        options.initial_sensitivity = first_sensitivity.state();
      INFO(l.text);
      if (no_states)
        linear_scan_sensitivity(backend, gate.view(), input.view(), none, sensitivity.view(),
                                options);
      else
        linear_scan_sensitivity(backend, gate.view(), input.view(), state.view(),
                                sensitivity.view(), options);
      std::string got;
      for (const auto* a : {&state, &sensitivity, &last, &last_sensitivity}) {
        CHECK((a->gaps_untouched() && a->all_finite()));
        if (a != &state || !no_states) got += a->elements();
      }
      if (wanted.empty()) wanted = got;
      if (std::is_integral_v<T>) CHECK(got == wanted);
    };
    check(sequential{}), check(tiled{.threads = 1}), check(tiled{.threads = 2, .tile_steps = 16});
    check(blelloch{.threads = 3});
  }
}
TEST_CASE("sensitivities access no memory outside their arrays", "[sensitivity][bounds]") {
  check_bounds<std::uint32_t>(120);
  check_bounds<std::complex<float>>(60);
}

TEST_CASE("calls whose states overwrite arguments give the same bits as calls with separate arrays",
          "[sensitivity]") {
  const extents shape{.batch = 2, .time = 90, .channel = 3};
  const std::vector<double> numbers = random_numbers(540, 6), gates = random_numbers(540, 7);
  const sequence_view gate(gates.data(), shape);
  std::vector<double> state(540), sensitivity(540), state_in_place = numbers,
                                                    sensitivity_in_place(540);
  const std::vector<double> start = random_numbers(12, 8);
  std::vector<double> last(12), carried = start;
  linear_scan_sensitivity(gate, sequence_view(numbers.data(), shape),
                          sequence_view(state.data(), shape),
                          sequence_view(sensitivity.data(), shape),
                          {.initial_state = state_view<const double>(start.data(), shape),
                           .initial_sensitivity = state_view<const double>(start.data() + 6, shape),
                           .final_state = state_view(last.data(), shape),
                           .final_sensitivity = state_view(last.data() + 6, shape)});
  linear_scan_sensitivity(
      gate, sequence_view<const double>(state_in_place.data(), shape),
      sequence_view(state_in_place.data(), shape),
      sequence_view(sensitivity_in_place.data(), shape),
      {.initial_state = state_view<const double>(carried.data(), shape),
       .initial_sensitivity = state_view<const double>(carried.data() + 6, shape),
       .final_state = state_view(carried.data(), shape),
       .final_sensitivity = state_view(carried.data() + 6, shape)});
  CHECK((state_in_place == state));
  CHECK((sensitivity_in_place == sensitivity));
  CHECK((carried == last));
}

}  // namespace
