// SPDX-License-Identifier: BSD-3-Clause
// Calls of selective scans with arrays of any type and layout, filled with random numbers. Results
// are compared with the reference.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <scanrec/selective_scan.hpp>

#include "catch.hpp"
#include "guarded.hpp"
#include "reference.hpp"
#include "refused.hpp"
#include "selective_reference.hpp"

namespace selective_calls {

using namespace scanrec;
using selective_reference::bounded_number;
using selective_reference::problem;

/// The memory order of the axes of an array.
enum class order { channels_last, time_contiguous, time_major, backwards, random };
inline constexpr std::array all_orders{order::channels_last, order::time_contiguous,
                                       order::time_major, order::backwards, order::random};

inline scanrec::strides random_strides(const extents& shape) {
  static reference::generator bits{3};
  return tested::random_strides(shape, tested::broadcasts::never, bits);
}

/// An array (batch, time, channel, group) that owns its elements, beside an inaccessible page.
template <class S>
struct array {
  tested::guarded_vector<S> elements;
  extents shape{0, 0, 0, 0};
  scanrec::strides strides{};
  std::int64_t first = 0;
  bool given = false;

  array() = default;
  array(const extents& of, order lies) : shape(of) {
    const std::int64_t B = of.batch, T = of.time, C = of.channel, G = of.group;
    switch (lies) {
      case order::channels_last:
        strides = states_last(of);
        break;
      case order::time_contiguous:
        strides = {.batch = C * G * T, .time = 1, .channel = G * T, .group = T};
        break;
      case order::time_major:  // with gaps after each step of a row
        strides = {.batch = C * G + 3, .time = B * (C * G + 3), .channel = G, .group = 1};
        break;
      case order::backwards:
        strides = {.batch = T * C * G, .time = -C * G, .channel = -G, .group = 1};
        break;
      case order::random:
        strides = random_strides(of);
        break;
    }
    const tested::spanned span(of, strides);
    first = span.first;
    given = true;
    elements.reserve(1);  // an empty array has a pointer, too
    elements.assign(static_cast<std::size_t>(span.elements), S(0.25f));
  }
  [[nodiscard]] bool absent() const { return !given; }
  S& at(std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t g) {
    return elements[first + b * strides.batch + t * strides.time + c * strides.channel +
                    g * strides.group];
  }
  /// Calls f(element, index) in the order (batch, time, channel, group). If `reversed`, the last
  /// step comes first, which is scan order in reverse scans.
  template <class F>
  void each(bool reversed, F f) {
    std::int64_t k = 0;
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t t = 0; t < shape.time; ++t)
        for (std::int64_t c = 0; c < shape.channel; ++c)
          for (std::int64_t g = 0; g < shape.group; ++g)
            f(at(b, reversed ? shape.time - 1 - t : t, c, g), k++);
  }
  [[nodiscard]] sequence_view<S> sequence() {
    return absent() ? sequence_view<S>()
                    : sequence_view<S>(elements.data() + first, shape, strides);
  }
  [[nodiscard]] sequence_view<const S> sequence() const {
    return const_cast<array*>(this)->sequence();
  }
  [[nodiscard]] state_view<S> state() {
    return absent() ? state_view<S>() : state_view<S>(elements.data() + first, shape, strides);
  }
  [[nodiscard]] state_view<const S> state() const { return const_cast<array*>(this)->state(); }
  /// The bytes of the elements, in the order of the axes.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    const_cast<array*>(this)->each(false, [&](const S& x, std::int64_t) {
      const auto* const first = reinterpret_cast<const std::byte*>(&x);
      all.insert(all.end(), first, first + sizeof(S));
    });
    return all;
  }
  bool operator==(const array& other) const {
    return given == other.given && bytes() == other.bytes();
  }
};

/// B or C, with values either per step or per channel. Complex values per step are two real arrays.
template <class V, class S>
struct bc {
  array<S> steps, imaginary;
  array<V> channels;

