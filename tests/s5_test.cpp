// SPDX-License-Identifier: BSD-3-Clause
// Tests of diagonal state spaces: outputs against high-precision values, gradients against central
// differences, streams and argument errors.
#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <scanrec/s5.hpp>
#include <scanrec/s5_init.hpp>
#include <scanrec/scan.hpp>
#include <scanrec/sensitivity.hpp>

#include "catch.hpp"
#include "central_difference.hpp"
#include "golden.hpp"
#include "guarded.hpp"
#include "reference.hpp"
#include "state_space_values.hpp"

namespace {

using namespace scanrec;
using complex = std::complex<double>;
using system_d = s5_system<double>;
using reference::random_numbers;

// ---- discretisation ---------------------------------------------------------------------------

template <class R>
void check_rows(discretisation method) {
  const std::vector<double> numbers = random_numbers(400, 9);
  Eigen::Array<std::complex<R>, Eigen::Dynamic, 1> lambda(100), g(100), s(100);
  Eigen::Array<R, Eigen::Dynamic, 1> step(100);
  for (Eigen::Index i = 0; i < 100; ++i) {
    // Magnitudes from denormal to 10, and 0.
    const double size = i % 10 == 9   ? 0
                        : i % 10 == 8 ? 4 * std::numeric_limits<R>::denorm_min()
                                      : std::pow(10.0, 1 - static_cast<double>(i % 10));
    lambda[i] = std::complex<R>(static_cast<R>(-size * std::abs(numbers[i])),
                                static_cast<R>(size * numbers[100 + i]));
    step[i] = static_cast<R>(0.1 + std::abs(numbers[200 + i]));
    g[i] = std::complex<R>(R(1), static_cast<R>(numbers[300 + i])), s[i] = -g[i];
  }
  detail::discretised_row<R> row(method, lambda, step);
  constexpr double e = 40 * std::numeric_limits<R>::epsilon();
  for (const R interval : {R(0), R(0.25), R(1), R(3)}) {
    row.at(interval);
    row.vjp(g, s);
    for (Eigen::Index i = 0; i < 100; ++i) {
      const complex l(lambda[i]);
      const double h = interval * step[i];
      const auto want = discretise<double>(method, l, h);
      const auto grads = discretise_vjp<double>(method, l, h, complex(g[i]), complex(s[i]));
      INFO("lambda " << l << ", step " << h);
      CHECK(std::abs(complex(row.gate[i]) - want.gate) <=
            e * (1 + std::abs(l) * h) * std::abs(want.gate));
      CHECK(std::abs(complex(row.scale[i]) - want.scale) <= e * std::abs(want.scale));
      CHECK(std::abs(complex(row.by_lambda[i]) - grads.lambda) <= e * h * (1 + h));
      CHECK(std::abs(row.by_step[i] - grads.step) <= e * (1 + std::abs(l)));
    }
  }
}
TEST_CASE("discretising a vector equals discretising each element within rounding", "[s5]") {
  for (const auto method : {discretisation::zero_order_hold, discretisation::bilinear})
    check_rows<float>(method), check_rows<double>(method);
}

// ---- the state space --------------------------------------------------------------------------

TEST_CASE("outputs of a small system equal values from mpmath", "[s5]") {
  namespace values = state_space_values;
  system_d s;
  s.lambda.resize(3), s.log_step.resize(3), s.feedthrough.resize(2);
  s.input.resize(3, 2), s.output.resize(2, 3);
  for (int p = 0; p < 3; ++p) {
    s.lambda[p] = values::lambda[p], s.log_step[p] = std::log(values::step[p]);
    for (int h = 0; h < 2; ++h)
      s.input(p, h) = values::input[p][h], s.output(h, p) = values::output[h][p];
  }
  for (int h = 0; h < 2; ++h) s.feedthrough[h] = values::feedthrough[h];
  const extents shape{.batch = 1, .time = 6, .channel = 2};
  double y[6][2];
  complex states[18];
  for (const auto method : {discretisation::zero_order_hold, discretisation::bilinear}) {
    s.method = method;
    s5(s, sequence_view<const double>(&values::u[0][0], shape),
       sequence_view<complex>(states, {.batch = 1, .time = 6, .channel = 3}),
       sequence_view<double>(&y[0][0], shape));
    const auto& want =
        method == discretisation::bilinear ? values::y_bilinear : values::y_zero_order_hold;
    for (int t = 0; t < 6; ++t)
      for (int q = 0; q < 2; ++q)
        CHECK(std::abs(y[t][q] - want[t][q]) <= 1e-12 * (1 + std::abs(want[t][q])));
  }
}

/// A system, its inputs and a loss: a weighted sum of the outputs and, unless the system is
/// bidirectional, of the real and imaginary parts of the final states.
struct loss_of {
  system_d s;
  extents shape{.batch = 2, .time = 6, .channel = 3};
  std::vector<double> u = random_numbers(36, 1), weight = random_numbers(36, 2);
  std::vector<double> intervals;  // empty: all steps have the same length
  std::vector<complex> start, last_weight;
  bool resets_at[12] = {false, false, false, true,  false, false,
                        false, true,  false, false, false, false};

