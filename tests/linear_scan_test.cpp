// SPDX-License-Identifier: BSD-3-Clause
// Tests of linear_scan, its vjp and its jvp for one element type. CMake compiles this file once per
// type and defines TEST_TYPE and the name of the type, TEST_TYPE_NAME.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <tuple>

#include "guarded_linear.hpp"
#include "reference.hpp"
#include "tested_backend.hpp"

// Slow builds (sanitizers) test only every n-th combination of shape and layout.
#if !defined(SCANREC_TEST_STRIDE)
#define SCANREC_TEST_STRIDE 1
#endif

namespace {

/// The stride for test cases with few combinations. It is coprime to the sizes of their loops.
constexpr int stride_of_few = SCANREC_TEST_STRIDE > 1 ? 5 : 1;

using namespace reference;
using T = TEST_TYPE;
using V = compute_t<T>;
using W = wide<T>;
#define TYPED_CASE(name, tags) TEST_CASE(TEST_TYPE_NAME ": " name, "[" TEST_TYPE_NAME "]" tags)

template <class F>
void with_backends(F f) {
  tested::with_backends<T>(f);
}
const tested::backend<T>& loop() { return tested::loop<T>(); }

const std::vector<extents>& shapes() {
  static const std::vector<extents> list{
      {1, 1, 1},      {1, 2, 3},     {2, 15, 1},  {1, 16, 16},  {3, 17, 17},
      {1, 64, 35},    {2, 33, 2, 2}, {1, 101, 1}, {9, 40, 5},   {1, 257, 16},
      {2, 70, 33, 3}, {1, 330, 1},   {2, 129, 3}, {1, 21, 112},
  };
  return list;
}

/// The arrays and options of one problem, and their values in scan order per sequence.
struct problem_case {
  extents shape;
  layout l;
  direction order;
  bool boundary_states, with_resets;
  array<T> gate, input, state, grad, gate_tangent, input_tangent;
  array<V> x0, gT, tx0, xT;
  std::vector<std::uint8_t> reset_bytes;

  problem_case(const extents& s, layout lay, direction d, bool with_boundary_states,
               bool resets_too)
      : shape(s),
        l(lay),
        order(d),
        boundary_states(with_boundary_states),
        with_resets(resets_too),
        gate(s, lay, 1),
        input(s, lay, 2),
        state(s, lay, 3),
        grad(s, lay, 4),
        gate_tangent(s, lay, 5),
        input_tangent(s, lay, 6) {
    gate.fill_gates(1);
    extents one = s;
    one.time = 1;
    x0 = array<V>(one, layout::channels_last, 7);
    gT = array<V>(one, layout::padded, 8);
    tx0 = array<V>(one, layout::channels_last, 9);
    xT = array<V>(one, layout::channels_last, 10);
    reset_bytes.resize(static_cast<std::size_t>(s.group * s.batch * s.time) + 1);
    generator bits{5};
    for (auto& r : reset_bytes) r = bits() % 6 == 0;
  }
  sequence_view<const bool> resets() {
    if (!with_resets) return {};
    extents s = shape;
    s.channel = 1;
    return {reinterpret_cast<const bool*>(reset_bytes.data()), s,
            strides{s.time, 1, 0, s.batch * s.time}};
  }
  state_view<V> edge(array<V>& a) { return {a.view().data, shape, a.view().strides}; }
  scan_options<V> options() {
    scan_options<V> o{.order = order, .resets = resets()};
    if (boundary_states) o.initial_state = edge(x0), o.final_state = edge(xT);
    return o;
  }
  vjp_options<V> backward_options() {
    vjp_options<V> o{.order = order, .resets = resets()};
    if (boundary_states) o.initial_state = edge(x0), o.final_grad = edge(gT);
    return o;
  }
  jvp_options<V> tangent_options() {
    jvp_options<V> o{.order = order, .resets = resets()};
    if (boundary_states)
      o.initial_state = edge(x0), o.initial_tangent = edge(tx0), o.final_tangent = edge(xT);
    return o;
  }
  // The time index of step i of linear_scan, where i counts in scan order.
  std::int64_t time_of(std::int64_t i) const {
    return order == direction::forward ? i : shape.time - 1 - i;
  }
  // Whether a reset separates step i of linear_scan from step i - 1, in scan order.
  bool reset(std::int64_t g, std::int64_t b, std::int64_t i) const {
    if (!with_resets) return false;
    if (order == direction::reverse && i == 0) return false;
    const std::int64_t t = order == direction::forward ? i : shape.time - i;
    return reset_bytes[(g * shape.batch + b) * shape.time + t] != 0;
  }
  std::vector<W> line(array<T>& a, std::int64_t g, std::int64_t b, std::int64_t c) {
    std::vector<W> out;
    for (std::int64_t i = 0; i < shape.time; ++i) out.push_back(widened(a(g, b, time_of(i), c)));
    return out;
  }
  std::vector<bool> resets(std::int64_t g, std::int64_t b) const {
    std::vector<bool> out;
    for (std::int64_t i = 0; i < shape.time; ++i) out.push_back(reset(g, b, i));
    return out;
  }
  W start(std::int64_t g, std::int64_t b, std::int64_t c) {
    return boundary_states ? W(x0(g, b, 0, c)) : W(0);
  }
  scanned<T> exact_forward(std::int64_t g, std::int64_t b, std::int64_t c) {
    const auto u = line(input, g, b, c);
    std::vector<long double> m;
    for (auto x : u) m.push_back(magnitude(x));
    return reference::scan<T>(line(gate, g, b, c), u, start(g, b, c), resets(g, b), m);
  }
  /// Fills `state` with the states of a forward call.
  void make_states() { linear_scan(loop(), gate.view(), input.view(), state.view(), options()); }
  std::string text() const { return to_string(shape, l, order); }
};

template <class F>
void for_cases(F f) {
  int combination = 0;
  for (const auto& shape : shapes())
    for (const layout l : all_layouts) {
      if (combination++ % SCANREC_TEST_STRIDE != 0) continue;
      for (const direction d : {direction::forward, direction::reverse})
        for (int extras = 0; extras < 3; ++extras) {
          problem_case p(shape, l, d, extras > 0, extras == 2);
          f(p);
        }
    }
}

}  // namespace

