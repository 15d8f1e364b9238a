// SPDX-License-Identifier: BSD-3-Clause
// Tests of the adjoint of linear attention. Errors of gradients are at most twice those of the
// adjoint of a loop over steps. In double, gradients also satisfy dot-product identities and equal
// central differences. Bits do not depend on threads or on which gradients are absent.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <scanrec/linear_attention.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "linear_attention_calls.hpp"
#include "linear_attention_golden.hpp"
#include "refused.hpp"

namespace {

using namespace scanrec;
using attention_calls::adjoint_call;
using attention_calls::element;
using attention_calls::layout;
using attention_calls::loop;
using attention_calls::problem;
using attention_calls::stored_array;
using attention_reference::tensor;
using reference::generator;
using tested::refused;

/// The sum of products of the elements.
template <class X, class Y>
double dot(const X& x, const Y& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.numbers.size(); ++i)
    sum += static_cast<double>(x.numbers[i]) * static_cast<double>(y.numbers[i]);
  return sum;
}

/// Replaces queries and keys by numbers away from 0. Central differences are inaccurate if
/// normalise divides by small norms.
template <class V>
void use_larger_rows(adjoint_call<V>& c, generator& bits) {
  const auto numbers = [&](auto...) {
    return attention_calls::uniform(bits, 0.3, 1) * (bits() % 2 == 0 ? 1 : -1);
  };
  c.in.q = c.q.fill(numbers), c.in.k = c.k.fill(numbers);
}

// ---- the reference ----------------------------------------------------------------------------

TEST_CASE("the reference adjoint equals central differences of the reference",
          "[linear_attention]") {
  generator bits{1};
  for (int i = 0; i < 60; ++i) {
    problem p = attention_calls::random_problem(bits, 3e3);
    adjoint_call<double> c(p, layout::heads_inside, element::own, bits);
    if (p.normalise) use_larger_rows(c, bits);
    INFO("problem " << i << ": " << to_string(p));
    const auto loss = [&] {
      const auto r = loop<long double>(p, c.in).forward();
      return dot(r.out, c.in.out_grad) + dot(r.final_state, c.in.final_grad);
    };
    const auto got = loop<long double>(p, c.in).adjoint();
    const auto compare = [&](const char* name, tensor<double>& of, const auto& gradient) {
      for (int n = 0; n < 4 && !of.numbers.empty(); ++n) {
        const std::size_t k = bits() % of.numbers.size();
        if (std::isinf(of.numbers[k])) continue;
        const double size = std::abs(loss()), want = central_difference(of.numbers[k], loss);
        INFO(name << ", number " << k);
        CHECK(std::abs(static_cast<double>(gradient.numbers[k]) - want) <=
              1e-7 * (1 + std::abs(want) + size));
      }
    };
    compare("q", c.in.q, got.of.q), compare("k", c.in.k, got.of.k), compare("v", c.in.v, got.of.v);
    compare("gate", c.in.gate, got.of.gate), compare("beta", c.in.beta, got.of.beta);
    compare("initial", c.in.initial, got.of.initial);
  }
}

// ---- values -----------------------------------------------------------------------------------

template <class V>
void check_random_problems(int count, element types, double most, std::uint64_t seed) {
  generator bits{seed};
  for (int i = 0; i < count; ++i) {
    const problem p = attention_calls::random_problem(bits, most);
    const auto lies = static_cast<layout>(bits() % 3);
    adjoint_call<V> c(p, lies, types, bits);
    c.drop(bits() % 6 == 0, bits() % 4 == 0);
    INFO("problem " << i << ": " << to_string(p) << ", layout " << static_cast<int>(lies)
                    << (c.has_out_grad ? "" : ", no out_grad")
                    << (c.has_final_grad ? "" : ", no final_grad"));
    if (types == element::own && p.interval > 0 && bits() % 2 == 0)
      c.run(tiled{}), c.passes_states = true;
    c.run_vjp(tiled{.threads = 1 + static_cast<int>(bits() % 3)}), c.check_vjp();
  }
}

TEST_CASE("errors of gradients are at most twice those of a loop, float", "[linear_attention]") {
  check_random_problems<float>(200, element::own, 1e6, 2);
}
TEST_CASE("errors of gradients are at most twice those of a loop, mixed types",
          "[linear_attention]") {
  check_random_problems<float>(200, element::mixed, 5e5, 3);
}
TEST_CASE("errors of gradients are at most twice those of a loop, double", "[linear_attention]") {
  check_random_problems<double>(80, element::own, 3e5, 4);
}