  template <class E>
  [[nodiscard]] bc_view<E> view() {
    using part = typename bc_view<E>::part;
    bc_view<E> v;
    if (!steps.absent()) v.steps = stored_sequence<part>(steps.sequence());
    if (!imaginary.absent()) v.imaginary = stored_sequence<part>(imaginary.sequence());
    v.channels = channels.state();
    return v;
  }
  bool operator==(const bc&) const = default;
};

/// The inputs of a call. R is the real type of V.
template <class V, class S, class R = detail::real_part_of<V>>
struct given {
  array<S> u, delta, z, out_grad;
  array<R> d, bias, intervals;
  array<V> a, initial, final_grad;
  bc<V, S> b, c;
  tested::guarded_vector<unsigned char> reset_mask;
  sequence_view<const bool> resets;
};
/// The results of a call.
template <class V, class S, class R = detail::real_part_of<V>>
struct written {
  array<S> out, u, delta, z;
  array<R> d, bias, intervals;
  array<V> final_state, checkpoints, a, initial;
  bc<V, S> b, c;

  bool operator==(const written&) const = default;
};

template <class V, class S>
class call {
  static constexpr bool complexes = detail::is_complex<V>;
  using real = detail::real_part_of<V>;
  using number = std::conditional_t<complexes, selective_reference::complex, long double>;

 public:
  problem p;
  given<V, S> in;
  written<V, S> got;
  selective_reference::arrays<number> numbers;

  call(const problem& of, order lies, unsigned seed) : p(of), bits_{seed} {
    const bool back = p.order == direction::reverse;
    const extents& shape = p.shape;
    const extents steps{
        .batch = shape.batch, .time = shape.time, .channel = p.groups, .group = p.states};
    const extents one{.channel = shape.channel}, own{.channel = shape.channel, .group = p.states};
    const extents state{.batch = shape.batch, .channel = shape.channel, .group = p.states};
    const extents rows{.batch = shape.batch, .time = shape.time};
    // The layout of arrays without a time axis, of reset masks and of checkpoints.
    const order still = lies == order::random ? lies : order::channels_last;
    const auto fill = [&](auto& made, const extents& e, auto& to, auto number) {
      const bool sequences = &e == &shape || &e == &steps || &e == &rows;
      made = {e, sequences ? lies : still};
      to.resize(static_cast<std::size_t>(e.batch * e.time * e.channel * e.group));
      made.each(back, [&](auto& element, std::int64_t k) {
        using E = std::remove_reference_t<decltype(element)>;
        if constexpr (detail::is_complex<E>)
          element = number();
        else
          element = static_cast<E>(static_cast<real>(number()));
        to[k] = reference::widened(element);
      });
    };
    const auto unit = [&] { return 2 * fraction() - 1; };
    // A random number of the state's type.
    const auto any = [&] {
      if constexpr (complexes)
        return V(static_cast<real>(unit()), static_cast<real>(unit()));
      else
        return unit();
    };
    fill(in.u, shape, numbers.u, unit);
    // Without softplus, delta is below 0.6. With softplus, 2 % of its arguments are about 30, above
    // its threshold of 20, and the others are at most 2.
    fill(in.delta, shape, numbers.delta, [&] {
      if (!p.softplus) return 0.02 + 0.5 * fraction() - (p.grows ? 0.1 : 0.0);
      return fraction() < 0.02 ? 30.0 : 3 * unit() - 2;
    });
    fill(in.a, own, numbers.a, [&] {
      const double rate = p.grows ? 0.4 * unit() : -4 * fraction();
      if constexpr (complexes)
        return V(static_cast<real>(rate), static_cast<real>(6 * unit()));
      else
        return rate;
    });
    if (p.intervals) fill(in.intervals, rows, numbers.intervals, [&] { return 0.2 + fraction(); });
    const auto mix = [&](bc<V, S>& m, bool every_step, auto& to) {
      if (!every_step) return fill(m.channels, own, to, any);
      if constexpr (!complexes) {
        fill(m.steps, steps, to, unit);
      } else {
        std::vector<long double> re, im;
        fill(m.steps, steps, re, unit), fill(m.imaginary, steps, im, unit);
        for (std::size_t i = 0; i < re.size(); ++i) to.emplace_back(re[i], im[i]);
      }
    };
    mix(in.b, p.b_steps, numbers.b), mix(in.c, p.c_steps, numbers.c);
    if (p.d) fill(in.d, one, numbers.d, unit);
    if (p.z) fill(in.z, shape, numbers.z, [&] { return 4 * unit(); });
    if (p.bias) fill(in.bias, one, numbers.bias, [&] { return p.softplus ? unit() : 0.1; });
    if (p.initial) fill(in.initial, state, numbers.initial, any);
    fill(in.out_grad, shape, numbers.out_grad, unit);
    fill(in.final_grad, state, numbers.final_grad, any);
    make_resets(still);

    got.out = {shape, lies}, got.u = got.delta = got.out;
    if (p.z) got.z = got.out;
    got.final_state = {state, still}, got.initial = got.final_state;
    got.a = {own, still};
    if (p.d) got.d = {one, still};
    if (p.bias) got.bias = {one, still};
    if (p.intervals) got.intervals = {rows, lies};
    const auto like = [&](bc<V, S>& m, bool every_step) {
      if (every_step)
        m.steps = {steps, lies};
      else
        m.channels = {own, still};
      if (complexes) m.imaginary = m.steps;
    };
    like(got.b, p.b_steps), like(got.c, p.c_steps);
    extents kept = memory::checkpoint_extents(shape);
    kept.group = p.states;
    got.checkpoints = {kept, still};
  }