TYPED_CASE("forward is within the error bound and writes nothing outside the view",
           "[forward][bound][backends][order][initial_state][final_state][resets]"
           "[layouts]") {
  struct result {
    std::string name;
    int more;  // additions per term beyond those of most backends
    array<T> out;
    std::vector<T> untouched;
    array<V> last;
  };
  for_cases([](problem_case& p) {
    std::vector<result> results;
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      array<T> out(p.shape, p.l, 11);
      const auto before = out.storage();
      linear_scan(backend, p.gate.view(), p.input.view(), out.view(), p.options());
      results.push_back({name, backend.more, out, before, p.xT});
    });
    for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
      const auto want = p.exact_forward(g, b, c);
      for (result& r : results) {
        for (std::int64_t i = 0; i < p.shape.time; ++i) {
          const auto t = p.time_of(i);
          check_close<T>(r.out(g, b, t, c), want.value[i], want.bound(i, r.more),
                         [&] { return r.name + " " + p.text() + " step " + std::to_string(i); });
          // Copies the elements of the view, so that only those outside it are compared below.
          r.untouched[&r.out(g, b, t, c) - r.out.storage().data()] = r.out(g, b, t, c);
        }
        if (p.boundary_states) {
          const auto last = r.last(g, b, 0, c);
          if (!half<T> && p.shape.time > 0)
            CHECK(same_bits(T(last), r.out(g, b, p.time_of(p.shape.time - 1), c)));
          check_close<V>(last, W(want.value.back()), want.bound(p.shape.time - 1, r.more),
                         "final_state");
        }
      }
    });
    for (result& r : results) {
      INFO(r.name << " " << p.text());
      CHECK(same_bits(r.untouched, r.out.storage()));
    }
  });
}

TYPED_CASE("bits do not depend on threads, executor or non-temporal stores",
           "[forward][vjp][determinism][threaded][order][initial_state][resets][layouts]") {
  for_cases([](problem_case& p) {
    p.make_states();
    const std::size_t backends = tested::threaded_backends<T>(1, false).size();
    for (std::size_t i = 0; i < backends; ++i) {
      array<T> x1(p.shape, p.l), da1(p.shape, p.l), du1(p.shape, p.l);
      bool first = true;
      for (const auto& [threads, own] :
           {std::pair(1, false), std::pair(1, true), std::pair(2, false), std::pair(3, true),
            std::pair(7, false), std::pair(7, true)}) {
        const auto backend = tested::threaded_backends<T>(threads, own)[i];
        array<T> x(p.shape, p.l), da(p.shape, p.l), du(p.shape, p.l);
        linear_scan(backend, p.gate.view(), p.input.view(), x.view(), p.options());
        linear_scan_vjp(backend, p.gate.view(), p.state.view(), p.grad.view(),
                        {.gate_grad = da.view(), .input_grad = du.view()}, p.backward_options());
        if (first) x1 = x, da1 = da, du1 = du, first = false;
        INFO(p.text() << " threads " << threads << " " << backend.name);
        CHECK(same_bits(x.storage(), x1.storage()));
        CHECK(same_bits(da.storage(), da1.storage()));
        CHECK(same_bits(du.storage(), du1.storage()));
      }
    }
  });
}

TYPED_CASE("lanes along channels have the bits of the sequential loop",
           "[forward][vjp][jvp][determinism][sequential][tiled][order][layouts][resets]") {
  for_cases([](problem_case& p) {
    p.make_states();
    for (const tiled& options : {tiled{}, tiled{.threads = 2, .tile_steps = 16}}) {
      const tested::backend<T> backend("tiled", options);
      const auto plan = describe(
          options, linear_scan_problem(p.gate.view(), p.input.view(), p.state.view(), p.options()));
      const bool serial = !plan.time_split && plan.lanes.along == recurrence::lane_axis::channel;
      if (!serial && !exact<T>) continue;
      array<T> x1(p.shape, p.l), x2(p.shape, p.l), da1(p.shape, p.l), da2(p.shape, p.l),
          du1(p.shape, p.l), du2(p.shape, p.l), tx1(p.shape, p.l), tx2(p.shape, p.l);
      const auto all = [&](const tested::backend<T>& b, array<T>& x, array<T>& da, array<T>& du,
                           array<T>& tx) {
        linear_scan(b, p.gate.view(), p.input.view(), x.view(), p.options());
        linear_scan_vjp(b, p.gate.view(), p.state.view(), p.grad.view(),
                        {.gate_grad = da.view(), .input_grad = du.view()}, p.backward_options());
        linear_scan_jvp(b, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                        p.input_tangent.view(), tx.view(), p.tangent_options());
      };
      all(loop(), x1, da1, du1, tx1);
      all(backend, x2, da2, du2, tx2);
      INFO(p.text());
      CHECK(same_bits(x1.storage(), x2.storage()));
      CHECK(same_bits(da1.storage(), da2.storage()));
      CHECK(same_bits(du1.storage(), du2.storage()));
      CHECK(same_bits(tx1.storage(), tx2.storage()));
    }
  });
}