TEST_CASE("errors of gradients are within bounds in several segments", "[linear_attention]") {
  // States are recomputed in segments of 256 to 4096 steps.
  generator bits{5};
  problem large{.time = 290, .dk = 128, .dv = 256, .gate = true, .beta = true, .normalise = true};
  large.initial = true, large.resets = 1;
  problem small{.time = 4096 + 70, .dk = 3, .dv = 2, .heads = 4, .key_heads = 2, .gate = true};
  small.factors = small.initial = true, small.resets = 2, small.order = direction::reverse;
  problem keys = small;
  keys.key_gates = keys.beta = true, keys.factors = false, keys.order = direction::forward;
  for (const problem& p : {large, small, keys}) {
    adjoint_call<float> c(p, layout::heads_inside, element::own, bits);
    INFO(to_string(p));
    c.run_vjp(tiled{.threads = 2}), c.check_vjp();
  }
}

TEST_CASE("gradients of strong decays have small relative errors", "[linear_attention]") {
  // Differences of running sums would lose all digits here.
  generator bits{6};
  for (const unsigned which : {0, 1, 2, 3}) {
    const bool beta = (which & 1) != 0;
    problem p{.time = 100, .dk = 8, .dv = 9, .gate = true, .beta = beta, .initial = true};
    p.key_gates = (which & 2) != 0;
    adjoint_call<float> c(p, layout::heads_inside, element::own, bits);
    c.in.gate = c.gate.fill([](auto...) { return -14.0; });
    c.run_vjp(tiled{}), c.check_vjp();
    const auto want = loop<double>(p, c.in).adjoint();
    for (std::int64_t t = 0; t < p.time; ++t) {
      const double got = c.gate_grad.get(0, t, 0, 0), is = want.of.gate(0, t, 0, 0);
      CAPTURE(beta, p.key_gates, t, got, is);
      CHECK(std::abs(is) < 1e-3);
      CHECK(std::abs(got - is) <= 1e-5 * std::abs(is) + 1e-6 * want.size.gate(0, 0, 0, 0));
    }
  }
}

TEST_CASE("a factor of 0 has the gradient of its neighbourhood", "[linear_attention]") {
  generator bits{7};
  for (const unsigned which : {0, 1, 2, 3}) {
    const bool beta = (which & 1) != 0;
    problem p{.time = 80, .dk = 5, .dv = 6, .gate = true, .factors = true, .beta = beta};
    p.key_gates = (which & 2) != 0;
    adjoint_call<double> c(p, layout::heads_inside, element::own, bits);
    c.in.gate = c.gate.fill([](auto, auto t, auto, auto) { return t % 7 == 3 ? 0.0 : 0.9; });
    c.run_vjp(tiled{}), c.check_vjp();
    const auto want = loop<double>(p, c.in).adjoint();
    for (const std::int64_t t : {3, 31, 38}) {
      CAPTURE(beta, p.key_gates, t);
      CHECK(std::abs(want.of.gate(0, t, 0, 0)) > 1e-3);
      CHECK(std::abs(c.gate_grad.get(0, t, 0, 0) - want.of.gate(0, t, 0, 0)) < 1e-13);
    }
  }
}