  [[nodiscard]] selective_arrays<V> arrays() {
    return {.u = in.u.sequence(),
            .delta = in.delta.sequence(),
            .a = in.a.state(),
            .b = in.b.template view<const V>(),
            .c = in.c.template view<const V>(),
            .d = in.d.state(),
            .z = in.z.sequence(),
            .delta_bias = in.bias.state(),
            .softplus = p.softplus,
            .intervals = in.intervals.sequence()};
  }
  [[nodiscard]] selective_options<V> options() {
    return {.order = p.order,
            .initial_state = in.initial.state(),
            .final_state = got.final_state.state(),
            .resets = in.resets,
            .checkpoints = got.checkpoints.sequence()};
  }
  [[nodiscard]] selective_gradients<V> gradients() {
    return {.u = got.u.sequence(),
            .delta = got.delta.sequence(),
            .a = got.a.state(),
            .b = got.b.template view<V>(),
            .c = got.c.template view<V>(),
            .d = got.d.state(),
            .z = got.z.sequence(),
            .delta_bias = got.bias.state(),
            .initial_state = got.initial.state(),
            .intervals = got.intervals.sequence()};
  }
  [[nodiscard]] selective_vjp_options<V> vjp_options(bool kept = true) {
    return {.order = p.order,
            .initial_state = in.initial.state(),
            .final_grad = in.final_grad.state(),
            .resets = in.resets,
            .checkpoints = kept ? sequence_view<const V>(got.checkpoints.sequence())
                                : sequence_view<const V>()};
  }
  template <class Backend>
  void run(const Backend& on, bool kept = true) {
    selective_scan(on, arrays(), got.out.sequence(), options());
    selective_scan_vjp(on, arrays(), in.out_grad.sequence(), gradients(), vjp_options(kept));
  }

  /// Checks that all results but the checkpoints are within their bounds. `rate` is an additional
  /// relative error of A.
  void check(long double rate = 0) {
    auto m = selective_reference::arithmetic::of<real>();
    m.rate = rate;
    auto want = evaluate(p, numbers, m);
    compare("out", got.out, want.out), compare("final_state", got.final_state, want.final_state);
    compare("u_grad", got.u, want.u), compare("delta_grad", got.delta, want.delta);
    compare("z_grad", got.z, want.z), compare("a_grad", got.a, want.a);
    compare("b_grad", got.b, want.b), compare("c_grad", got.c, want.c);
    compare("intervals_grad", got.intervals, want.intervals);
    compare("d_grad", got.d, want.d), compare("delta_bias_grad", got.bias, want.bias);
    compare("initial_grad", got.initial, want.initial);
  }