TYPED_CASE("vjp is within the error bound",
           "[vjp][bound][backends][order][initial_state][final_state][initial_grad]"
           "[resets][layouts][convention]") {
  for_cases([](problem_case& p) {
    p.make_states();
    std::vector<conjugation> conventions{conjugation::hermitian};
    if (complex<T>) conventions.push_back(conjugation::none);
    for (const conjugation convention : conventions) {
      struct result {
        std::string name;
        int more;  // additions per term beyond those of most backends
        array<T> da, du;
        array<V> dx0;
      };
      std::vector<result> results;
      const bool conj = convention == conjugation::hermitian;
      with_backends([&](const std::string& name, const tested::backend<T>& backend) {
        extents one = p.shape;
        one.time = 1;
        result r{name, backend.more, array<T>(p.shape, p.l, 21), array<T>(p.shape, p.l, 22),
                 array<V>(one, layout::channels_last, 23)};
        auto o = p.backward_options();
        o.convention = convention;
        linear_scan_vjp(
            backend, p.gate.view(), p.state.view(), p.grad.view(),
            {.gate_grad = r.da.view(), .input_grad = r.du.view(), .initial_grad = p.edge(r.dx0)},
            o);
        results.push_back(std::move(r));
      });
      for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
        // g[i] = grad[i] + conj(a[i+1]) g[i+1], from the last scan step to the first.
        const std::int64_t n = p.shape.time;
        const auto a = p.line(p.gate, g, b, c), gx = p.line(p.grad, g, b, c),
                   x = p.line(p.state, g, b, c);
        std::vector<W> ra, ru;
        std::vector<long double> m;
        for (std::int64_t i = n - 1; i >= 0; --i) {
          const bool reset_after = i + 1 < n && p.reset(g, b, i + 1);
          ra.push_back(i + 1 < n ? (reset_after ? W(0) : conjugate(a[i + 1], conj)) : W(0));
          W u = gx[i];
          long double size = magnitude(u);
          if (i == n - 1 && p.boundary_states)
            u = u + W(p.gT(g, b, 0, c)), size += magnitude(W(p.gT(g, b, 0, c)));
          ru.push_back(u);
          m.push_back(size);
        }
        const auto want = reference::scan<T>(ra, ru, W(0), {}, m);
        for (std::int64_t i = 0; i < n; ++i) {
          const auto k = n - 1 - i;
          const auto t = p.time_of(i);
          const W before = i > 0 ? x[i - 1] : p.start(g, b, c);
          const W factor = p.reset(g, b, i) ? W(0) : conjugate(before, conj);
          const long double size = magnitude(factor);
          const W through_gate = product(want.value[k], factor);
          for (result& r : results) {
            const auto where = [&](const char* what) {
              return what + (r.name + " " + p.text() + " step " + std::to_string(i));
            };
            check_close<T>(r.du(g, b, t, c), want.value[k], want.bound(k, r.more),
                           [&] { return where("input_grad "); });
            check_close<T>(r.da(g, b, t, c), through_gate,
                           exact<T> ? 0
                                    : want.bound(k, r.more) * size * (1 + 4 * roundoff<T>()) +
                                          4 * roundoff<T>() * magnitude(want.value[k]) * size,
                           [&] { return where("gate_grad "); });
          }
        }
        if (n == 0) return;
        const W factor = p.reset(g, b, 0) ? W(0) : conjugate(a[0], conj);
        for (result& r : results)
          check_close<V>(
              r.dx0(g, b, 0, c), product(want.value[n - 1], factor),
              exact<T> ? 0
                       : want.bound(n - 1, r.more) * magnitude(factor) * (1 + 4 * roundoff<T>()) +
                             8 * roundoff<T>() * magnitude(factor) *
                                 (magnitude(want.value[n - 1]) + m[n - 1]),
              [&] { return "initial_grad " + r.name + " " + p.text(); });
      });
    }
  });
}

TYPED_CASE("jvp is within the error bound",
           "[jvp][bound][backends][order][initial_state][final_state][resets][layouts]") {
  for_cases([](problem_case& p) {
    p.make_states();
    std::vector<std::tuple<std::string, int, array<T>>> results;
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      array<T> out(p.shape, p.l, 31);
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                      p.input_tangent.view(), out.view(), p.tangent_options());
      results.emplace_back(name, backend.more, out);
    });
    for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
      const auto a = p.line(p.gate, g, b, c), x = p.line(p.state, g, b, c),
                 ta = p.line(p.gate_tangent, g, b, c), tu = p.line(p.input_tangent, g, b, c);
      std::vector<W> u;
      std::vector<long double> m;
      for (std::int64_t i = 0; i < p.shape.time; ++i) {
        const W before = i > 0 ? x[i - 1] : p.start(g, b, c);
        const bool reset = p.reset(g, b, i);
        u.push_back(reset ? tu[i] : product(ta[i], before) + tu[i]);
        m.push_back((reset ? 0 : magnitude(ta[i]) * magnitude(before)) + magnitude(tu[i]));
      }
      const auto want = reference::scan<T>(a, u, p.boundary_states ? W(p.tx0(g, b, 0, c)) : W(0),
                                           p.resets(g, b), m);
      for (auto& [name, more, out] : results)
        for (std::int64_t i = 0; i < p.shape.time; ++i)
          check_close<T>(
              out(g, b, p.time_of(i), c), want.value[i], want.bound(i, more),
              [&, &name = name] { return name + " " + p.text() + " step " + std::to_string(i); });
    });
  });
}

