// SPDX-License-Identifier: BSD-3-Clause
// Checks that sequences processed in parts have the states and gradients of the whole sequence.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <scanrec/split_time.hpp>

#include "reference.hpp"

namespace split {

using namespace scanrec;

/// The arrays of a call for the whole sequence.
template <class T>
struct whole {
  extents shape;
  direction order;
  bool resets, constant;
  std::vector<T> gate, input, grad;
  std::vector<std::uint8_t> reset_mask;  // for each step and after the last
  std::vector<compute_t<T>> first, last_grad;

  whole(const extents& s, direction o, bool with_resets, bool constant_gate, unsigned seed)
      : shape(s), order(o), resets(with_resets), constant(constant_gate) {
    const auto n = static_cast<std::size_t>(s.group * s.batch * s.time * s.channel);
    const auto lanes = static_cast<std::size_t>(s.group * s.batch * s.channel);
    reference::generator bits{seed};
    const auto fill = [&](auto& values, std::size_t count, bool as_gate) {
      using S = typename std::remove_reference_t<decltype(values)>::value_type;
      for (std::size_t i = 0; i < count; ++i)
        values.push_back(reference::array<S>::random(bits, as_gate));
    };
    fill(gate, std::max<std::size_t>(n, lanes), true), fill(input, n, false), fill(grad, n, false);
    fill(first, lanes, false), fill(last_grad, lanes, false);
    for (std::int64_t i = 0; i < s.group * s.batch * (s.time + 1); ++i)
      reset_mask.push_back(bits() % 23 == 0 ? 1 : 0);
  }
  sequence_view<T> over(std::vector<T>& values) const { return {values.data(), shape}; }
  sequence_view<const T> gates() const {
    if (!constant) return {gate.data(), shape};
    return {gate.data(), shape, strides{shape.channel, 0, 1, shape.batch * shape.channel}};
  }
  sequence_view<const T> inputs() const { return {input.data(), shape}; }
  sequence_view<const T> grads() const { return {grad.data(), shape}; }
  state_view<const compute_t<T>> first_states() const { return {first.data(), shape}; }
  state_view<const compute_t<T>> last_grads() const { return {last_grad.data(), shape}; }
  /// The elements of the reset mask for steps [begin, end) and the one after them.
  sequence_view<const bool> resets_of(std::int64_t begin, std::int64_t end) const {
    if (!resets) return {};
    const std::int64_t T1 = shape.time + 1;
    return {reinterpret_cast<const bool*>(reset_mask.data()) + begin,
            {.batch = shape.batch, .time = end - begin + 1, .channel = 1, .group = shape.group},
            strides{T1, 1, 0, shape.batch * T1}};
  }
  /// Additional roundings in the error bound: those of the states between parts.
  static constexpr int more = 4;

  /// Checks steps [begin, end) of states.
  void check_states(const sequence_view<const T>& got, std::int64_t begin, std::int64_t end,
                    const std::string& where) const {
    check(got, begin, end, where, false);
  }
  /// Checks steps [begin, end) of the gradients of inputs.
  void check_input_grads(const sequence_view<const T>& got, std::int64_t begin, std::int64_t end,
                         const std::string& where) const {
    check(got, begin, end, where, true);
  }

 private:
  void check(const sequence_view<const T>& got, std::int64_t begin, std::int64_t end,
             const std::string& where, bool adjoint) const {
    using V = compute_t<T>;
    using W = reference::wide<V>;
    const bool ascending = (order == direction::forward) != adjoint;
    const sequence_view<const T> a = gates(), u = adjoint ? grads() : inputs();
    reference::for_each_sequence(shape, [&](auto g, auto b, auto c) {
      std::vector<W> factors, terms;
      std::vector<long double> sizes;
      std::vector<bool> reset;
      for (std::int64_t i = 0; i < shape.time; ++i) {
        const std::int64_t t = ascending ? i : shape.time - 1 - i;
        // The adjoint uses the gate of the step that the cotangent comes from.
        const std::int64_t from = adjoint ? t + (ascending ? -1 : 1) : t;
        const bool there = from >= 0 && from < shape.time;
        W factor = there ? reference::widened(a.at(b, from, c, g)) : W(1);
        if constexpr (reference::complex<V>)
          if (adjoint) factor = std::conj(factor);
        factors.push_back(factor);
        terms.push_back(reference::widened(u.at(b, t, c, g)));
        sizes.push_back(reference::magnitude(terms.back()));
        // The gate connects two adjacent steps, and a reset at the later step masks it. No reset
        // masks the gradient of the final state.
        const std::int64_t later = ascending ? t : t + 1;
        reset.push_back(resets && !(adjoint && i == 0) &&
                        reset_mask[static_cast<std::size_t>(
                            (g * shape.batch + b) * (shape.time + 1) + later)] != 0);
      }
      const auto lane = static_cast<std::size_t>((g * shape.batch + b) * shape.channel + c);
      const auto want = reference::scan<V>(
          factors, terms, reference::widened(adjoint ? last_grad[lane] : first[lane]), reset,
          sizes);
      for (std::int64_t t = begin; t < end; ++t) {
        const auto i = static_cast<std::size_t>(ascending ? t : shape.time - 1 - t);
        reference::check_close<T>(got.at(b, t - begin, c, g), want.value[i], want.bound(i, more),
                                  [&] { return where + ", step " + std::to_string(t); });
      }
    });
  }
};

/// Random boundaries of parts. A part may be empty.
inline std::vector<std::int64_t> boundaries_of(std::int64_t steps, int parts, unsigned seed) {
  std::vector<std::int64_t> boundaries{0, steps};
  reference::generator bits{seed + 5};
  while (static_cast<int>(boundaries.size()) <= parts)
    boundaries.push_back(static_cast<std::int64_t>(bits() % static_cast<std::uint32_t>(steps + 1)));
  std::sort(boundaries.begin(), boundaries.end());
  return boundaries;
}

/// Calls f(whole sequence, name) for several lengths, both directions, with and without resets and
/// constant gates.
template <class T, class F>
void for_cases(F f) {
  unsigned seed = 1;
  for (const std::int64_t steps : {0, 1, 5, 700})
    for (const direction order : {direction::forward, direction::reverse})
      for (const bool resets : {false, true})
        for (const bool constant : {false, true}) {
          const extents shape{.batch = 1, .time = steps, .channel = 3, .group = 2};
          const whole<T> w(shape, order, resets, constant, seed++);
          f(w, "T " + std::to_string(steps) + (order == direction::reverse ? " reverse" : "") +
                   (resets ? ", resets" : "") + (constant ? ", constant gates" : ""));
        }
}

}  // namespace split