TEST_CASE("gradients equal central differences of the forward call", "[linear_attention]") {
  generator bits{8};
  for (int i = 0; i < 40; ++i) {
    const problem p = attention_calls::random_problem(bits, 1e4);
    adjoint_call<double> c(p, layout::heads_inside, element::own, bits);
    if (p.normalise) use_larger_rows(c, bits);
    INFO("problem " << i << ": " << to_string(p));
    c.run_vjp(tiled{.threads = 2});
    const auto loss = [&] {
      linear_attention(tiled{.threads = 1}, c.arrays(), c.out.view(), c.options());
      return dot(c.out.values(), c.in.out_grad) + dot(c.final_state.values(), c.in.final_grad);
    };
    const auto compare = [&](const char* name, stored_array<double>& of,
                             const stored_array<double>& gradient) {
      const extents& shape = gradient.shape();
      for (int n = 0; n < 3 && !of.absent() && of.view().shape().batch * shape.time > 0; ++n) {
        const auto any = [&](std::int64_t count) {
          return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
        };
        const std::int64_t b = any(shape.batch), t = any(shape.time), channel = any(shape.channel),
                           h = any(shape.group);
        double x = of.get(b, t, channel, h);
        if (std::isinf(x)) continue;
        const double size = std::abs(loss());
        const double want = central_difference(x, [&] {
          of.set(b, t, channel, h, x);
          return loss();
        });
        of.set(b, t, channel, h, x);
        INFO(name << " at " << b << ", " << t << ", " << channel << ", " << h);
        CHECK(std::abs(gradient.get(b, t, channel, h) - want) <=
              1e-7 * (1 + std::abs(want) + size));
      }
    };
    compare("query", c.q, c.q_grad), compare("key", c.k, c.k_grad);
    compare("value", c.v, c.v_grad), compare("gate", c.gate, c.gate_grad);
    compare("beta", c.beta, c.beta_grad), compare("initial", c.initial, c.initial_grad);
  }
}

TEST_CASE("gradients satisfy dot-product identities", "[linear_attention]") {
  // Results are linear in the values and the initial state, and outputs are linear in the queries.
  generator bits{9};
  for (int i = 0; i < 60; ++i) {
    problem p = attention_calls::random_problem(bits, 1e5);
    p.normalise = false;
    adjoint_call<double> c(p, static_cast<layout>(bits() % 3), element::own, bits);
    INFO("problem " << i << ": " << to_string(p));
    c.run(tiled{}), c.run_vjp(tiled{});
    const double of_out = dot(c.out.values(), c.in.out_grad);
    const double of_final = dot(c.final_state.values(), c.in.final_grad);
    const double of_inputs = dot(c.v_grad.values(), c.in.v) +
                             (p.initial ? dot(c.initial_grad.values(), c.in.initial) : 0);
    const double of_queries = dot(c.q_grad.values(), c.in.q);
    // The sums have random signs, so they are compared with their norms.
    const auto norm = [](const auto& x) { return std::sqrt(dot(x, x)); };
    const double size = norm(c.out.values()) * norm(c.in.out_grad) +
                        norm(c.final_state.values()) * norm(c.in.final_grad);
    CHECK(std::abs(of_out + of_final - of_inputs) <= 1e-12 * size);
    CHECK(std::abs(of_out - of_queries) <= 1e-12 * size);
  }
}

// ---- bits -------------------------------------------------------------------------------------

TEST_CASE("gradients have the same bits for any number of threads", "[linear_attention]") {
  generator bits{10};
  for (const unsigned which : {0, 1, 2, 3})
    for (const element types : {element::own, element::mixed}) {
      const bool beta = (which & 1) != 0;
      problem p{.batch = 2, .time = 100, .dk = 37, .dv = 50, .heads = 4};
      p.query_heads = beta ? 8 : 1, p.key_heads = 2, p.gate = p.initial = true, p.beta = beta;
      p.key_gates = (which & 2) != 0, p.resets = 1;
      adjoint_call<float> c(p, layout::heads_inside, types, bits);
      c.run_vjp(tiled{.threads = 1});
      const std::string gradients = c.all_gradients();
      for (const int threads : {2, 3, 5, 16}) {
        c.run_vjp(tiled{.threads = threads});
        CAPTURE(which, static_cast<int>(types), threads);
        CHECK((c.all_gradients() == gradients));
      }
    }
}