namespace {

/// Checks a gate that is broadcast along `axes` (bits: batch, time, channel, group), and gradients
/// of gate and input that are sums along these axes.
void check_broadcast(const extents& shape, int axes, layout l, direction d) {
  problem_case p(shape, l, d, true, axes % 3 == 0);
  extents kept = shape;
  if (axes & 1) kept.batch = 1;
  if (axes & 2) kept.time = 1;
  if (axes & 4) kept.channel = 1;
  if (axes & 8) kept.group = 1;
  array<T> small(kept, l, 41);
  small.fill_gates(3);
  scanrec::strides strides = small.view().strides;
  if (axes & 1) strides.batch = 0;
  if (axes & 2) strides.time = 0;
  if (axes & 4) strides.channel = 0;
  if (axes & 8) strides.group = 0;
  const sequence_view<T> gate(small.view().data, shape, strides);
  for_each_sequence(shape, [&](auto g, auto b, auto c) {
    for (std::int64_t t = 0; t < shape.time; ++t)
      p.gate(g, b, t, c) =
          gate.data[g * strides.group + b * strides.batch + t * strides.time + c * strides.channel];
  });
  array<T> dense(shape, l, 1);
  linear_scan(loop(), p.gate.view(), p.input.view(), dense.view(), p.options());
  p.make_states();
  // The gradient of every element, from the sequential loop.
  array<T> da(shape, l), du(shape, l);
  linear_scan_vjp(loop(), p.gate.view(), p.state.view(), p.grad.view(),
                  {.gate_grad = da.view(), .input_grad = du.view()}, p.backward_options());
  with_backends([&](const std::string& name, const tested::backend<T>& backend) {
#if defined(SCANREC_TEST_CUDA_ON_HOST)
    // The tiles of large shapes would take minutes on the emulator.
    if (name.starts_with("cuda::look_back") && shape.batch * shape.channel > 300) return;
#endif
    INFO(name << " axes " << axes << " " << p.text());
    array<T> x(shape, l, 1);
    linear_scan(backend, gate, p.input.view(), x.view(), p.options());
    if (exact<T> || name == "sequential") CHECK(same_bits(x.storage(), dense.storage()));
    // Both gradients are sums. With update::accumulate they are added to the contents of the
    // arrays.
    for (const update how : {update::overwrite, update::accumulate}) {
      array<T> ga(kept, l, 51), gu(kept, l, 52);
      const auto before_a = ga.storage(), before_u = gu.storage();
      const auto as_sum = [&](array<T>& a) {
        return sequence_view<T>(a.view().data, shape, strides);
      };
      linear_scan_vjp(backend, gate, p.state.view(), p.grad.view(),
                      {.gate_grad = as_sum(ga), .input_grad = as_sum(gu), .update = how},
                      p.backward_options());
      const auto check = [&](array<T>& got, array<T>& terms, const std::vector<T>& before) {
        for (std::int64_t g = 0; g < kept.group; ++g)
          for (std::int64_t b = 0; b < kept.batch; ++b)
            for (std::int64_t t = 0; t < kept.time; ++t)
              for (std::int64_t c = 0; c < kept.channel; ++c) {
                W sum(0);
                long double size = 0;
                if (how == update::accumulate) {
                  sum = widened(before[&got(g, b, t, c) - got.storage().data()]);
                  size = magnitude(sum);
                }
                for (std::int64_t i = 0; i < (axes & 8 ? shape.group : 1); ++i)
                  for (std::int64_t j = 0; j < (axes & 1 ? shape.batch : 1); ++j)
                    for (std::int64_t k = 0; k < (axes & 2 ? shape.time : 1); ++k)
                      for (std::int64_t m = 0; m < (axes & 4 ? shape.channel : 1); ++m) {
                        const W term = widened(terms(axes & 8 ? i : g, axes & 1 ? j : b,
                                                     axes & 2 ? k : t, axes & 4 ? m : c));
                        sum = sum + term;
                        size += magnitude(term);
                      }
                // The bound covers the order of the sum and the rounding of `terms` to the storage
                // type.
                check_close<T>(got(g, b, t, c), sum,
                               exact<T> ? 0 : size * (3000 * roundoff<T>() + storage_roundoff<T>()),
                               [&] { return "sum " + name + " axes " + std::to_string(axes); });
              }
      };
      check(ga, da, before_a);
      check(gu, du, before_u);
    }
  });
  if (tested::cuda_backends_alone()) return;
  // The bits of the sums do not depend on the number of threads.
  const auto sums_of = [&](const tested::backend<T>& backend) {
    array<T> ga(kept, l, 51), gu(kept, l, 52);
    linear_scan_vjp(backend, gate, p.state.view(), p.grad.view(),
                    {.gate_grad = {ga.view().data, shape, strides},
                     .input_grad = {gu.view().data, shape, strides}},
                    p.backward_options());
    return std::pair(ga.storage(), gu.storage());
  };
  const auto alone = tested::threaded_backends<T>(1, false);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const auto want = sums_of(alone[i]);
    for (const int threads : {2, 3, 7}) {
      const auto got = sums_of(tested::threaded_backends<T>(threads, threads == 3)[i]);
      INFO(alone[i].name << " threads " << threads << " axes " << axes << " " << p.text());
      CHECK(same_bits(got.first, want.first));
      CHECK(same_bits(got.second, want.second));
    }
  }
}

}  // namespace

TYPED_CASE("a broadcast gate equals its full array, and its gradient is the sum",
           "[vjp][broadcast][backends][layouts][order]") {
  for (const layout l : {layout::channels_last, layout::time_contiguous}) {
    for (const direction d : {direction::forward, direction::reverse})
      for (int axes = 1; axes < 16; axes += SCANREC_TEST_STRIDE)
        check_broadcast({3, 40, 18, 2}, axes, l, d);
    // Shapes with several strips (blocks of adjacent channels), whose sums are added.
    int combination = 0;
    for (const extents shape : {extents{5, 12, 1100}, extents{1, 12, 2300}})
      for (const int axes : {4, 5, 6})
        if (combination++ % stride_of_few == 0) check_broadcast(shape, axes, l, direction::forward);
  }
}

