// SPDX-License-Identifier: BSD-3-Clause
// Tests of recurrences of small vectors on every backend: exact results on integers, adjoint
// identities, summed gradients, resets, bounds of arrays, packs, and filters compared with SciPy.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <scanrec/scan.hpp>

#include "catch.hpp"
#include "golden.hpp"
#include "guarded_linear.hpp"
#include "operator_backends.hpp"
#include "scipy_filters.hpp"

namespace {

using namespace scanrec;

using tested::variants;
using tested::with_operator_backends;

template <class T>
struct numbers {
  std::mt19937_64 engine{7};
  T operator()(double scale = 1) {
    std::uniform_real_distribution<double> u(-scale, scale);
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(engine());
    else if constexpr (detail::is_complex<T>)
      return T(u(engine), u(engine));
    else
      return static_cast<T>(u(engine));
  }
};

/// The arrays of one problem, contiguous along channels or along time.
template <class T, int N>
struct arrays {
  using V = vec<T, N>;
  using M = mat<T, N>;
  extents shape;
  scanrec::strides strides;
  std::vector<M> a, ta, da;
  std::vector<V> u, x, w, tu, tx, du, du_reversed, x0, xT, tx0, txT, wT, dx0;
  std::vector<std::uint8_t> reset_mask;

  arrays(const extents& s, bool time_last)
      : shape(s), strides(time_last ? time_contiguous(s) : channels_last(s)) {
    const auto n = static_cast<std::size_t>(s.group * s.batch * s.time * s.channel);
    const auto m = static_cast<std::size_t>(s.group * s.batch * s.channel);
    numbers<T> next;
    for (auto* v : {&a, &ta, &da}) {
      v->resize(n);
      for (M& y : *v)
        for (auto& row : y.at)
          for (T& e : row) e = next(0.7);
    }
    const auto fill = [&](std::vector<V>& v, std::size_t size) {
      v.resize(size);
      for (V& y : v)
        for (T& e : y.at) e = next();
    };
    for (auto* v : {&u, &x, &w, &tu, &tx, &du, &du_reversed}) fill(*v, n);
    for (auto* v : {&x0, &xT, &tx0, &txT, &wT, &dx0}) fill(*v, m);
    reset_mask.resize(static_cast<std::size_t>(s.group * s.batch * reset_steps()));
    for (std::size_t i = 0; i < reset_mask.size(); ++i) reset_mask[i] = i % 11 == 5;
    reset_mask[static_cast<std::size_t>(reset_steps() - 1)] = 1;
  }
  /// Unless the batch is 2, the reset mask includes the step after the last.
  std::int64_t reset_steps() const { return shape.time + (shape.batch != 2 ? 1 : 0); }
  template <class E>
  sequence_view<E> view(std::vector<E>& v) const {
    return {v.data(), shape, strides};
  }
  state_view<V> edge(std::vector<V>& v) const { return {v.data(), shape}; }
  sequence_view<const bool> resets() const {
    extents one = shape;
    one.channel = 1, one.time = reset_steps();
    return {reinterpret_cast<const bool*>(reset_mask.data()), one};
  }
  scan_options<V> options(direction order) {
    return {.order = order, .initial_state = edge(x0), .final_state = edge(xT), .resets = resets()};
  }
  void forward(const auto& backend, direction order) {
    linear_scan(backend, view(a), view(u), view(x), options(order));
  }
  void jvp(const auto& backend, direction order) {
    linear_scan_jvp(backend, view(a), view(x), view(ta), view(tu), view(tx),
                    {.order = order,
                     .initial_state = edge(x0),
                     .initial_tangent = edge(tx0),
                     .final_tangent = edge(txT),
                     .resets = resets()});
  }
  void vjp(const auto& backend, direction order, conjugation convention) {
    linear_scan_vjp(backend, view(a), view(x), view(w),
                    {.gate_grad = view(da), .input_grad = view(du), .initial_grad = edge(dx0)},
                    {.order = order,
                     .initial_state = edge(x0),
                     .final_grad = edge(wT),
                     .resets = resets(),
                     .convention = convention});
  }
};

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

template <class T>
T pairing(const T& x, const T& y, bool conj) {
  if constexpr (detail::is_complex<T>) return (conj ? std::conj(x) : x) * y;
  return x * y;
}
/// The inner product <x, y> over all numbers of all elements.
template <class E>
auto pairing(const std::vector<E>& x, const std::vector<E>& y, bool conj) {
  using T = typename E::component;
  T sum(0);
  constexpr std::size_t per = sizeof(E) / sizeof(T);
  const T *p = reinterpret_cast<const T*>(x.data()), *q = reinterpret_cast<const T*>(y.data());
  for (std::size_t i = 0; i < x.size() * per; ++i) sum += pairing(p[i], q[i], conj);
  return sum;
}

template <int N, variants Compare = variants::no>
void check_exact() {
  using A = arrays<std::uint32_t, N>;
  for (const extents shape : {extents{1, 1, 1}, extents{2, 17, 3}, extents{1, 130, 2, 2},
                              extents{1, 300, 1}, extents{5, 33, 4}})
    for (const bool time_last : {false, true})
      for (const direction order : {direction::forward, direction::reverse}) {
        A want(shape, time_last);
        want.forward(sequential{}, order);
        // The recurrence as a simple loop.
        for (std::int64_t s = 0; s < shape.group * shape.batch; ++s)
          for (std::int64_t c = 0; c < shape.channel; ++c) {
            auto x = want.x0[s * shape.channel + c];
            for (std::int64_t i = 0; i < shape.time; ++i) {
              const std::int64_t t = order == direction::forward ? i : shape.time - 1 - i;
              const std::int64_t mark = order == direction::forward ? t : t + 1;
              const bool reset =
                  mark < want.reset_steps() && want.reset_mask[s * want.reset_steps() + mark] != 0;
              const auto at =
                  s * want.strides.batch + t * want.strides.time + c * want.strides.channel;
              auto next = want.u[at];
              for (int j = 0; j < N && !reset; ++j)
                for (int k = 0; k < N; ++k) next[j] += want.a[at](j, k) * x[k];
              x = next;
              if (!(want.x[at] == x)) FAIL("loop at step " << t);
            }
          }
        want.jvp(sequential{}, order);
        want.vjp(sequential{}, order, conjugation::hermitian);
        with_operator_backends<Compare>([&](const std::string& name, const auto& backend) {
          A got(shape, time_last);
          got.forward(backend(), order);
          INFO(name << " " << to_string(shape) << " " << time_last);
          CHECK(same_bits(got.x, want.x));
          CHECK(same_bits(got.xT, want.xT));
          got.x = want.x;
          got.jvp(backend(), order);
          CHECK(same_bits(got.tx, want.tx));
          CHECK(same_bits(got.txT, want.txT));
          got.vjp(backend(), order, conjugation::hermitian);
          CHECK(same_bits(got.da, want.da));
          CHECK(same_bits(got.du, want.du));
          CHECK(same_bits(got.dx0, want.dx0));
        });
      }
}

template <class T, int N, variants Compare = variants::no>
void check_dot_product() {
  for (const bool time_last : {false, true})
    for (const direction order : {direction::forward, direction::reverse})
      for (const bool conj : {true, false})
        with_operator_backends<Compare>([&](const std::string& name, const auto& backend) {
          arrays<T, N> p({2, 61, 3}, time_last);
          p.forward(backend(), order);
          p.jvp(backend(), order);
          p.vjp(backend(), order, conj ? conjugation::hermitian : conjugation::none);
          const T left = pairing(p.w, p.tx, conj) + pairing(p.wT, p.txT, conj);
          const T right =
              pairing(p.da, p.ta, conj) + pairing(p.du, p.tu, conj) + pairing(p.dx0, p.tx0, conj);
          INFO(name << " order " << static_cast<int>(order) << " conj " << conj);
          CHECK(std::abs(left - right) <= 1e-11 * (1 + std::abs(left)));
        });
}

template <class T, int N, variants Compare = variants::no>
void check_bounds(unsigned cases) {
  tested::sampler turns;
  for (unsigned number = 0; number < cases; ++number) {
    tested::guarded_linear<mat<T, N>, vec<T, N>> p(number);
    std::string wanted;
    turns.next_round();
    with_operator_backends<Compare>([&](const std::string& name, const auto& backend) {
      if (name != "sequential" && !turns.takes(name.starts_with("cuda") ? 9 : 6)) return;
      INFO(name << ", " << p.text());
      const auto got = p.run(backend());
      CHECK(got.gaps_untouched());
      if constexpr (std::is_integral_v<T>) {
        if (wanted.empty()) wanted = got.elements();
        CHECK(got.elements() == wanted);
      } else {
        CHECK(got.all_finite());
      }
    });
  }
}

}  // namespace