  explicit loss_of(system_d of) : s(std::move(of)) {
    const std::vector<double> numbers = random_numbers(8 * s.lambda.size(), 3);
    for (Eigen::Index i = 0; i < 2 * s.lambda.size(); ++i) {
      start.emplace_back(numbers[4 * i], numbers[4 * i + 1]);
      last_weight.emplace_back(numbers[4 * i + 2], numbers[4 * i + 3]);
    }
  }
  extents states_shape() const { return {shape.batch, shape.time, s.state_channels()}; }
  extents state_shape() const { return {shape.batch, 1, s.lambda.size()}; }
  sequence_view<const bool> resets() const { return {resets_at, {shape.batch, shape.time, 1}}; }
  state_view<const complex> initial() const {
    if (s.bidirectional()) return {};
    return {start.data(), state_shape()};
  }
  sequence_view<const double> at_intervals() const {
    return {intervals.empty() ? nullptr : intervals.data(),
            intervals.empty() ? extents{} : extents{shape.batch, shape.time, 1}};
  }
  extents gates_shape() const { return {shape.batch, shape.time, s.lambda.size()}; }
  double value(std::vector<complex>& states, std::vector<complex>& gates) const {
    states.resize(static_cast<std::size_t>(12 * s.state_channels()));
    std::vector<double> y(36);
    std::vector<complex> last(start.size());
    s5_options<double> options{.initial_state = initial(), .resets = resets()};
    if (!intervals.empty()) {
      gates.resize(static_cast<std::size_t>(12 * s.lambda.size()));
      options.intervals = at_intervals();
      options.gates = sequence_view<complex>(gates.data(), gates_shape());
    }
    if (!s.bidirectional()) options.final_state = state_view<complex>(last.data(), state_shape());
    s5(s, sequence_view<const double>(u.data(), shape),
       sequence_view<complex>(states.data(), states_shape()),
       sequence_view<double>(y.data(), shape), options);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
    for (std::size_t i = 0; i < last.size(); ++i)
      sum += (std::conj(last_weight[i]) * last[i]).real();
    return sum;
  }
  double value() const {
    std::vector<complex> states, gates;
    return value(states, gates);
  }
  double difference(double& x) {
    return central_difference(x, [&] { return value(); });
  }
};

void check_gradients(const std::string& name, const system_d& system,
                     std::vector<double> intervals = {}) {
  loss_of loss(system);
  loss.intervals = std::move(intervals);
  std::vector<complex> states, gates;
  loss.value(states, gates);
  std::vector<complex> scratch(states.size()), start_grad(loss.start.size());
  std::vector<double> u_grad(36);
  system_d g = loss.s.zeros();
  s5_vjp_options<double> options{.initial_state = loss.initial(), .resets = loss.resets()};
  std::vector<double> intervals_grad(loss.intervals.size());
  if (!gates.empty()) {
    options.intervals = loss.at_intervals();
    options.gates = sequence_view<const complex>(gates.data(), loss.gates_shape());
    options.intervals_grad = sequence_view<double>(intervals_grad.data(), {2, 6, 1});
  }
  if (!system.bidirectional()) {
    options.final_grad = state_view<const complex>(loss.last_weight.data(), loss.state_shape());
    options.initial_grad = state_view<complex>(start_grad.data(), loss.state_shape());
  }
  s5_vjp(loss.s, sequence_view<const double>(loss.u.data(), loss.shape),
         sequence_view<const complex>(states.data(), loss.states_shape()),
         sequence_view<const double>(loss.weight.data(), loss.shape),
         sequence_view<complex>(scratch.data(), loss.states_shape()), g,
         sequence_view<double>(u_grad.data(), loss.shape), options);
  // Gradients of parameters accumulate, so a second call doubles them. The gradient of u does not.
  system_d twice = g;
  std::vector<double> u_again(36);
  s5_vjp(loss.s, sequence_view<const double>(loss.u.data(), loss.shape),
         sequence_view<const complex>(states.data(), loss.states_shape()),
         sequence_view<const double>(loss.weight.data(), loss.shape),
         sequence_view<complex>(scratch.data(), loss.states_shape()), twice,
         sequence_view<double>(u_again.data(), loss.shape), options);
  CHECK((twice.lambda - 2 * g.lambda).norm() <= 1e-14 * g.lambda.norm());
  CHECK((twice.input - 2 * g.input).norm() <= 1e-14 * g.input.norm());
  CHECK((twice.output - 2 * g.output).norm() <= 1e-14 * g.output.norm());
  CHECK((u_again == u_grad));
  const auto check = [&](const char* what, double got, double& x) {
    const double want = loss.difference(x);
    INFO(name << ", " << what);
    CHECK(std::abs(got - want) <= 2e-8 * (1 + std::abs(want)));
  };
  const auto check_complex = [&](const char* what, complex got, complex& x) {
    auto* parts = reinterpret_cast<double*>(&x);
    check(what, got.real(), parts[0]), check(what, got.imag(), parts[1]);
  };
  for (Eigen::Index i = 0; i < g.lambda.size(); ++i) {
    check_complex("lambda", g.lambda[i], loss.s.lambda[i]);
    check("log_step", g.log_step[i], loss.s.log_step[i]);
  }
  for (Eigen::Index i = 0; i < g.input.size(); ++i)
    check_complex("input", g.input.data()[i], loss.s.input.data()[i]);
  for (Eigen::Index i = 0; i < g.output.size(); ++i)
    check_complex("output", g.output.data()[i], loss.s.output.data()[i]);
  for (Eigen::Index i = 0; i < g.feedthrough.size(); ++i)
    check("feedthrough", g.feedthrough[i], loss.s.feedthrough[i]);
  for (std::size_t i = 0; i < u_grad.size(); ++i) check("u", u_grad[i], loss.u[i]);
  for (std::size_t i = 0; i < intervals_grad.size(); ++i)
    check("intervals", intervals_grad[i], loss.intervals[i]);
  if (!system.bidirectional())
    for (std::size_t i = 0; i < start_grad.size(); ++i)
      check_complex("initial_state", start_grad[i], loss.start[i]);
}

TEST_CASE("gradients of state spaces equal central differences", "[s5]") {
  std::mt19937 engine(7);
  for (const bool bidirectional : {false, true}) {
    system_d s = make_s5<double>({.channels = 3,
                                  .states = 4,
                                  .blocks = 2,
                                  .bidirectional = bidirectional,
                                  .least_step = 0.1,
                                  .most_step = 0.5},
                                 engine);
    for (const auto method : {discretisation::zero_order_hold, discretisation::bilinear}) {
      s.method = method;
      check_gradients(bidirectional ? "bidirectional" : "one direction", s);
      check_gradients(bidirectional ? "bidirectional, intervals" : "intervals", s,
                      {1, 0.5, 2, 0.1, 1, 3, 0.7, 1.3, 0.25, 1, 5, 0});
    }
    s.feedthrough.resize(0), s.conjugate_symmetry = false;
    check_gradients("without feedthrough or symmetry", s);
  }
  check_gradients("ring",
                  make_lru<double>({.channels = 3, .states = 3, .least_radius = 0.4}, engine));
}

TEST_CASE("intervals of 1 equal no intervals; intervals of 2 double the step", "[s5]") {
  std::mt19937 engine(3);
  auto s = make_s5<double>({.channels = 5, .states = 24}, engine);
  const extents shape{.batch = 2, .time = 200, .channel = 5}, wide{2, 200, 12};
  const std::vector<double> u = random_numbers(2000, 4);
  std::vector<double> plain(2000), y(2000), intervals(400);
  std::vector<complex> states(4800), gates(4800);
  for (const double interval : {1.0, 2.0}) {
    intervals.assign(400, interval);
    s5(s, sequence_view(u.data(), shape), sequence_view(states.data(), wide),
       sequence_view(y.data(), shape),
       {.intervals = sequence_view<const double>(intervals.data(), extents{2, 200, 1}),
        .gates = sequence_view(gates.data(), wide)});
    system_d other = s;
    other.log_step.array() += std::log(interval);
    s5(sequential{}, other, sequence_view(u.data(), shape), sequence_view(states.data(), wide),
       sequence_view(plain.data(), shape));
    for (std::size_t i = 0; i < y.size(); ++i)
      CHECK(std::abs(y[i] - plain[i]) <= 1e-12 * (1 + std::abs(plain[i])));
  }
}

TEST_CASE("gradients of intervals have the same bits for any number of threads", "[s5]") {
  std::mt19937 engine(3);
  const auto s =
      make_s5<double>({.channels = 5, .states = 24, .blocks = 2, .bidirectional = true}, engine);
  const extents shape{.batch = 3, .time = 170, .channel = 5}, wide{3, 170, 24}, half{3, 170, 12};
  const std::int64_t n = 3 * 170 * 5;
  const std::vector<double> u = random_numbers(n, 4), dy = random_numbers(n, 5);
  std::vector<double> intervals = random_numbers(510, 6);
  for (double& x : intervals) x = std::abs(x);
  const sequence_view<const double> dt(intervals.data(), extents{3, 170, 1});
  std::vector<double> y(n), first, numbers;
  std::vector<complex> states(510 * 24), scratch(states.size()), gates(510 * 12);
  s5(tiled{.threads = 1}, s, sequence_view(u.data(), shape), sequence_view(states.data(), wide),
     sequence_view(y.data(), shape), {.intervals = dt, .gates = sequence_view(gates.data(), half)});
  for (const int threads : {1, 2, 5}) {
    std::vector<double> du(n), d_intervals(510);
    system_d g = s.zeros();
    s5_vjp(tiled{.threads = threads}, s, sequence_view(u.data(), shape),
           sequence_view<const complex>(states.data(), wide), sequence_view(dy.data(), shape),
           sequence_view(scratch.data(), wide), g, sequence_view(du.data(), shape),
           {.intervals = dt,
            .gates = sequence_view<const complex>(gates.data(), half),
            .intervals_grad = sequence_view(d_intervals.data(), extents{3, 170, 1})});
    numbers = du;
    numbers.insert(numbers.end(), d_intervals.begin(), d_intervals.end());
    numbers.insert(numbers.end(), g.log_step.data(), g.log_step.data() + g.log_step.size());
    for (const complex x : g.lambda) numbers.push_back(x.real()), numbers.push_back(x.imag());
    if (threads == 1) first = numbers;
    CHECK((numbers == first));
  }
}

TEST_CASE("chunked streams, padded arrays and several threads give the same outputs", "[s5]") {
  std::mt19937 engine(3);
  const auto s = make_s5<float>({.channels = 5, .states = 24}, engine);
  const extents shape{.batch = 2, .time = 200, .channel = 5}, wide{2, 200, 12};
  const std::vector<double> numbers = random_numbers(2000, 4);
  const std::vector<float> u(numbers.begin(), numbers.end());
  std::vector<float> y(2000), padded(2 * 200 * 9), chunked(2000);
  std::vector<std::complex<float>> states(4800), apart(2 * 200 * 20), last(24), carried(24);
  s5(s, sequence_view(u.data(), shape), sequence_view(states.data(), wide),
     sequence_view(y.data(), shape), {.final_state = state_view(last.data(), wide)});
  s5(tiled{.threads = 2}, s, sequence_view(u.data(), shape),
     sequence_view(apart.data(), wide, {200 * 20, 20, 1}),
     sequence_view(padded.data(), shape, {200 * 9, 9, 1}));
  for (std::int64_t first = 0; first < 200; first += 40) {
    const auto part = [&](auto view) {
      view.data += first * view.strides.time, view.shape.time = 40;
      return view;
    };
    s5(s, part(sequence_view(u.data(), shape)), part(sequence_view(states.data(), wide)),
       part(sequence_view(chunked.data(), shape)),
       {.initial_state = state_view<const std::complex<float>>(carried.data(), wide),
        .final_state = state_view(carried.data(), wide)});
  }
  // Matrix products of other sizes or strides may add their terms in another order.
  for (std::size_t i = 0; i < y.size(); ++i) {
    CHECK(std::abs(y[i] - padded[i / 5 * 9 + i % 5]) <= 1e-5f * (1 + std::abs(y[i])));
    CHECK(std::abs(y[i] - chunked[i]) <= 1e-5f * (1 + std::abs(y[i])));
  }
  for (std::size_t i = 0; i < last.size(); ++i)
    CHECK(std::abs(last[i] - carried[i]) <= 1e-5f * (1 + std::abs(last[i])));
}

TEST_CASE("gradients that alias arguments have the bits of separate gradients", "[s5]") {
  // The rounding of Eigen's products depends on alignment, so all arrays are aligned to a pack.
  using reals = std::vector<double, Eigen::aligned_allocator<double>>;
  using complexes = std::vector<complex, Eigen::aligned_allocator<complex>>;
  const extents shape{.batch = 3, .time = 50, .channel = 5};
  const std::vector<double> numbers = random_numbers(3 * 50 * 5, 4);
  const reals u(numbers.begin(), numbers.end());
  const std::vector<double> ends = random_numbers(3 * 12 * 4, 5);
  std::vector<double> steps = random_numbers(150, 6);
  for (double& x : steps) x = std::abs(x);
  for (const bool both_ways : {false, true})
    for (const bool varies : {false, true}) {
      std::mt19937 engine(3);
      const auto s =
          make_s5<double>({.channels = 5, .states = 24, .bidirectional = both_ways}, engine);
      const extents wide{3, 50, both_ways ? 24 : 12}, half{3, 50, 12};
      complexes start(36), states(3 * 50 * wide.channel), gates(3 * 50 * 12);
      for (std::size_t i = 0; i < 36; ++i) start[i] = {ends[2 * i], ends[2 * i + 1]};
      reals y(u.size());
      s5_options<double> options;
      s5_vjp_options<double> back;
      if (varies) {
        options.intervals = back.intervals = sequence_view<const double>(steps.data(), {3, 50, 1});
        options.gates = sequence_view(gates.data(), half);
        back.gates = sequence_view<const complex>(gates.data(), half);
      }
      if (!both_ways)
        options.initial_state = back.initial_state = state_view<const complex>(start.data(), half);
      s5(s, sequence_view(u.data(), shape), sequence_view(states.data(), wide),
         sequence_view(y.data(), shape), options);
      const auto run = [&](bool in_place) {
        reals inputs = u, apart(u.size());
        complexes scratch(states.size()), last_grad = start, first_grad(36);
        reals& u_grad = in_place ? inputs : apart;
        complexes& initial_grad = in_place ? last_grad : first_grad;
        auto o = back;
        if (!both_ways) {
          o.final_grad = state_view<const complex>(last_grad.data(), half);
          o.initial_grad = state_view(initial_grad.data(), half);
        }
        auto g = s.zeros();
        s5_vjp(s, sequence_view<const double>(inputs.data(), shape),
               sequence_view<const complex>(states.data(), wide),
               sequence_view<const double>(y.data(), shape), sequence_view(scratch.data(), wide), g,
               sequence_view(u_grad.data(), shape), o);
        if (both_ways) initial_grad.clear();  // the call does not write it
        return std::tuple(u_grad, initial_grad, complexes(g.lambda.begin(), g.lambda.end()),
                          complexes(g.input.reshaped().begin(), g.input.reshaped().end()),
                          reals(g.log_step.begin(), g.log_step.end()));
      };
      INFO((both_ways ? "bidirectional" : "one way") << (varies ? ", intervals" : ""));
      CHECK((run(true) == run(false)));
    }
}

TEST_CASE("state spaces access no memory outside their arrays", "[s5][bounds]") {
  reference::generator bits{5};
  // Strides of arrays with a time axis: contiguous channels, steps with or without gaps, and a
  // batch stride of either sign.
  const auto rows = [&](const extents& shape) {
    const std::int64_t row = shape.channel + bits() % 3, all = shape.time * row + bits() % 3;
    return strides{.batch = bits() % 2 == 0 ? all : -all, .time = row, .channel = 1};
  };
  std::mt19937 engine(3);
  for (int number = 0; number < 60; ++number) {
    const bool both_ways = number % 3 == 0, varies = number % 4 == 1;
    const auto system = make_s5<float>(
        {.channels = 1 + number % 5, .states = 2 + 2 * (number % 7), .bidirectional = both_ways},
        engine);
    const std::int64_t P = system.lambda.size();
    const extents shape{.batch = 1 + number % 3,
                        .time = std::int64_t{1} + bits() % 150,
                        .channel = system.input.cols()};
    extents wide = shape, narrow = shape, one = shape, own = shape;
    wide.channel = system.state_channels(), narrow.channel = 1;
    own.channel = P, one.channel = P, one.time = 1;
    using complex = std::complex<float>;
    const auto of = [&]<class T>(T, const extents& e) {
      return tested::guarded<T>(e, rows(e), bits);
    };
    const auto u = of(0.0f, shape), y = of(0.0f, shape), y_grad = of(0.0f, shape),
               u_grad = of(0.0f, shape), intervals = of(0.0f, narrow),
               intervals_grad = of(0.0f, narrow);
    const auto states = of(complex(), wide), scratch = of(complex(), wide),
               gates = of(complex(), own);
    // Boundary states and reset masks may have any strides, negative time strides included.
    using tested::broadcasts;
    const auto any = [&]<class T>(T, const extents& e, broadcasts allowed) {
      return tested::guarded<T>(e, tested::random_strides(e, allowed, bits), bits);
    };
    const auto first = any(complex(), one, broadcasts::sometimes),
               last = any(complex(), one, broadcasts::never),
               last_grad = any(complex(), one, broadcasts::sometimes),
               first_grad = any(complex(), one, broadcasts::never);
    intervals.each([](float& x) { x = std::abs(x); });
    s5_options<float> options;
    s5_vjp_options<float> back;
    extents mask_steps = shape;
    mask_steps.time += bits() % 2, mask_steps.channel = bits() % 2 == 0 ? 1 : P;
    const auto resets =
        bits() % 4 == 0 ? tested::guarded<bool>() : any(bool(), mask_steps, broadcasts::sometimes);
    options.resets = back.resets = resets.view();
    INFO("case " << number << ", " << to_string(shape) << ", resets " << to_string(mask_steps)
                 << ", strides " << to_string(resets.view().strides));
    if (!both_ways) {
      options.initial_state = back.initial_state = first.state();
      options.final_state = last.state();
      back.final_grad = last_grad.state(), back.initial_grad = first_grad.state();
    }
    if (varies) {
      options.intervals = back.intervals = intervals.view();
      options.gates = gates.view(), back.gates = gates.view();
      back.intervals_grad = intervals_grad.view();
    }
    s5(system, u.view(), states.view(), y.view(), options);
    auto gradients = system.zeros();
    s5_vjp(system, u.view(), states.view(), y_grad.view(), scratch.view(), gradients, u_grad.view(),
           back);
    for (const auto* a : {&y, &u_grad, &intervals_grad})
      CHECK((a->gaps_untouched() && a->all_finite()));
    for (const auto* a : {&states, &scratch, &gates, &last, &first_grad})
      CHECK((a->gaps_untouched() && a->all_finite()));
  }
}

TEST_CASE("state spaces ignore a reset after their last step", "[s5][resets]") {
  std::mt19937 engine(11);
  for (const bool bidirectional : {false, true})
    for (const bool varies : {false, true}) {
      const loss_of loss(
          make_s5<double>({.channels = 3, .states = 4, .bidirectional = bidirectional}, engine));
      const auto& s = loss.s;
      // The resets of the six steps and one after the last step.
      bool reset_mask[14] = {};
      for (int b = 0; b < 2; ++b) {
        std::copy_n(loss.resets_at + 6 * b, 6, reset_mask + 7 * b);
        reset_mask[7 * b + 6] = true;
      }
      const auto numbers = static_cast<std::size_t>(12 * s.state_channels());
      const auto run = [&](const sequence_view<const bool>& resets) {
        std::vector<complex> states(numbers), scratch(numbers), gates(numbers),
            ends(s.lambda.size() * 2);
        std::vector<double> y(36), u_grad(36), times(12, 0.5);
        s5_options<double> o{.initial_state = loss.initial(), .resets = resets};
        s5_vjp_options<double> back{.initial_state = loss.initial(), .resets = resets};
        if (!bidirectional) {
          o.final_state = state_view<complex>(ends.data(), loss.state_shape());
          back.final_grad = state_view<const complex>(loss.last_weight.data(), loss.state_shape());
        }
        if (varies) {
          o.intervals = back.intervals = sequence_view<const double>(times.data(), {2, 6, 1});
          o.gates = sequence_view<complex>(gates.data(), loss.gates_shape());
          back.gates = sequence_view<const complex>(gates.data(), loss.gates_shape());
        }
        const sequence_view<const double> u(loss.u.data(), loss.shape);
        const sequence_view<complex> x(states.data(), loss.states_shape());
        s5(s, u, x, sequence_view<double>(y.data(), loss.shape), o);
        system_d g = s.zeros();
        s5_vjp(s, u, sequence_view<const complex>(x),
               sequence_view<const double>(loss.weight.data(), loss.shape),
               sequence_view<complex>(scratch.data(), loss.states_shape()), g,
               sequence_view<double>(u_grad.data(), loss.shape), back);
        return std::tuple(y, states, ends, u_grad,
                          std::vector<complex>(g.lambda.data(), g.lambda.data() + g.lambda.size()));
      };
      CHECK((run(loss.resets()) == run({reset_mask, {2, 7, 1}})));
    }
}

/// A system whose states, outputs and input gradients have portable bits: no exp, and products of
/// at most two terms, so Eigen's summation order does not matter. Gradients of parameters are sums
/// over time, whose order depends on the instruction set.
system_d golden_system() {
  system_d s;
  s.method = discretisation::bilinear;
  s.lambda.resize(1), s.log_step.resize(1), s.input.resize(1, 2), s.output.resize(2, 1);
  s.lambda << complex(-0.3, 1.7);
  s.log_step << 0;
  s.input << complex(1, -0.5), complex(0.25, 2);
  s.output << complex(0.5, 1), complex(-2, 0.25);
  return s;
}

TEST_CASE("state spaces and sensitivities have the golden bits", "[.golden]") {
  golden::row row("s5, s5_vjp and linear_scan_sensitivity, double, tiled");
  golden::numbers numbers(1);
  for (const extents& shape : {extents{2, 203, 2}, extents{1, 3000, 2}}) {
    const auto elements = static_cast<std::size_t>(detail::element_count(shape));
    const extents one{shape.batch, shape.time, 1};
    std::vector<double> u(elements), y(elements), y_grad(elements), u_grad(elements);
    std::vector<complex> states(elements / 2), scratch(states), again(states), sensitivity(states);
    for (auto* const a : {&u, &y_grad})
      for (double& x : *a) numbers.fill(x);
    const system_d system = golden_system();
    system_d grads = system.zeros();
    s5(system, sequence_view<const double>(u.data(), shape), sequence_view(states.data(), one),
       sequence_view(y.data(), shape));
    s5_vjp(system, sequence_view<const double>(u.data(), shape),
           sequence_view<const complex>(states.data(), one),
           sequence_view<const double>(y_grad.data(), shape), sequence_view(scratch.data(), one),
           grads, sequence_view(u_grad.data(), shape));
    linear_scan_sensitivity(tiled{.threads = 2}, sequence_view<const complex>(states.data(), one),
                            sequence_view<const complex>(scratch.data(), one),
                            sequence_view(again.data(), one),
                            sequence_view(sensitivity.data(), one));
    row.add_all(states), row.add_all(y), row.add_all(u_grad), row.add_all(sensitivity);
    row.end_hash();
  }
  row.check();
}

// ---- arguments --------------------------------------------------------------------------------

template <class F>
void refuses(const std::string& argument, const std::string& text, F f) {
  try {
    f();
    FAIL("no error for '" << argument << "'");
  } catch (const argument_error& e) {
    INFO(e.what());
    CHECK(std::string(e.what()).find("'" + argument + "'") != std::string::npos);
    CHECK(std::string(e.what()).find(text) != std::string::npos);
  }
}
TEST_CASE("state spaces reject invalid arguments and then write nothing", "[s5]") {
  std::mt19937 engine(5);
  const auto good = make_s5<double>({.channels = 3, .states = 4}, engine);
  const extents shape{.batch = 1, .time = 8, .channel = 3}, states_shape{1, 8, 2};
  std::vector<double> u(24), y(24);
  std::vector<complex> states(32);
  const sequence_view<const double> U(u.data(), shape);
  const sequence_view<double> Y(y.data(), shape);
  const sequence_view<complex> X(states.data(), states_shape);
  const auto with = [&](const std::function<void(system_d&)>& change) {
    system_d bad = good;
    change(bad);
    s5(bad, U, X, Y);
  };
  refuses("input", "one row per state: 2",
          [&] { with([](system_d& s) { s.input.resize(3, 3); }); });
  refuses("output", "2 columns, or twice",
          [&] { with([](system_d& s) { s.output.resize(3, 3); }); });
  refuses("log_step", "2 values, one per state",
          [&] { with([](system_d& s) { s.log_step.resize(1); }); });
  refuses("feedthrough", "none, or as many",
          [&] { with([](system_d& s) { s.feedthrough.resize(2); }); });
  refuses("states", "(batch 1, time 8, channel 2)",
          [&] { s5(good, U, sequence_view<complex>(states.data(), shape), Y); });
  refuses("u", "contiguous", [&] {
    s5(good, sequence_view<const double>(u.data(), shape, {24, 1, 8}), X, Y);
  });
  refuses("y", "contiguous", [&] { s5(good, U, X, sequence_view<double>(nullptr, shape)); });
  // The following calls must write nothing: `more` and `states7` keep their values of 7.
  std::vector<double> more(48, 7);
  std::vector<complex> states7(32, complex(7)), few7(4, complex(7));
  const sequence_view<double> Y7(more.data(), shape);
  const sequence_view<complex> X7(states7.data(), states_shape);
  const sequence_view<const double> as_inputs(more.data(), shape);
  refuses("y", "apart from 'u'", [&] { s5(good, as_inputs, X7, Y7); });
  refuses("states", "apart from 'u'", [&] {
    s5(good, as_inputs, sequence_view<complex>(reinterpret_cast<complex*>(more.data()), {1, 8, 2}),
       Y);
  });
  refuses("initial_state", "shape", [&] {
    s5(good, U, X7, Y7, {.initial_state = state_view<const complex>(few7.data(), {3, 1, 2})});
  });
  refuses("y", "rows that do not overlap", [&] {
    const extents two{.batch = 2, .time = 4, .channel = 3}, two_states{2, 4, 2};
    s5(good, sequence_view<const double>(u.data(), two),
       sequence_view<complex>(states7.data(), two_states),
       sequence_view<double>(more.data(), two, {0, 3, 1}));
  });
  const sequence_view<const double> intervals(u.data(), extents{1, 8, 1});
  std::vector<complex> scratch_gates(32, complex(7));
  refuses("gates", "since 'intervals' is absent", [&] { s5(good, U, X7, Y7, {.gates = X}); });
  refuses("gates", "shape", [&] { s5(good, U, X7, Y7, {.intervals = intervals}); });
  refuses("gates", "apart from 'states'",
          [&] { s5(good, U, X7, Y7, {.intervals = intervals, .gates = X7}); });
  refuses("intervals", "shape", [&] { s5(good, U, X7, Y7, {.intervals = U, .gates = X}); });
  refuses("gates", "apart from 'initial_state'", [&] {
    s5(good, U, X7, Y7,
       {.initial_state = state_view<const complex>(scratch_gates.data(), {1, 1, 2}),
        .intervals = intervals,
        .gates = sequence_view(scratch_gates.data(), states_shape)});
  });
  refuses("y", "apart from 'final_state'", [&] {
    s5(good, U, X7, Y7,
       {.final_state = state_view<complex>(reinterpret_cast<complex*>(more.data()), {1, 1, 2})});
  });
  refuses("intervals", "a discretisation with step sizes", [&] {
    auto ring = make_lru<double>({.channels = 3, .states = 2}, engine);
    s5(ring, U, X7, Y7, {.intervals = intervals, .gates = X});
  });
  system_d h = good.zeros();
  refuses("intervals_grad", "since 'intervals' is absent", [&] {
    std::vector<complex> other(32);
    s5_vjp(good, U, X, sequence_view<const double>(y.data(), shape),
           sequence_view<complex>(other.data(), states_shape), h, {},
           {.intervals_grad = sequence_view<double>(more.data(), extents{1, 8, 1})});
  });
  refuses("scratch", "apart from 'states'",
          [&] { s5_vjp(good, U, X7, sequence_view<const double>(y.data(), shape), X7, h, Y7); });
  std::vector<complex> scratch(32);
  const sequence_view<complex> S(scratch.data(), states_shape);
  refuses("u_grad", "apart from 'y_grad'",
          [&] { s5_vjp(good, U, X, sequence_view<const double>(more.data(), shape), S, h, Y7); });
  const sequence_view<const double> in_scratch(reinterpret_cast<double*>(scratch.data()),
                                               extents{1, 8, 1});
  refuses("scratch", "apart from 'intervals'", [&] {
    s5_vjp(good, U, X, sequence_view<const double>(y.data(), shape), S, h, {},
           {.intervals = in_scratch,
            .gates = sequence_view<const complex>(scratch_gates.data(), states_shape)});
  });
  const auto both = make_s5<double>({.channels = 3, .states = 4, .bidirectional = true}, engine);
  system_d k = both.zeros();
  std::vector<complex> wide_states(32), wide_scratch(32);
  const extents four{1, 8, 4};
  refuses("initial_state", "since the system is bidirectional", [&] {
    s5_vjp(both, U, sequence_view<const complex>(wide_states.data(), four),
           sequence_view<const double>(y.data(), shape),
           sequence_view<complex>(wide_scratch.data(), four), k, Y7,
           {.initial_state = state_view<const complex>(few7.data(), {1, 1, 2})});
  });
  for (const double x : more) CHECK(x == 7);
  for (const complex x : states7) CHECK(x == complex(7));
  system_d g = good.zeros();
  g.input.resize(1, 1);
  refuses("gradients", "zeros()",
          [&] { s5_vjp(good, U, X, sequence_view<const double>(y.data(), shape), S, g, Y7); });
}

}  // namespace