 private:
  double fraction() { return bits_() * 0x1p-32; }
  void make_resets(order lies) {
    const std::int64_t B = p.shape.batch, T = p.shape.time, D = p.shape.channel;
    numbers.reset.assign(static_cast<std::size_t>(B * T * D), 0);
    if (p.resets == 0) return;
    const std::int64_t rows = T + (p.resets > 2 ? 1 : 0), columns = p.resets % 2 == 1 ? 1 : D;
    const extents mask_steps{.batch = B, .time = rows, .channel = columns};
    const scanrec::strides strides =
        lies == order::random ? random_strides(mask_steps) : channels_last(mask_steps);
    const tested::spanned span(mask_steps, strides);
    in.reset_mask.reserve(1);
    in.reset_mask.resize(static_cast<std::size_t>(span.elements));
    const sequence_view<bool> reset_mask(reinterpret_cast<bool*>(in.reset_mask.data()) + span.first,
                                         mask_steps, strides);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t d = 0; d < columns; ++d) reset_mask.at(b, t, d) = fraction() < 0.1;
    in.resets = reset_mask;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t d = 0; d < D; ++d) {
          const std::int64_t mark = p.order == direction::reverse ? T - t : t;
          if (mark < rows)
            numbers.reset[(b * T + t) * D + d] = in.resets.at(b, mark, columns == 1 ? 0 : d);
        }
  }
  template <class Number>
  void compare(const char* name, bc<V, S>& is, const std::vector<bounded_number<Number>>& want) {
    compare(name, is.channels, want);
    if constexpr (!complexes) {
      compare(name, is.steps, want);
    } else if (!is.steps.absent()) {
      std::vector<selective_reference::bounded> re, im;
      for (const auto& w : want)
        re.push_back({w.value.real(), w.error}), im.push_back({w.value.imag(), w.error});
      compare(name, is.steps, re), compare(name, is.imaginary, im);
    }
  }
  template <class E, class Number>
  void compare(const char* name, array<E>& is, const std::vector<bounded_number<Number>>& want) {
    if (is.absent()) return;
    const auto m = selective_reference::arithmetic::of<real>();
    const long double u = std::is_same_v<E, bfloat16>  ? 0x1p-8L
                          : std::is_same_v<E, float16> ? 0x1p-11L
                                                       : m.u;
    const long double tiny = std::is_same_v<E, float16> ? 0x1p-24L : m.tiny;
    is.each(p.order == direction::reverse, [&](E& element, std::int64_t k) {
      const bounded_number<Number>& w = want.at(static_cast<std::size_t>(k));
      const long double size = std::abs(w.value);
      const long double bound = w.error + u * (size + w.error) + tiny;
      const long double off = std::abs(reference::widened(element) - w.value);
      const bool overflows = std::is_same_v<E, float16> && size + bound > 65504;
      if (off <= bound || overflows) return;
      INFO(name << ", element " << k << ": size " << static_cast<double>(size) << ", off "
                << static_cast<double>(off) << ", bound " << static_cast<double>(bound));
      CHECK(off <= bound);
    });
  }

  reference::generator bits_;
};

inline std::string to_string(const problem& p) {
  std::string text = scanrec::to_string(p.shape) + ", " + std::to_string(p.states) + " states, " +
                     std::to_string(p.groups) + " groups, resets " + std::to_string(p.resets);
  for (const auto& [on, name] : {std::pair{p.b_steps, "B of steps"},
                                 {p.c_steps, "C of steps"},
                                 {p.softplus, "softplus"},
                                 {p.d, "D"},
                                 {p.z, "z"},
                                 {p.bias, "bias"},
                                 {p.initial, "initial"},
                                 {p.intervals, "intervals"},
                                 {p.grows, "grows"},
                                 {p.order == direction::reverse, "reverse"}})
    if (on) text += std::string(", ") + name;
  return text;
}