TYPED_CASE("gradients can be requested alone, accumulated, and summed for a shared initial state",
           "[vjp][update][broadcast][backends][initial_grad]") {
  for (const layout l : {layout::channels_last, layout::time_contiguous})
    for (const bool resets : {false, true}) {
      problem_case p({3, 37, 19}, l, direction::forward, true, resets);
      p.make_states();
      with_backends([&](const std::string& name, const tested::backend<T>& backend) {
        INFO(name);
        array<T> da(p.shape, l, 1), du(p.shape, l, 2), only_a(p.shape, l, 1), only_u(p.shape, l, 2);
        linear_scan_vjp(backend, p.gate.view(), p.state.view(), p.grad.view(),
                        {.gate_grad = da.view(), .input_grad = du.view()}, p.backward_options());
        linear_scan_vjp(backend, p.gate.view(), p.state.view(), p.grad.view(),
                        {.gate_grad = only_a.view()}, p.backward_options());
        linear_scan_vjp(backend, p.gate.view(), none, p.grad.view(), {.input_grad = only_u.view()},
                        p.backward_options());
        CHECK(same_bits(da.storage(), only_a.storage()));
        CHECK(same_bits(du.storage(), only_u.storage()));

        array<T> sum_a(p.shape, l, 1), sum_u(p.shape, l, 2);
        const auto old_a = sum_a.storage(), old_u = sum_u.storage();
        linear_scan_vjp(
            backend, p.gate.view(), p.state.view(), p.grad.view(),
            {.gate_grad = sum_a.view(), .input_grad = sum_u.view(), .update = update::accumulate},
            p.backward_options());
        for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
          for (std::int64_t t = 0; t < p.shape.time; ++t) {
            const auto check = [&](array<T>& sum, array<T>& part, const std::vector<T>& old) {
              const W was = widened(old[&sum(g, b, t, c) - sum.storage().data()]);
              const W added = widened(part(g, b, t, c));
              const long double size = magnitude(was) + magnitude(added);
              check_close<T>(sum(g, b, t, c), was + added,
                             size * (8 * roundoff<T>() + storage_roundoff<T>()), "accumulated");
            };
            check(sum_a, da, old_a);
            check(sum_u, du, old_u);
          }
        });

        // Initial states per sequence, shared by all batch rows, and shared by all sequences.
        std::vector<V> per_row(3 * 19), shared(19), single(1);
        const auto initial = [&](std::vector<V>& to, std::int64_t batch, std::int64_t channel) {
          std::vector<V> both(to.size(), V(3));
          const auto call = [&](std::vector<V>& grad, update how) {
            const state_view<V> view(grad.data(), p.shape, strides{batch, 0, channel});
            linear_scan_vjp(backend, p.gate.view(), none, p.grad.view(),
                            {.initial_grad = view, .update = how}, p.backward_options());
          };
          call(to, update::overwrite), call(both, update::accumulate);
          for (std::size_t i = 0; i < to.size(); ++i)
            check_close<V>(both[i], W(V(3)) + W(to[i]),
                           4 * roundoff<T>() * (3 + magnitude(W(to[i]))), "accumulated initial");
        };
        initial(per_row, 19, 1), initial(shared, 0, 1), initial(single, 0, 0);
        W all(0);
        long double all_size = 0;
        for (int c = 0; c < 19; ++c) {
          W sum(0);
          long double size = 0;
          for (int b = 0; b < 3; ++b)
            sum = sum + W(per_row[b * 19 + c]), size += magnitude(W(per_row[b * 19 + c]));
          check_close<V>(shared[c], sum, 16 * roundoff<T>() * size, "shared initial_grad");
          all = all + sum, all_size += size;
        }
        check_close<V>(single[0], all, 16 * roundoff<T>() * all_size, "single initial_grad");
      });
    }
}

TYPED_CASE("absent outputs change no bit of other results, and absent inputs equal zeros",
           "[none][backends][forward][vjp][jvp]") {
  const auto check = [](problem_case p) {
    p.make_states();
    const layout l = p.l;
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      INFO(name);
      linear_scan(backend, p.gate.view(), p.input.view(), p.state.view(), p.options());
      const auto with_states = p.xT.storage();
      linear_scan(backend, p.gate.view(), p.input.view(), none, p.options());
      CHECK(same_bits(with_states, p.xT.storage()));

      // An absent cotangent equals zeros, and so does an absent tangent.
      array<T> zero(p.shape, l), a1(p.shape, l), a2(p.shape, l), u1(p.shape, l), u2(p.shape, l);
      for (auto& x : zero.storage()) x = T(0);
      linear_scan_vjp(backend, p.gate.view(), p.state.view(), zero.view(),
                      {.gate_grad = a1.view(), .input_grad = u1.view()}, p.backward_options());
      linear_scan_vjp(backend, p.gate.view(), p.state.view(), none,
                      {.gate_grad = a2.view(), .input_grad = u2.view()}, p.backward_options());
      CHECK(same_bits(a1.storage(), a2.storage()));
      CHECK(same_bits(u1.storage(), u2.storage()));

      array<T> t1(p.shape, l), t2(p.shape, l), t3(p.shape, l);
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(), zero.view(),
                      t1.view(), p.tangent_options());
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(), none,
                      t2.view(), p.tangent_options());
      linear_scan_jvp(backend, p.gate.view(), none, none, p.input_tangent.view(), t3.view(),
                      p.tangent_options());
      CHECK(same_bits(t1.storage(), t2.storage()));
      const auto with_tangents = p.xT.storage();
      linear_scan_jvp(backend, p.gate.view(), none, none, p.input_tangent.view(), none,
                      p.tangent_options());
      CHECK(same_bits(with_tangents, p.xT.storage()));
    });
  };
  for (const layout l : {layout::channels_last, layout::time_contiguous}) {
    check({{2, 50, 17}, l, direction::reverse, true, true});
    check({{2, 50, 112}, l, direction::reverse, true, false});  // no tail of channels
  }
}