TEST_CASE("matrix recurrences access no memory outside their arrays for any strides",
          "[matrix][bounds]") {
  check_bounds<std::uint32_t, 2, variants::yes>(120);
  check_bounds<double, 2, variants::yes>(120);
  check_bounds<std::complex<double>, 3>(120);
}

TEST_CASE("matrix recurrences are exact on integers", "[matrix]") {
  check_exact<2, variants::yes>();
}

TEST_CASE("matrix recurrences have the golden bits", "[.golden]") {
  with_operator_backends<variants::yes>([](const std::string& name, const auto& backend) {
    // The bits do not depend on the number of threads, so all thread counts share a row of
    // the golden files.
    golden::row row("linear_scan, vjp, jvp of vec<double, 2>; " +
                    name.substr(0, name.find(" threads")));
    for (const bool time_last : {false, true}) {
      arrays<double, 2> p({2, 203, 5}, time_last);
      golden::numbers numbers(1);
      for (auto* const all : {&p.a, &p.ta})
        for (auto& m : *all)
          for (auto& of_row : m.at)
            for (double& x : of_row) numbers.fill(x), x /= 2;
      for (auto* const all : {&p.u, &p.w, &p.tu, &p.x0, &p.tx0, &p.wT})
        for (auto& v : *all)
          for (double& x : v.at) numbers.fill(x);
      p.forward(backend(), direction::forward);
      p.jvp(backend(), direction::forward);
      p.vjp(backend(), direction::forward, conjugation::hermitian);
      row.add_all(p.x), row.add_all(p.xT), row.end_hash();
      row.add_all(p.tx), row.add_all(p.txT), row.end_hash();
      row.add_all(p.da), row.add_all(p.du), row.add_all(p.dx0), row.end_hash();
    }
    row.check();
  });
}