TEST_CASE("gradients have the same bits if heads are divided", "[linear_attention]") {
  generator bits{19};
  const auto any = [&](const auto& of) { return of[bits() % std::size(of)]; };
  int divided = 0, several_windows = 0;
  for (int i = 0; i < 120; ++i) {
    problem p = attention_calls::random_problem(bits, 1e5);
    const std::int64_t steps[]{1, 31, 32, 33, 64, 100, 290, 600}, widths[]{16, 17, 33, 48, 64, 80};
    p.batch = 1 + i % 2, p.time = any(steps), p.dv = any(widths);
    // These have segments of 256 steps. With states, a segment is an interval.
    if (p.time > 256) {
      p.dk = 64, p.dv = 512, p.heads = 1 + i % 3;
      p.key_heads = p.query_heads = 1;
    }
    adjoint_call<float> c(p, static_cast<layout>(bits() % 3), element::mixed, bits);
    c.drop(bits() % 6 == 0, bits() % 4 == 0);
    if (p.interval > 0) c.run(tiled{}), c.passes_states = true;
    c.run_vjp(tiled{.threads = 1});
    const std::string gradients = c.all_gradients();
    const auto of = detail::make_linear_attention_vjp(c.arrays(), c.out_grad.view<const float>(),
                                                      c.gradients(), c.vjp_options());
    for (const int threads : {2, 3, 7, 64}) {
      const detail::linear_attention_vjp_plan plan(of, simd::lanes_v<float>, threads);
      divided += plan.divides_heads();
      several_windows += plan.divides_heads() && plan.segments.windows() > 1;
      c.run_vjp(tiled{.threads = threads});
      INFO("problem " << i << ": " << to_string(p) << ", threads " << threads);
      CHECK((c.all_gradients() == gradients));
    }
  }
  CHECK(divided > 150);
  CHECK(several_windows > 20);
}

TEST_CASE("the sequential adjoint has the bits of the tiled one, except in sums over channels",
          "[linear_attention]") {
  generator bits{11};
  for (int i = 0; i < 40; ++i) {
    const problem p = attention_calls::random_problem(bits, 1e5);
    adjoint_call<float> c(p, static_cast<layout>(bits() % 3), element::mixed, bits);
    INFO("problem " << i << ": " << to_string(p));
    c.run_vjp(tiled{});
    const std::string v = c.v_grad.elements(), initial = c.initial_grad.elements();
    const std::string q = c.q_grad.elements(), k = c.k_grad.elements();
    c.run_vjp(sequential{}), c.check_vjp();
    CHECK((c.v_grad.elements() == v));
    CHECK((c.initial_grad.elements() == initial));
    if (p.normalise) continue;
    CHECK((c.q_grad.elements() == q));
    CHECK((c.k_grad.elements() == k));
  }
}

TEST_CASE("gradients have the same bits if the states of the forward call are passed",
          "[linear_attention]") {
  generator bits{17};
  for (const std::int64_t interval : {32, 96})
    for (const unsigned which : {0, 1, 2, 3}) {
      const bool beta = (which & 1) != 0;
      problem p{.batch = 2, .time = 330, .dk = 9, .dv = 20, .heads = 2, .query_heads = 2};
      p.gate = p.initial = true, p.beta = beta, p.interval = interval;
      p.key_gates = (which & 2) != 0;
      adjoint_call<float> c(p, layout::heads_outside, element::own, bits);
      c.run_vjp(tiled{});
      const std::string gradients = c.all_gradients();
      c.run(tiled{}), c.passes_states = true;
      c.run_vjp(tiled{.threads = 2});
      CAPTURE(interval, which);
      CHECK((c.all_gradients() == gradients));
    }
}

TEST_CASE("gradients have the same bits if others are absent", "[linear_attention]") {
  generator bits{12};
  for (int i = 0; i < 60; ++i) {
    const problem p = attention_calls::random_problem(bits, 3e4);
    adjoint_call<float> c(p, layout::heads_inside, element::mixed, bits);
    c.run_vjp(tiled{.threads = 2});
    std::vector<std::string> want;
    c.each([&](const char*, const auto& of) { want.push_back(of.elements()); });
    // Gradients that are absent in this call must not be written.
    c.each([&](const char*, auto& of) { of.fill([](auto...) { return 0.75; }); });
    std::vector<std::string> untouched;
    c.each([&](const char*, const auto& of) { untouched.push_back(of.elements()); });
    const unsigned mask = bits() % 64;
    c.run_vjp(tiled{.threads = 2}, update::overwrite, mask);
    INFO("problem " << i << ": " << to_string(p) << ", gradients " << mask);
    std::size_t bit = 0;
    c.each([&](const char* name, const auto& of) {
      INFO(name);
      CHECK((of.elements() == ((mask >> bit & 1) != 0 ? want : untouched)[bit]));
      ++bit;
    });
  }
}