/// The usual problem. Most options are set. Channels, states and steps do not fill whole packs,
/// state blocks and checkpoint intervals.
inline problem usual() {
  problem p;
  p.shape = {.batch = 2, .time = 300, .channel = 42};
  p.groups = 2, p.states = 6, p.resets = 2;
  return p;
}

/// The arrays of a call, restricted to steps [first, last).
template <class V, class S>
selective_arrays<V> steps_of(call<V, S>& of, std::int64_t first, std::int64_t last) {
  selective_arrays<V> part = of.arrays();
  part.u = of.in.u.sequence().steps(first, last);
  part.delta = of.in.delta.sequence().steps(first, last);
  part.z = of.in.z.sequence().steps(first, last);
  part.b.steps = of.in.b.steps.sequence().steps(first, last);
  part.c.steps = of.in.c.steps.sequence().steps(first, last);
  if constexpr (detail::is_complex<V>) {
    part.b.imaginary = of.in.b.imaginary.sequence().steps(first, last);
    part.c.imaginary = of.in.c.imaginary.sequence().steps(first, last);
  }
  if (of.p.intervals) part.intervals = of.in.intervals.sequence().steps(first, last);
  return part;
}

/// Whether every element of y is twice that of x.
template <class V>
bool doubled(array<V>& x, array<V>& y) {
  bool same = true;
  std::vector<V> twice;
  x.each(false, [&](V v, std::int64_t) { twice.push_back(v + v); });
  y.each(false, [&](V v, std::int64_t k) { same = same && v == twice[k]; });
  return same;
}

/// The bits of the output and of the gradients of u and B, in the order of their axes.
template <class V>
std::vector<std::uint16_t> bits_of(call<V, bfloat16>& of) {
  std::vector<std::uint16_t> bits;
  for (auto* const x : {&of.got.out, &of.got.u, &of.got.b.steps})
    x->each(false, [&](bfloat16 v, std::int64_t) { bits.push_back(v.bits); });
  return bits;
}

/// A random problem.
inline problem random_problem(reference::generator& bits) {
  const auto one_of = [&](const auto&... values) {
    const std::int64_t all[]{values...};
    return all[bits() % sizeof...(values)];
  };
  const auto often = [&] { return bits() % 4 != 0; };
  problem p;
  p.groups = one_of(1, 1, 1, 2, 3);
  p.shape = {.batch = one_of(1, 2, 3),
             .time = one_of(1, 2, 15, 16, 31, 33, 64, 127, 128, 129, 200, 260),
             .channel = p.groups * one_of(1, 2, 5, 8, 9, 16, 17)};
  p.states = one_of(1, 2, 3, 4, 5, 8, 16, 17);
  p.b_steps = often(), p.c_steps = often(), p.softplus = often();
  if (!p.b_steps && !p.c_steps) p.groups = 1;
  p.d = often(), p.z = often(), p.bias = often(), p.initial = often();
  p.resets = static_cast<int>(one_of(0, 0, 1, 2, 3, 4));
  p.intervals = !often();
  p.grows = bits() % 6 == 0;
  p.order = bits() % 3 == 0 ? direction::reverse : direction::forward;
  return p;
}

/// Checks that the results of random problems, each altered by change(problem), are within their
/// bounds. Every other adjoint gets the checkpoints of the forward call.
template <class V, class S, class Backend>
void check_random_problems(
    int count, std::uint64_t seed, const Backend& on, void (*change)(problem&) = [](problem&) {},
    long double rate_error = 0) {
  reference::generator bits{seed};
  for (int i = 0; i < count; ++i) {
    problem p = random_problem(bits);
    change(p);
    const order lies = all_orders[bits() % all_orders.size()];
    INFO("problem " << i << ": " << to_string(p) << ", order " << static_cast<int>(lies));
    call<V, S> of(p, lies, bits());
    of.run(on, i % 2 == 0);
    of.check(rate_error);
  }
}

}  // namespace selective_calls