TEST_CASE("<J v, w> = <v, J^T w> of matrix recurrences", "[matrix][adjoint]") {
  check_dot_product<double, 2, variants::yes>();
  check_dot_product<std::complex<double>, 3>();
}

TEST_CASE("the adjoint of a matrix recurrence equals central differences", "[matrix][adjoint]") {
  arrays<double, 2> p({2, 9, 2}, false);
  const auto loss = [&] {
    p.forward(tiled{}, direction::forward);
    return pairing(p.w, p.x, false) + pairing(p.wT, p.xT, false);
  };
  loss();
  p.vjp(tiled{}, direction::forward, conjugation::hermitian);
  const auto check = [&](auto& at, const auto& gradient) {
    auto* numbers = reinterpret_cast<double*>(at.data());
    const auto* expected = reinterpret_cast<const double*>(gradient.data());
    for (std::size_t i = 0; i < at.size() * sizeof(at[0]) / sizeof(double); ++i) {
      const double kept = numbers[i], h = 1e-5;
      numbers[i] = kept + h;
      const double up = loss();
      numbers[i] = kept - h;
      const double down = loss();
      numbers[i] = kept;
      CHECK(std::abs((up - down) / (2 * h) - expected[i]) < 1e-7);
    }
  };
  check(p.a, p.da);
  check(p.u, p.du);
  check(p.x0, p.dx0);
}