TEST_CASE("update::accumulate adds to gradients of linear attention", "[linear_attention]") {
  generator bits{13};
  for (int i = 0; i < 60; ++i) {
    const problem p = attention_calls::random_problem(bits, 3e4);
    adjoint_call<float> c(p, static_cast<layout>(bits() % 3), element::mixed, bits);
    c.run_vjp(tiled{});
    std::vector<tensor<double>> once, before;
    c.each([&](const char*, const auto& of) { once.push_back(of.values()); });
    c.each([&](const char*, auto& of) {
      before.push_back(of.fill([&](auto...) { return attention_calls::uniform(bits, -1, 1); }));
    });
    c.run_vjp(tiled{}, update::accumulate);
    INFO("problem " << i << ": " << to_string(p));
    std::size_t k = 0;
    c.each([&](const char* name, const auto& of) {
      INFO(name);
      // Gradients of several heads may be much larger than their sum.
      double largest = 0;
      for (const double x : once[k].numbers) largest = std::max(largest, std::abs(x));
      const double u = 4 * 0x1p-24 + 2 * of.storage_roundoff();
      int wrong = 0;
      of.for_all([&](auto... at) {
        const double was = before[k](at...), sum = was + once[k](at...);
        const double size = std::abs(was) + largest;
        wrong += !(std::abs(of.get(at...) - sum) <= u * size + 0x1p-24);
      });
      CHECK(wrong == 0);
      ++k;
    });
  }
}

// ---- NaN --------------------------------------------------------------------------------------

TEST_CASE("a NaN changes no gradient of another head or of another sequence",
          "[linear_attention]") {
  generator bits{14};
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(bits() % n); };
  for (int i = 0; i < 150; ++i) {
    problem p{.batch = 2, .time = 33 + below(60), .dk = 1 + below(20), .dv = 1 + below(40)};
    p.heads = 4, p.key_heads = 1 << below(3), p.query_heads = 1 << below(4);
    p.gate = p.beta = true, p.factors = bits() % 2 == 0, p.normalise = bits() % 3 == 0;
    p.key_gates = bits() % 2 == 0, p.initial = true, p.resets = 1;
    p.order = bits() % 2 == 0 ? direction::forward : direction::reverse;
    adjoint_call<float> c(p, layout::heads_inside, element::own, bits);
    c.run_vjp(tiled{.threads = 2});
    std::vector<tensor<double>> was;
    c.each([&](const char*, const auto& of) { was.push_back(of.values()); });

    stored_array<float>* const all[]{&c.q, &c.k, &c.v, &c.gate, &c.beta, &c.out_grad};
    const std::int64_t kind = below(6), n = below(p.time), b = below(2);
    stored_array<float>& of = *all[kind];
    const loop<float> steps(p, c.in);
    const std::int64_t head = below(of.shape().group);
    of.set(b, steps.time_of(n), below(of.shape().channel), head,
           std::numeric_limits<double>::quiet_NaN());
    c.run_vjp(tiled{.threads = 2});

    // The steps [begin, end) of the scan are those of the sequence with the NaN.
    std::int64_t begin = n, end = n + 1;
    while (begin > 0 && !steps.reset_before(b, begin)) --begin;
    while (end < p.time && !steps.reset_before(b, end)) ++end;
    // Whether a head of an array belongs to a state of which the poisoned head is a part.
    const auto reached = [&](std::int64_t of_head, std::int64_t heads) {
      for (std::int64_t state = 0; state < p.heads; ++state) {
        const auto part_of = [&](std::int64_t h, std::int64_t count) {
          return count <= p.heads ? state * count / p.heads == h : h * p.heads / count == state;
        };
        if (part_of(head, of.shape().group) && part_of(of_head, heads)) return true;
      }
      return false;
    };
    INFO("problem " << i << ": " << to_string(p) << ", NaN in array " << kind << ", step " << n
                    << ", head " << head);
    std::size_t k = 0;
    int bad = 0;
    c.each([&](const char* name, const auto& gradient) {
      int wrong = 0;
      const bool state = k == 5;
      gradient.for_all([&](auto at, auto t, auto channel, auto h) {
        const std::int64_t m = state ? 0 : steps.time_of(t);
        const bool in_sequence =
            state ? begin == 0 && !steps.reset_before(b, 0) : m >= begin && m < end;
        const double x = gradient.get(at, t, channel, h);
        if (at == b && in_sequence && reached(h, gradient.shape().group))
          bad += std::isnan(x);
        else
          wrong += x != was[k](at, t, channel, h);
      });
      INFO(name);
      CHECK(wrong == 0);
      ++k;
    });
    // The gate of a step after a reset multiplies a state of 0, and is not used.
    CHECK((bad > 0) == (kind != 3 || !steps.reset_before(b, n)));
  }
}