TYPED_CASE("in-place calls have the bits of calls with separate arrays",
           "[in_place][backends][forward][vjp][jvp][layouts]") {
  for (const layout l : all_layouts) {
    problem_case p({2, 50, 18}, l, direction::forward, true, true);
    p.make_states();
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      INFO(name << " " << p.text());
      array<T> out(p.shape, l);
      linear_scan(backend, p.gate.view(), p.input.view(), out.view(), p.options());
      array<T> own(p.shape, l, 2);
      for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
        for (std::int64_t t = 0; t < p.shape.time; ++t) own(g, b, t, c) = p.input(g, b, t, c);
      });
      auto o = p.options();
      array<V> edge({2, 1, 18}, layout::channels_last, 7);
      o.initial_state = o.final_state = p.edge(edge);
      linear_scan(backend, p.gate.view(), own.view(), own.view(), o);
      for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
        for (std::int64_t t = 0; t < p.shape.time; ++t)
          if (!same_bits(own(g, b, t, c), out(g, b, t, c))) FAIL("state = input, step " << t);
      });
      for_each_sequence({2, 1, 18}, [&](auto g, auto b, auto c) {
        if (!same_bits(edge(g, b, 0, c), p.xT(g, b, 0, c))) FAIL("final_state = initial_state");
      });

      array<T> du(p.shape, l), own_grad(p.shape, l, 4);
      linear_scan_vjp(backend, p.gate.view(), p.state.view(), p.grad.view(),
                      {.input_grad = du.view()}, p.backward_options());
      linear_scan_vjp(backend, p.gate.view(), p.state.view(), own_grad.view(),
                      {.input_grad = own_grad.view()}, p.backward_options());
      array<T> tx(p.shape, l), own_tangent(p.shape, l, 6);
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                      p.input_tangent.view(), tx.view(), p.tangent_options());
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                      own_tangent.view(), own_tangent.view(), p.tangent_options());
      for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
        for (std::int64_t t = 0; t < p.shape.time; ++t) {
          if (!same_bits(own_grad(g, b, t, c), du(g, b, t, c))) FAIL("input_grad = state_grad");
          if (!same_bits(own_tangent(g, b, t, c), tx(g, b, t, c)))
            FAIL("state_tangent = input_tangent");
        }
      });
    });
  }
}

#if defined(SCANREC_TEST_CUDA)
TYPED_CASE("cuda::lanes has the bits of the sequential loop",
           "[determinism][cuda_lanes][forward][vjp][jvp][layouts]") {
  const tested::backend<T> lanes("cuda::lanes", tested::device_backend::lanes);
  for_cases([&](problem_case& p) {
    p.make_states();
    struct results {
      array<T> x, da, du, tx;
      array<V> xT, dx0;
    };
    const auto run = [&](const tested::backend<T>& backend) {
      extents one = p.shape;
      one.time = 1;
      results r{array<T>(p.shape, p.l),        array<T>(p.shape, p.l),
                array<T>(p.shape, p.l),        array<T>(p.shape, p.l),
                array<V>(one, layout::padded), array<V>(one, layout::padded)};
      auto o = p.options();
      o.final_state = p.edge(r.xT);
      linear_scan(backend, p.gate.view(), p.input.view(), r.x.view(), o);
      linear_scan_vjp(
          backend, p.gate.view(), p.state.view(), p.grad.view(),
          {.gate_grad = r.da.view(), .input_grad = r.du.view(), .initial_grad = p.edge(r.dx0)},
          p.backward_options());
      linear_scan_jvp(backend, p.gate.view(), p.state.view(), p.gate_tangent.view(),
                      p.input_tangent.view(), r.tx.view(), p.tangent_options());
      return r;
    };
    results wanted = run(loop()), got = run(lanes);
    INFO(p.text());
    CHECK(same_bits(wanted.x.storage(), got.x.storage()));
    CHECK(same_bits(wanted.da.storage(), got.da.storage()));
    CHECK(same_bits(wanted.du.storage(), got.du.storage()));
    CHECK(same_bits(wanted.tx.storage(), got.tx.storage()));
    CHECK(same_bits(wanted.xT.storage(), got.xT.storage()));
    CHECK(same_bits(wanted.dx0.storage(), got.dx0.storage()));
  });
}
#endif