TEST_CASE("the gradient of a matrix shared by all steps is a sum over steps",
          "[matrix][broadcast]") {
  using A = arrays<double, 2>;
  for (const bool time_last : {false, true})
    for (const bool per_channel : {false, true})
      with_operator_backends([&](const std::string& name, const auto& backend) {
        A p({3, 50, 4}, time_last);
        const strides once{.batch = 0, .time = 0, .channel = per_channel ? 1 : 0};
        std::vector<mat<double, 2>> one(4), sum(4, p.a[1]);
        for (std::size_t c = 0; c < 4; ++c) one[c] = p.a[per_channel ? c : 0];
        for (std::int64_t b = 0; b < 3; ++b)
          for (std::int64_t t = 0; t < 50; ++t)
            for (std::int64_t c = 0; c < 4; ++c)
              p.a[b * p.strides.batch + t * p.strides.time + c * p.strides.channel] = one[c];
        p.forward(sequential{}, direction::forward);
        p.vjp(sequential{}, direction::forward, conjugation::hermitian);
        std::vector<vec<double, 2>> x(p.x.size());
        const sequence_view<const mat<double, 2>> gate(one.data(), p.shape, once);
        linear_scan(backend(), gate, p.view(p.u), p.view(x), p.options(direction::forward));
        double off = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
          for (int k = 0; k < 2; ++k) off = std::max(off, std::abs(x[i][k] - p.x[i][k]));
        INFO(name);
        CHECK(off < 1e-12);
        for (const update how : {update::overwrite, update::accumulate}) {
          linear_scan_vjp(
              backend(), gate, p.view(p.x), p.view(p.w),
              {.gate_grad = {sum.data(), p.shape, once}, .update = how},
              {.initial_state = p.edge(p.x0), .final_grad = p.edge(p.wT), .resets = p.resets()});
          for (std::int64_t kept = 0; kept < (per_channel ? 4 : 1); ++kept)
            for (int i = 0; i < 2; ++i)
              for (int j = 0; j < 2; ++j) {
                double want = 0, size = 0;
                for (std::int64_t b = 0; b < 3; ++b)
                  for (std::int64_t t = 0; t < 50; ++t)
                    for (std::int64_t c = 0; c < 4; ++c) {
                      if (per_channel && c != kept) continue;
                      const double term =
                          p.da[b * p.strides.batch + t * p.strides.time + c * p.strides.channel](i,
                                                                                                 j);
                      want += term, size += std::abs(term);
                    }
                const double calls = how == update::accumulate ? 2 : 1;
                CHECK(std::abs(sum[kept](i, j) - calls * want) <= 1e-12 * calls * size);
              }
        }
      });
}

TEST_CASE("a reset stops infinity and NaN in matrix recurrences", "[matrix][resets]") {
  for (const bool time_last : {false, true})
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")})
      with_operator_backends([&](const std::string& name, const auto& backend) {
        arrays<double, 2> p({1, 90, 3}, time_last);
        std::fill(p.reset_mask.begin(), p.reset_mask.end(), std::uint8_t{0});
        p.reset_mask[40] = 1;
        const auto at = [&](std::int64_t t, std::int64_t c) {
          return static_cast<std::size_t>(t * p.strides.time + c * p.strides.channel);
        };
        for (int c = 0; c < 3; ++c) {
          p.u[at(20, c)][1] = bad;
          p.a[at(40, c)](0, 1) = bad;  // the gate at the reset must not be used
          p.w[at(60, c)][0] = bad;
        }
        p.forward(backend(), direction::forward);
        p.vjp(backend(), direction::forward, conjugation::hermitian);
        const auto finite = [](const auto& x) {
          return std::isfinite(x[0]) && std::isfinite(x[1]);
        };
        bool right = true;
        for (int c = 0; c < 3; ++c)
          for (int t = 0; t < 90; ++t) {
            right = right && finite(p.x[at(t, c)]) == (t < 20 || t >= 40);
            if (t < 40 || t > 60) right = right && finite(p.du[at(t, c)]);
            if (t == 40) right = right && p.x[at(t, c)] == p.u[at(t, c)];
            if (t == 40) right = right && p.da[at(t, c)] == mat<double, 2>{};
          }
        INFO(name << (time_last ? " time-contiguous" : " channels-last"));
        CHECK(right);
      });
}