// ---- arguments --------------------------------------------------------------------------------

TEST_CASE("the adjoint of linear attention handles empty problems", "[linear_attention]") {
  generator bits{15};
  for (const bool has_final : {false, true}) {
    problem p{.batch = 2, .time = 0, .dk = 3, .dv = 20, .gate = true, .beta = true};
    adjoint_call<float> c(p, layout::heads_inside, element::own, bits);
    c.drop(false, !has_final);
    c.run_vjp(tiled{});
    c.initial_grad.for_all([&](auto... at) {
      CHECK(c.initial_grad.get(at...) == (has_final ? c.final_grad.get(at...) : 0.0));
    });
    p.batch = 0, p.time = 5;
    adjoint_call<float>(p, layout::heads_inside, element::own, bits).run_vjp(tiled{});
  }
}

TEST_CASE("the adjoint of linear attention refuses invalid arguments by name and writes nothing",
          "[linear_attention]") {
  const std::vector<float> start(30000, 0.5f);
  std::vector<float> x = start;
  const auto at = [&](std::int64_t offset, const extents& shape) {
    return sequence_view<float>(x.data() + offset, shape);
  };
  const auto steps = [&](std::int64_t channels, std::int64_t heads, std::int64_t offset) {
    return at(offset, {.batch = 2, .time = 40, .channel = channels, .group = heads});
  };
  const extents state{.batch = 2, .time = 4, .channel = 5, .group = 6};
  using change_of =
      std::function<void(linear_attention_arrays<float>&, stored_sequence<const float>&,
                         linear_attention_gradients<float>&, linear_attention_vjp_options<float>&)>;
  // Gradients of distinct arrays are 2500 elements apart.
  const auto with = [&](const change_of& change) {
    linear_attention_arrays<float> arrays{
        .query = steps(4, 6, 0), .key = steps(4, 3, 0), .value = steps(5, 6, 0)};
    arrays.gate = steps(1, 6, 0), arrays.beta = steps(1, 6, 0);
    stored_sequence<const float> out_grad = steps(5, 6, 0);
    linear_attention_gradients<float> g{.query = steps(4, 6, 2500), .key = steps(4, 3, 5000)};
    g.value = steps(5, 6, 7500), g.gate = steps(1, 6, 10000), g.beta = steps(1, 6, 12500);
    g.initial_state = at(15000, state);
    linear_attention_vjp_options<float> options{.initial_state = at(0, state)};
    options.final_grad = at(0, state);
    change(arrays, out_grad, g, options);
    const std::string name = refused([&] { linear_attention_vjp(arrays, out_grad, g, options); });
    CHECK((name.empty() || x == start));
    x = start;
    return name;
  };
  CHECK(with([](auto&, auto&, auto&, auto&) {}).empty());
  CHECK(with([](auto& a, auto&, auto&, auto&) { a.value = {}; }) == "value");
  CHECK(with([](auto& a, auto&, auto&, auto&) { a.gate = {}; }) == "gate_grad");
  CHECK(with([](auto& a, auto&, auto&, auto&) { a.beta = {}; }) == "beta_grad");
  CHECK(with([&](auto&, auto& out, auto&, auto&) { out = steps(4, 6, 0); }) == "out_grad");
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.query = steps(4, 3, 2500); }) == "query_grad");
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.key = steps(4, 6, 5000); }) == "key_grad");
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.value = steps(4, 6, 7500); }) == "value_grad");
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.gate = steps(4, 6, 10000); }) == "gate_grad");
  CHECK(with([&](auto& a, auto&, auto&, auto&) { a.gate = steps(4, 6, 0); }) == "gate_grad");
  CHECK(with([&](auto& a, auto&, auto& g, auto&) {
          a.gate = steps(4, 6, 0), g.gate = steps(4, 6, 10000);
        }).empty());
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.beta = steps(1, 3, 12500); }) == "beta_grad");
  CHECK(with([&](auto&, auto&, auto& g, auto&) {
          g.initial_state = at(15000, {.batch = 2, .time = 5, .channel = 4, .group = 6});
        }) == "initial_grad");
  CHECK(with([&](auto&, auto&, auto&, auto& o) {
          o.final_grad = at(0, {.batch = 1, .time = 4, .channel = 5, .group = 6});
        }) == "final_grad");
  CHECK(with([&](auto&, auto&, auto&, auto& o) { o.states = at(0, state), o.interval = 40; }) ==
        "interval");
  CHECK(with([&](auto&, auto&, auto&, auto& o) {
          o.states = at(0, {.batch = 4, .time = 4, .channel = 5, .group = 6}), o.interval = 32;
        }) == "states");
  // Gradients may overlap neither inputs nor each other.
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.value = steps(5, 6, 0); }) != "");
  CHECK(with([&](auto&, auto&, auto& g, auto&) { g.key = steps(4, 3, 2500); }) != "");
  CHECK(with([&](auto&, auto&, auto& g, auto&) {
          auto view = steps(1, 6, 12500);
          view.strides.group = 0;
          g.beta = view;
        }) == "beta_grad");
}

