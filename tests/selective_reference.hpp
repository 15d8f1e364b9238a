// SPDX-License-Identifier: BSD-3-Clause
// A reference selective scan with gradients in long double, by the formulas. Every number has a
// bound on its rounding error.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include <scanrec/selective_scan.hpp>

#include "reference.hpp"

namespace selective_reference {

using namespace scanrec;
using reference::widened;

/// A number, and a bound on its error if it is computed in the type under test.
template <class Number>
struct bounded_number {
  Number value{};
  long double error = 0;
};
using bounded = bounded_number<long double>;
using complex = std::complex<long double>;
using bounded_complex = bounded_number<complex>;

inline long double real_of(long double x) { return x; }
inline long double real_of(complex x) { return x.real(); }
inline long double conj_of(long double x) { return x; }
inline complex conj_of(complex x) { return std::conj(x); }
template <class Number>
bounded_number<Number> conj_of(bounded_number<Number> x) {
  return {conj_of(x.value), x.error};
}
template <class Number>
bounded real_of(bounded_number<Number> x) {
  return {real_of(x.value), x.error};
}
/// Arithmetic of one type. Every operation propagates the errors of its arguments and adds its own
/// rounding error, of `ulps` units in the last place.
struct arithmetic {
  long double u = 0, tiny = 0;
  long double rate = 0;  // additional relative error of A

  template <class V>
  static arithmetic of() {
    return {std::numeric_limits<V>::epsilon() / 2, 2 * std::numeric_limits<V>::min(), 0};
  }
  template <class Number>
  [[nodiscard]] bounded_number<Number> rounded(Number value, long double error,
                                               long double ulps) const {
    const long double own = 2 * ulps * u * (std::abs(value) + error);
    return {value, error + own + (error + std::abs(value) > 0 ? tiny : 0)};
  }
  /// In a complex product, each part is two products, and the second is fused with the sum.
  template <class X, class Y>
  [[nodiscard]] auto product(bounded_number<X> a, bounded_number<Y> b) const {
    constexpr bool complexes = std::is_same_v<X, complex> && std::is_same_v<Y, complex>;
    return rounded(a.value * b.value,
                   std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error,
                   complexes ? 1.5L : 0.5L);
  }
  template <class Number>
  [[nodiscard]] bounded_number<Number> sum(bounded_number<Number> a,
                                           bounded_number<Number> b) const {
    return rounded(a.value + b.value, a.error + b.error, 0.5L);
  }
  /// A function whose slope is at most `slope`.
  [[nodiscard]] bounded function(long double value, long double slope, bounded of,
                                 long double ulps) const {
    return rounded(value, slope * of.error, ulps);
  }
  [[nodiscard]] bounded exp(bounded y) const {
    const long double e = std::exp(y.value);
    return rounded(e, e * std::expm1(y.error + rate * std::abs(y.value)), 6);
  }
  /// Each part of a point on the unit circle has an error of at most 2 u + 2 u |angle|, so the
  /// point has one below 3 u (1 + |angle|).
  [[nodiscard]] bounded_complex exp(bounded_complex y) const {
    const bounded size = exp(bounded{y.value.real(), y.error});
    const long double angle = std::abs(y.value.imag()) + y.error;
    const bounded_complex point{std::polar(1.0L, y.value.imag()), y.error + 3 * u * (1 + angle)};
    return product(size, point);
  }
  [[nodiscard]] bounded sigmoid(bounded x) const {
    return function(1 / (1 + std::exp(-x.value)), 0.25L, x, 6);
  }
  [[nodiscard]] bounded softplus(bounded x) const {
    return x.value > 20 ? x : function(std::log1p(std::exp(x.value)), 1, x, 6);
  }
  [[nodiscard]] bounded softplus_slope(bounded x) const {
    return x.value > 20 ? bounded{1, 0} : sigmoid(x);
  }
};
/// A sum in any order, in which an element passes through at most `most` additions.
template <class Number>
struct running_sum {
  Number value{};
  long double error = 0, size = 0, count = 0;