namespace {

/// Checks that `tiled` has the bits of `sequential` for a gate with these strides, except for sums
/// of rounded terms. `tiled` processes packs of channels if there are enough channels.
template <class T, int N>
void check_packs(const extents& shape, const scanrec::strides& gate_strides) {
  using M = mat<T, N>;
  using A = arrays<T, N>;
  const auto gate = [&](A& p) { return sequence_view<const M>(p.a.data(), shape, gate_strides); };
  const auto run = [&](A& p, const auto& backend) {
    linear_scan(backend, gate(p), p.view(p.u), p.view(p.x));
    linear_scan_jvp(backend, gate(p), p.view(p.x), p.view(p.ta), p.view(p.tu), p.view(p.tx));
    linear_scan_vjp(backend, gate(p), p.view(p.x), p.view(p.w),
                    {.gate_grad = {p.da.data(), shape, gate_strides}, .input_grad = p.view(p.du)});
    // Calls with resets and initial and final states, and a vjp without a gradient of the gate.
    linear_scan(backend, gate(p), p.view(p.u), p.view(p.tu), p.options(direction::reverse));
    linear_scan_vjp(backend, gate(p), p.view(p.x), p.view(p.w),
                    {.input_grad = p.view(p.du_reversed), .initial_grad = p.edge(p.dx0)},
                    {.order = direction::reverse, .final_grad = p.edge(p.wT)});
  };
  const bool sums = gate_strides.batch == 0 || gate_strides.time == 0 || gate_strides.channel == 0;
  A want(shape, false), alone(shape, false);
  run(want, sequential{});
  run(alone, tiled{.threads = 1});
  for (const int threads : {1, 3})
    for (const std::int64_t stream : {0, 1}) {
      A got(shape, false);
      run(got, tiled{.threads = threads, .stream_bytes = stream});
      INFO(to_string(shape) << " N " << N << " threads " << threads << " gate strides "
                            << gate_strides.batch << " " << gate_strides.time << " "
                            << gate_strides.channel);
      CHECK(same_bits(got.x, want.x));
      CHECK(same_bits(got.tx, want.tx));
      CHECK(same_bits(got.du, want.du));
      CHECK(same_bits(got.tu, want.tu));
      CHECK(same_bits(got.xT, want.xT));
      CHECK(same_bits(got.du_reversed, want.du_reversed));
      CHECK(same_bits(got.dx0, want.dx0));
      if (!sums || std::is_integral_v<T>) CHECK(same_bits(got.da, want.da));
      CHECK(same_bits(got.da, alone.da));
    }
  // Tiles of 7 steps have the same bits for any number of threads, and for integers those of
  // `sequential`.
  A one(shape, false), three(shape, false);
  run(one, tiled{.threads = 1, .tile_steps = 7});
  run(three, tiled{.threads = 3, .tile_steps = 7});
  INFO(to_string(shape) << " N " << N << " tiles");
  CHECK(same_bits(one.x, three.x));
  CHECK(same_bits(one.tx, three.tx));
  CHECK(same_bits(one.du, three.du));
  CHECK(same_bits(one.tu, three.tu));
  CHECK(same_bits(one.da, three.da));
  if (std::is_integral_v<T>) {
    CHECK(same_bits(one.x, want.x));
    CHECK(same_bits(one.tx, want.tx));
    CHECK(same_bits(one.du, want.du));
    CHECK(same_bits(one.da, want.da));
  }
}
template <class T, int N>
void check_packs() {
  for (const std::int64_t channels : {1, 5, 16, 33}) {
    const extents shape{2, 41, channels};
    check_packs<T, N>(shape, channels_last(shape));
    for (const scanrec::strides& shared :
         {strides{0, 0, 0}, strides{0, 0, 1}, strides{0, 1, 0}, strides{0, channels, 1}})
      check_packs<T, N>(shape, shared);
  }
}

}  // namespace

TEST_CASE("packs of vectors have the bits of the sequential loop", "[matrix][tiled]") {
  check_packs<double, 2>();
  check_packs<std::uint32_t, 3>();
  check_packs<std::complex<float>, 2>();
#if !defined(SCANREC_TEST_STRIDE) || SCANREC_TEST_STRIDE == 1  // --full: other element sizes
  check_packs<float, 2>();
  check_packs<double, 3>();
#endif
}