TEST_CASE("the adjoint of linear attention needs the workspace that it reports",
          "[linear_attention]") {
  generator bits{16};
  problem p{.batch = 2, .time = 70, .dk = 40, .dv = 50, .heads = 4, .key_heads = 2};
  p.beta = p.gate = true;
  adjoint_call<float> c(p, layout::heads_inside, element::mixed, bits);
  const auto run = [&](const auto& on) {
    linear_attention_vjp(on, c.arrays(), c.out_grad.view<const float>(), c.gradients(),
                         c.vjp_options());
  };
  const auto check = [&](auto on) {
    run(on);
    const std::string gradients = c.all_gradients();
    const auto memory = attention_calls::add_workspace(
        on, linear_attention_vjp_workspace_bytes(on, c.arrays(), c.out_grad.view<const float>(),
                                                 c.gradients(), c.vjp_options()));
    run(on);
    CHECK((c.all_gradients() == gradients));
    on.workspace = on.workspace.first(on.workspace.size() - 1);
    CHECK(refused([&] { run(on); }) == "workspace");
  };
  for (const int threads : {1, 2, 7}) check(tiled{.threads = threads});
  check(sequential{});
}

TEST_CASE("an interval longer than the sequence needs no more workspace", "[linear_attention]") {
  generator bits{18};
  problem p{.batch = 1, .time = 70, .dk = 40, .dv = 50, .beta = true};
  const auto bytes_of = [&](std::int64_t interval) {
    p.interval = interval;
    adjoint_call<float> c(p, layout::heads_inside, element::own, bits);
    c.passes_states = interval > 0;
    return linear_attention_vjp_workspace_bytes(tiled{.threads = 1}, c.arrays(),
                                                c.out_grad.view<const float>(), c.gradients(),
                                                c.vjp_options());
  };
  CHECK(bytes_of(std::int64_t{1} << 50) == bytes_of(0));
}

// ---- the plan ---------------------------------------------------------------------------------