TYPED_CASE("a stream of chunks equals the whole sequence",
           "[streaming][backends][forward][vjp][jvp][order][initial_state][final_state]"
           "[initial_grad][resets]") {
  constexpr std::int64_t steps = 200;
  struct results {
    array<T> x, da, du, tx;
    array<V> xT, dx0, txT;
  };
  const auto check = [&](problem_case& p, bool channel_resets) {
    const layout l = p.l;
    // Chunks in scan order, of 0, 1 or 2 steps, and of sizes around those of packs and tiles.
    std::vector<std::pair<std::int64_t, std::int64_t>> chunks;  // lowest time index, steps
    std::int64_t done = 0;
    for (const std::int64_t n : {1, 1, 2, 15, 16, 17, 0, 33, 64, 51}) {
      chunks.emplace_back(p.order == direction::forward ? done : steps - done - n, n);
      done += n;
    }
    REQUIRE(done == steps);
    // The first sequence has a reset at every chunk boundary, the second at some.
    for (const auto& [first, n] : chunks)
      if (first > 0) p.reset_bytes[static_cast<std::size_t>(first)] = 1;
    // The same resets as a mask per channel.
    std::vector<std::uint8_t> wide;
    for (const auto mark : p.reset_bytes) wide.insert(wide.end(), 17, mark);
    // A chunk includes the reset after its last step, except at the end of the sequence.
    const auto resets = [&](std::int64_t first, std::int64_t n) -> sequence_view<const bool> {
      if (!p.with_resets) return {};
      auto reset_mask = p.resets();
      if (channel_resets)
        reset_mask = {reinterpret_cast<const bool*>(wide.data()), p.shape,
                      strides{steps * 17, 17, 1, 0}};
      reset_mask.data += first * reset_mask.strides.time;
      reset_mask.shape.time = n + (first + n < steps ? 1 : 0);
      return reset_mask;
    };
    const auto slice = [&](array<T>& a, std::int64_t first, std::int64_t n) {
      auto v = a.view();
      v.data += first * v.strides.time;
      v.shape.time = n;
      return v;
    };
    p.make_states();
    const extents one{2, 1, 17};
    // The state before a chunk, which the vjp and jvp need.
    array<V> before(one, layout::channels_last, 7);
    const auto state_before = [&](std::int64_t first, std::int64_t n) -> state_view<V> {
      const std::int64_t t = p.order == direction::forward ? first - 1 : first + n;
      for_each_sequence(one, [&](auto g, auto b, auto c) {
        before(g, b, 0, c) = t >= 0 && t < steps ? V(p.state(g, b, t, c)) : p.x0(g, b, 0, c);
      });
      return p.edge(before);
    };
    const auto run = [&](const tested::backend<T>& backend,
                         std::vector<std::pair<std::int64_t, std::int64_t>> parts) {
      results r{array<T>(p.shape, l),
                array<T>(p.shape, l),
                array<T>(p.shape, l),
                array<T>(p.shape, l),
                p.x0,
                p.gT,
                p.tx0};
      const auto state = p.edge(r.xT), grad = p.edge(r.dx0), tangent = p.edge(r.txT);
      for (const auto& [first, n] : parts) {
        linear_scan(backend, slice(p.gate, first, n), slice(p.input, first, n),
                    slice(r.x, first, n),
                    {.order = p.order,
                     .initial_state = state,
                     .final_state = state,
                     .resets = resets(first, n)});
        linear_scan_jvp(backend, slice(p.gate, first, n), slice(p.state, first, n),
                        slice(p.gate_tangent, first, n), slice(p.input_tangent, first, n),
                        slice(r.tx, first, n),
                        {.order = p.order,
                         .initial_state = state_before(first, n),
                         .initial_tangent = tangent,
                         .final_tangent = tangent,
                         .resets = resets(first, n)});
      }
      std::reverse(parts.begin(), parts.end());
      for (const auto& [first, n] : parts)
        linear_scan_vjp(backend, slice(p.gate, first, n), slice(p.state, first, n),
                        slice(p.grad, first, n),
                        {.gate_grad = slice(r.da, first, n),
                         .input_grad = slice(r.du, first, n),
                         .initial_grad = grad},
                        {.order = p.order,
                         .initial_state = state_before(first, n),
                         .final_grad = grad,
                         .resets = resets(first, n)});
      return r;
    };
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      INFO(name << " " << p.text() << ", resets " << p.with_resets << channel_resets);
      results whole = run(backend, {{0, steps}}), pieces = run(backend, chunks);
      for_each_sequence(p.shape, [&](auto g, auto b, auto c) {
        const auto want = p.exact_forward(g, b, c);
        for (std::int64_t i = 0; i < steps; ++i)
          check_close<T>(pieces.x(g, b, p.time_of(i), c), want.value[i],
                         want.bound(i, backend.more), [&] { return "chunked " + p.text(); });
      });
      // These backends process steps in order. Others combine them differently, which changes no
      // bit of uint32.
      const bool serial = (name == "tiled" && l == layout::channels_last) || name == "sequential" ||
                          name == "cuda::lanes";
      if (!serial && !exact<T>) return;
      CHECK(same_bits(whole.x.storage(), pieces.x.storage()));
      CHECK(same_bits(whole.da.storage(), pieces.da.storage()));
      CHECK(same_bits(whole.du.storage(), pieces.du.storage()));
      CHECK(same_bits(whole.tx.storage(), pieces.tx.storage()));
      CHECK(same_bits(whole.xT.storage(), pieces.xT.storage()));
      CHECK(same_bits(whole.dx0.storage(), pieces.dx0.storage()));
      CHECK(same_bits(whole.txT.storage(), pieces.txT.storage()));
    });
  };
  int combination = 0;
  for (const layout l : {layout::channels_last, layout::time_contiguous, layout::mirrored})
    for (const direction d : {direction::forward, direction::reverse})
      for (int reset_mask = 0; reset_mask < 3; ++reset_mask) {
        if (combination++ % stride_of_few != 0) continue;
        problem_case p({2, steps, 17}, l, d, true, reset_mask > 0);
        check(p, reset_mask == 2);
      }
}