TEST_CASE("vectors are processed in packs if channels are contiguous and fill a pack",
          "[matrix][tiled]") {
  using V = vec<float, 2>;
  const auto problem_of = [](const extents& shape, const scanrec::strides& states) {
    const auto at = [](int bit) { return std::uintptr_t{1} << bit; };  // never read
    return linear_scan_problem(
        sequence_view(reinterpret_cast<const mat<float, 2>*>(at(40)), shape, strides{0, 0, 0}),
        sequence_view(reinterpret_cast<const V*>(at(45)), shape, states),
        sequence_view(reinterpret_cast<V*>(at(50)), shape, states));
  };
  const auto slots = [&](const extents& shape, const scanrec::strides& states) {
    return describe(tiled{}, problem_of(shape, states)).slots_per_row;
  };
  const extents wide{1, 100, 48}, narrow{1, 100, 15};
  CHECK(slots(wide, channels_last(wide)) == 3);
  CHECK(slots(wide, time_contiguous(wide)) == 48);
  CHECK(slots(narrow, channels_last(narrow)) == 15);
  // Time is split for packs and for single vectors.
  for (const std::int64_t channels : {2, 16}) {
    const extents few{1, 1 << 20, channels};
    CHECK(describe(tiled{}, problem_of(few, channels_last(few))).time_split);
  }
}

namespace {

/// A filter in transposed direct form II, with N + 1 coefficients b and as many a, a[0] = 1. With
/// the state before step t, output[t] = b[0] x[t] + state[0]. The next state is gate * state +
/// input.
template <int N>
struct filter {
  mat<double, N> gate{};
  vec<double, N> weight{};
  double direct;

  filter(const double* b, const double* a) : direct(b[0]) {
    for (int i = 0; i < N; ++i) {
      gate(i, 0) = -a[i + 1];
      if (i + 1 < N) gate(i, i + 1) = 1;
      weight[i] = b[i + 1] - a[i + 1] * b[0];
    }
  }
  /// Reads the initial state from `state` and writes the final state to it.
  template <class Backend>
  std::vector<double> run(const Backend& backend, const std::vector<double>& signal,
                          vec<double, N>& state) const {
    const extents shape{.time = static_cast<std::int64_t>(signal.size())};
    std::vector<vec<double, N>> inputs, states(signal.size());
    for (const double x : signal) {
      inputs.push_back(weight);
      for (double& w : inputs.back().at) w *= x;
    }
    std::vector<double> output;
    const vec<double, N> first = state;
    const state_view<vec<double, N>> edge(&state, shape);
    linear_scan(backend, sequence_view<const mat<double, N>>(&gate, shape, strides{0, 0, 0}),
                sequence_view(inputs.data(), shape), sequence_view(states.data(), shape),
                {.initial_state = edge, .final_state = edge});
    for (std::size_t t = 0; t < signal.size(); ++t)
      output.push_back(direct * signal[t] + (t > 0 ? states[t - 1] : first)[0]);
    return output;
  }
};

double largest_difference(const std::vector<double>& x, const double* y) {
  double off = 0;
  for (std::size_t i = 0; i < x.size(); ++i) off = std::max(off, std::abs(x[i] - y[i]));
  return off;
}

}  // namespace

TEST_CASE("second-order sections and a filter of order 4 equal SciPy's values",
          "[matrix][filters]") {
  namespace expected = scipy_filters;
  with_operator_backends<variants::no>([](const std::string& name, const auto& backend) {
    INFO(name);
    std::vector<double> signal(std::begin(expected::signal), std::end(expected::signal));
    for (int section = 0; section < 2; ++section) {
      const double* of = expected::sections + 6 * section;
      vec<double, 2> state{expected::sections_start[2 * section],
                           expected::sections_start[2 * section + 1]};
      signal = filter<2>(of, of + 3).run(backend(), signal, state);
      for (int i = 0; i < 2; ++i)
        CHECK(std::abs(state[i] - expected::sections_left[2 * section + i]) < 1e-13);
    }
    CHECK(largest_difference(signal, expected::by_sections) < 1e-13);

    signal.assign(std::begin(expected::signal), std::end(expected::signal));
    vec<double, 4> state{};
    signal = filter<4>(expected::numerator, expected::denominator).run(backend(), signal, state);
    CHECK(largest_difference(signal, expected::by_numerator) < 1e-11);
  });
}