TEST_CASE("the adjoint divides heads for up to 128 threads, and its memory is bounded",
          "[linear_attention]") {
  using plan_type = detail::linear_attention_vjp_plan;
  generator bits{20};
  const auto up_to = [&](double exponent) {
    return static_cast<std::int64_t>(std::exp2(exponent * (bits() % 1024) / 1024));
  };
  int divided = 0;
  for (int i = 0; i < 3000; ++i) {
    detail::linear_attention_vjp_problem<float> p;
    p.batch = up_to(3), p.time = up_to(14);
    p.dk = static_cast<int>(up_to(9)), p.dv = static_cast<int>(up_to(9));
    p.heads = p.key_heads = p.query_heads = static_cast<int>(up_to(6));
    if (bits() % 4 == 0) p.query_heads *= 3;
    p.key_gates = bits() % 4 == 0;
    static std::byte present{};
    if (bits() % 2 == 0) p.beta.data = &present;
    const int threads = static_cast<int>(up_to(7));
    const plan_type plan(p, simd::lanes_v<float>, threads);
    CAPTURE(i, p.batch, p.time, p.dk, p.dv, p.heads, p.query_heads, p.key_gates, threads,
            plan.blocks);
    REQUIRE((1 <= plan.workers && plan.workers <= threads));
    const detail::attention_vjp_costs cost(detail::attention_costs::of(p),
                                           std::int64_t{plan.packs} * simd::lanes_v<float>);
    const auto head_of = [&](const detail::attention_part& part) {
      return static_cast<std::size_t>(part.batch * p.heads + part.head);
    };
    // Packs of columns times steps that are done, for each head of each sequence.
    std::vector<std::int64_t> columns(static_cast<std::size_t>(p.batch * p.heads)), sums = columns;
    std::vector<double> busy(static_cast<std::size_t>(plan.workers));
    auto kind = plan_type::gradients::all;
    for (std::int64_t n = 0; n < plan.tasks; ++n) {
      const plan_type::task task = plan.at(n);
      if (task.computes != kind) {
        kind = task.computes;  // waits until all tasks of the previous kind are done
        const double done = *std::max_element(busy.begin(), busy.end());
        std::fill(busy.begin(), busy.end(), done);
      }
      double& least = *std::min_element(busy.begin(), busy.end());
      const std::int64_t first = task.window * plan.segments.window_steps();
      if (kind == plan_type::gradients::all) {
        columns[head_of(task.part)] += p.time * task.part.packs;
        sums[head_of(task.part)] += p.time;
        least += static_cast<double>(p.time * cost.all);
      } else if (kind == plan_type::gradients::of_columns) {
        const std::int64_t count = std::min(p.time - first, plan.segments.window_steps());
        columns[head_of(task.part)] += count * task.part.packs;
        const std::int64_t width = task.part.packs * simd::lanes_v<float>;
        least += static_cast<double>(count * (cost.of_block + width * cost.of_column));
      } else {
        const std::int64_t count = std::clamp<std::int64_t>(p.time - task.step, 0, 32);
        sums[head_of(task.part)] += count;
        least += static_cast<double>(count * cost.sums);
      }
    }
    divided += plan.divides_heads();
    const auto all = p.batch * p.heads;
    CHECK((std::count(columns.begin(), columns.end(), p.time * plan.packs) == all));
    CHECK((std::count(sums.begin(), sums.end(), p.time) == all));
    const double busiest = *std::max_element(busy.begin(), busy.end());
    const double whole = static_cast<double>(p.time * cost.all);
    CHECK(busiest <= whole * static_cast<double>((all + threads - 1) / threads));
    // The least time if work could be divided at will, except below one pack of columns and below
    // the sums of 32 steps.
    const std::int64_t one_pack = cost.of_block + cost.of_column * simd::lanes_v<float>;
    const std::int64_t one_sum = std::min<std::int64_t>(p.time, 32) * cost.sums;
    const auto smallest = static_cast<double>(p.time * one_pack + one_sum);
    CHECK(busiest <= 2 * std::max(whole * static_cast<double>(all) / threads, smallest));
    // Memory that windows keep: S, G, r and du.
    if (!plan.divides_heads()) continue;
    const std::int64_t width = std::int64_t{plan.packs} * simd::lanes_v<float>;
    const double rows = p.dk / 32.0 + (p.beta.present() ? 1 : 0);
    const double kept = 2 * sizeof(float) * static_cast<double>(width * all) * rows *
                        static_cast<double>(plan.segments.window_steps());
    CHECK((plan.segments.window == 1 || kept <= 0x1p20 * threads));
  }
  CHECK(divided > 300);
}

// ---- golden bits ------------------------------------------------------------------------------

TEST_CASE("the adjoint of linear attention has the golden bits", "[linear_attention][.golden]") {
  const auto check = [](const char* name, auto add) {
    golden::row row(std::string("linear_attention_vjp, ") + name);
    add(row);
    row.check();
  };
  const auto gradients = [](auto& c) {
    c.run_vjp(tiled{});
    return c.all_gradients();
  };
  check("float, tiled", [&](auto& row) {
    attention_calls::add_golden<adjoint_call<float>>(row, element::own, gradients);
  });
  check("bfloat16, tiled", [&](auto& row) {
    attention_calls::add_golden<adjoint_call<float>>(row, element::bfloat, gradients);
  });
  check("double, tiled", [&](auto& row) {
    attention_calls::add_golden<adjoint_call<double>>(row, element::own, gradients);
  });
}

}  // namespace