TYPED_CASE("a reset after the last step keeps the initial state out of a reverse scan",
           "[backends][forward][vjp][jvp][order][initial_state][initial_grad][resets]"
           "[layouts]") {
  for (const layout l : all_layouts)
    for (const extents shape : {extents{2, 1, 3}, extents{2, 16, 5}, extents{1, 40, 33},
                                extents{3, 40, 1}, extents{2, 33, 16, 2}}) {
      problem_case p(shape, l, direction::reverse, true, false), fresh = p;
      // Compares sequences whose initial state is 0 with sequences that have a reset after the last
      // step.
      std::vector<std::uint8_t> reset_mask(
          static_cast<std::size_t>(shape.group * shape.batch * (shape.time + 1)));
      for (std::size_t i = 1; i <= reset_mask.size(); ++i)
        reset_mask[i - 1] = i % static_cast<std::size_t>(shape.time + 1) == 0;
      extents mask_steps = shape;
      mask_steps.time += 1, mask_steps.channel = 1;
      const sequence_view<const bool> resets(reinterpret_cast<const bool*>(reset_mask.data()),
                                             mask_steps);
      for (V& x : fresh.x0.storage()) x = V(0);
      for (V& x : fresh.tx0.storage()) x = V(0);
      fresh.make_states();
      // The initial state must not even be multiplied by zero.
      if constexpr (!exact<T>)
        for (V& x : p.x0.storage()) x = V(INFINITY);
      with_backends([&](const std::string& name, const tested::backend<T>& backend) {
        INFO(name << " " << p.text());
        array<T> x1(shape, l), x2(shape, l), da1(shape, l), da2(shape, l), du1(shape, l),
            du2(shape, l), tx1(shape, l), tx2(shape, l);
        array<V> dx0 = p.x0;
        linear_scan(backend, p.gate.view(), p.input.view(), x1.view(), fresh.options());
        auto o = p.options();
        o.resets = resets;
        linear_scan(backend, p.gate.view(), p.input.view(), x2.view(), o);

        linear_scan_vjp(backend, p.gate.view(), fresh.state.view(), p.grad.view(),
                        {.gate_grad = da1.view(), .input_grad = du1.view()},
                        fresh.backward_options());
        auto back = p.backward_options();
        back.resets = resets;
        linear_scan_vjp(
            backend, p.gate.view(), fresh.state.view(), p.grad.view(),
            {.gate_grad = da2.view(), .input_grad = du2.view(), .initial_grad = p.edge(dx0)}, back);

        linear_scan_jvp(backend, p.gate.view(), fresh.state.view(), p.gate_tangent.view(),
                        p.input_tangent.view(), tx1.view(), fresh.tangent_options());
        auto tangent = p.tangent_options();
        tangent.resets = resets;
        linear_scan_jvp(backend, p.gate.view(), fresh.state.view(), p.gate_tangent.view(),
                        p.input_tangent.view(), tx2.view(), tangent);
        for_each_sequence(shape, [&](auto g, auto b, auto c) {
          if (!(dx0(g, b, 0, c) == V(0))) FAIL("initial_grad");
          const std::int64_t last = shape.time - 1;
          if (!same_bits(x2(g, b, last, c), p.input(g, b, last, c))) FAIL("state");
          if (!same_bits(tx2(g, b, last, c), p.input_tangent(g, b, last, c))) FAIL("tangent");
          if (!(widened(da2(g, b, last, c)) == W(0))) FAIL("gate_grad");
        });
        if (name != "sequential" && name != "cuda::lanes" && !exact<T>) return;
        const auto same = [&](array<T>& x, array<T>& y) {
          bool all = true;
          for_each_sequence(shape, [&](auto g, auto b, auto c) {
            for (std::int64_t t = 0; t < shape.time; ++t)
              all = all && widened(x(g, b, t, c)) == widened(y(g, b, t, c));
          });
          return all;
        };
        CHECK(same(x1, x2));
        CHECK(same(da1, da2));
        CHECK(same(du1, du2));
        CHECK(same(tx1, tx2));
      });
    }
}

TYPED_CASE("empty problems write no states, copy the initial state and give sums of 0",
           "[empty][backends][forward][vjp]") {
  with_backends([&](const std::string& name, const tested::backend<T>& backend) {
    INFO(name);
    for (const extents shape :
         {extents{0, 3, 4}, extents{2, 0, 4}, extents{2, 3, 0}, extents{2, 3, 4, 0}}) {
      array<T> a(shape, layout::channels_last), u(shape, layout::channels_last),
          x(shape, layout::channels_last);
      extents one = shape;
      one.time = 1;
      array<V> x0(one, layout::channels_last, 1), xT(one, layout::channels_last, 2);
      const auto before = x.storage();
      const state_view<V> from(x0.view().data, shape, x0.view().strides),
          to(xT.view().data, shape, xT.view().strides);
      linear_scan(backend, a.view(), u.view(), x.view(),
                  {.initial_state = from, .final_state = to});
      CHECK(same_bits(before, x.storage()));
      if (shape.time == 0)
        for_each_sequence(
            one, [&](auto g, auto b, auto c) { CHECK(same_bits(xT(g, b, 0, c), x0(g, b, 0, c))); });
      // A sum over nothing is 0.
      std::vector<T> da(4, T(1));
      linear_scan_vjp(backend, a.view(), x.view(), x.view(),
                      {.gate_grad = sequence_view<T>(da.data(), shape, strides{0, 0, 1, 0})});
      for (int c = 0; c < shape.channel; ++c) CHECK(same_bits(da[c], T(0)));
    }
  });
}

TYPED_CASE("linear scans access no memory outside their arrays for any strides",
           "[bounds][backends][forward][vjp][jvp][layouts]") {
  for (unsigned number = 0; number < 400 / SCANREC_TEST_STRIDE; ++number) {
    tested::guarded_linear<T, T> p(number);
    std::string wanted;
    with_backends([&](const std::string& name, const tested::backend<T>& backend) {
      INFO(name << ", " << p.text());
      const auto got = p.run(backend);
      CHECK(got.gaps_untouched());
      if constexpr (exact<T>) {
        if (wanted.empty()) wanted = got.elements();
        CHECK(got.elements() == wanted);
      } else {
        CHECK(got.all_finite());
      }
    });
  }
}