  /// Adds x, which costs `terms` additions.
  void add(bounded_number<Number> x, int terms = 1) {
    value += x.value, error += x.error, size += std::abs(x.value) + x.error, count += terms;
  }
  [[nodiscard]] bounded_number<Number> total(const arithmetic& in, long double most = 1e9L) const {
    return {value, error + 1.01L * (std::min(count, most) + 2) * in.u * size};
  }
};

/// The sizes and the optional arrays of a problem.
struct problem {
  extents shape{};
  std::int64_t groups = 1, states = 1;
  bool b_steps = true, c_steps = true;
  bool softplus = true, d = true, z = true, bias = true, initial = true;
  bool intervals = false;
  // 0: absent; 1: one column for all channels; 2: one per channel; 3 and 4: as 1 and 2, with a
  // reset after the last step.
  int resets = 0;
  bool grows = false;
  direction order = direction::forward;
};

/// All arrays of a call in long double, contiguous, channels last and states last. Number is the
/// type of states.
template <class Number>
struct arrays {
  using numbers = std::vector<long double>;
  numbers u, delta, d, z, bias, intervals, out_grad;
  std::vector<Number> a, b, c, initial, final_grad;
  std::vector<std::uint8_t> reset;  // (batch, time, channel), in scan order
};
/// The results of a call, with error bounds.
template <class Number>
struct results {
  std::vector<bounded> out, u, delta, d, z, bias, intervals;
  std::vector<bounded_number<Number>> final_state, a, b, c, initial;
};

/// Computes all results. Time is in scan order, as in `in`.
template <class Number>
results<Number> evaluate(const problem& p, const arrays<Number>& in, const arithmetic& m) {
  using state = bounded_number<Number>;
  constexpr bool doubled = std::is_same_v<Number, complex>;
  const std::int64_t B = p.shape.batch, T = p.shape.time, D = p.shape.channel, N = p.states;
  const std::int64_t G = p.groups, per_group = D / G;
  const auto exact = [](auto x) { return bounded_number<decltype(x)>{x, 0}; };
  const auto twice = [](bounded x) { return doubled ? bounded{2 * x.value, 2 * x.error} : x; };
  results<Number> r;
  r.out.resize(in.u.size()), r.u = r.delta = r.z = r.out;
  r.final_state.resize(static_cast<std::size_t>(B * D * N)), r.initial = r.final_state;
  std::vector<running_sum<Number>> of_a(static_cast<std::size_t>(D * N)), of_b(in.b.size()),
      of_c(in.c.size());
  std::vector<running_sum<long double>> of_d(static_cast<std::size_t>(D)),
      of_bias = of_d, of_intervals(in.intervals.size());
  std::vector<state> x(static_cast<std::size_t>(T * N)), gate = x;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t d = 0; d < D; ++d) {
      const auto at = [&](std::int64_t t) { return (b * T + t) * D + d; };
      const auto bc = [&](bool steps, std::int64_t t, std::int64_t n) {
        return steps ? ((b * T + t) * G + d / per_group) * N + n : d * N + n;
      };
      const auto argument = [&](std::int64_t t) {
        const bounded delta = exact(in.delta[at(t)]);
        return p.bias ? m.sum(delta, exact(in.bias[d])) : delta;
      };
      const auto soft_of = [&](std::int64_t t) {
        return p.softplus ? m.softplus(argument(t)) : argument(t);
      };
      const auto step_of = [&](std::int64_t t) {
        return p.intervals ? m.product(soft_of(t), exact(in.intervals[b * T + t])) : soft_of(t);
      };
      const auto start = [&](std::int64_t n) {
        return p.initial ? exact(in.initial[(b * D + d) * N + n]) : state{};
      };
      std::vector<bounded> y(static_cast<std::size_t>(T));
      for (std::int64_t t = 0; t < T; ++t) {
        const bounded step = step_of(t), delta_u = m.product(step, exact(in.u[at(t)]));
        running_sum<long double> mixed;
        for (std::int64_t n = 0; n < N; ++n) {
          const bool reset = in.reset[at(t)] != 0;
          gate[t * N + n] = reset ? state{} : m.exp(m.product(step, exact(in.a[d * N + n])));
          const state before = reset ? state{} : t > 0 ? x[(t - 1) * N + n] : start(n);
          x[t * N + n] = m.sum(m.product(gate[t * N + n], before),
                               m.product(exact(in.b[bc(p.b_steps, t, n)]), delta_u));
          mixed.add(real_of(m.product(exact(in.c[bc(p.c_steps, t, n)]), x[t * N + n])), 2);
        }
        running_sum<long double> all;
        all.add(twice(mixed.total(m)));
        if (p.d) all.add(m.product(exact(in.d[d]), exact(in.u[at(t)])));
        y[t] = all.total(m);
        r.out[at(t)] = y[t];
        if (p.z) {
          const bounded z = exact(in.z[at(t)]);
          r.out[at(t)] = m.product(y[t], m.product(z, m.sigmoid(z)));
        }
      }
      for (std::int64_t n = 0; n < N; ++n)
        r.final_state[(b * D + d) * N + n] = T > 0 ? x[(T - 1) * N + n] : start(n);

      std::vector<state> carry(static_cast<std::size_t>(N));
      for (std::int64_t n = 0; n < N; ++n) carry[n] = exact(in.final_grad[(b * D + d) * N + n]);
      for (std::int64_t t = T - 1; t >= 0; --t) {
        const bounded step = step_of(t), u = exact(in.u[at(t)]), delta_u = m.product(step, u);
        const bounded g = exact(in.out_grad[at(t)]), z = exact(p.z ? in.z[at(t)] : 0.0L);
        const bounded s = m.sigmoid(z);
        const bounded y_grad = p.z ? m.product(g, m.product(z, s)) : g;
        if (p.z) {
          const bounded rest = m.sigmoid(bounded{-z.value, z.error});
          const bounded slope = m.product(s, m.sum(bounded{1, 0}, m.product(z, rest)));
          r.z[at(t)] = m.product(m.product(g, y[t]), slope);
        }
        running_sum<long double> delta_u_sum, gate_sum;
        for (std::int64_t n = 0; n < N; ++n) {
          const state B_n = exact(in.b[bc(p.b_steps, t, n)]);
          const state C_n = exact(in.c[bc(p.c_steps, t, n)]);
          const state before = t > 0 ? x[(t - 1) * N + n] : start(n);
          const state l = m.sum(m.product(twice(y_grad), conj_of(C_n)), carry[n]);
          const state met = m.product(l, conj_of(m.product(gate[t * N + n], before)));
          delta_u_sum.add(real_of(m.product(conj_of(l), B_n)), 2);
          gate_sum.add(real_of(m.product(exact(in.a[d * N + n]), conj_of(met))), 2);
          of_a[d * N + n].add(m.product(step, met));
          of_b[bc(p.b_steps, t, n)].add(m.product(l, delta_u));
          of_c[bc(p.c_steps, t, n)].add(m.product(twice(y_grad), conj_of(x[t * N + n])));
          carry[n] = m.product(conj_of(gate[t * N + n]), l);
        }
        running_sum<long double> of_u, of_step;
        of_u.add(m.product(step, delta_u_sum.total(m)));
        if (p.d) of_u.add(m.product(exact(in.d[d]), y_grad));
        r.u[at(t)] = of_u.total(m);
        of_step.add(m.product(u, delta_u_sum.total(m))), of_step.add(gate_sum.total(m));
        bounded slope = p.softplus ? m.softplus_slope(argument(t)) : bounded{1, 0};
        if (p.intervals) {
          slope = m.product(slope, exact(in.intervals[b * T + t]));
          of_intervals[b * T + t].add(m.product(of_step.total(m), soft_of(t)));
        }
        r.delta[at(t)] = m.product(of_step.total(m), slope);
        of_d[d].add(m.product(y_grad, u)), of_bias[d].add(r.delta[at(t)]);
      }
      for (std::int64_t n = 0; n < N; ++n) r.initial[(b * D + d) * N + n] = carry[n];
    }
  // A term of a sum over time or channels passes through at most 128 additions in the compute type,
  // and then through additions in the wide type (wide_t).
  const auto put = [&](auto& to, const auto& sums) {
    for (const auto& sum : sums) to.push_back(sum.total(m, 130));
  };
  put(r.a, of_a), put(r.b, of_b), put(r.c, of_c), put(r.d, of_d), put(r.bias, of_bias);
  put(r.intervals, of_intervals);
  return r;
}

}  // namespace selective_reference
