// SPDX-License-Identifier: BSD-3-Clause
// Times selective scans and their adjoint at the size of a Mamba layer, against two limits: the
// copy baseline, and an arithmetic baseline. The latter evaluates as many exponentials and
// products on the same arrays, but no step depends on the result of another. Also times a
// composition of separate calls, which writes the gates and states of all steps to memory.
//
// Counters: ns/element and ns/state, GB/s, fraction_of_baseline and fraction_of_arithmetic (the
// time of the limit divided by that of the call), and times_fused (the time of the composition
// divided by that of the fused call).
#include <algorithm>
#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <scanrec/linear_scan.hpp>
#include <scanrec/selective_scan.hpp>

#include "measure.hpp"

namespace {

using namespace bench;
using namespace scanrec;

enum class call { forward, forward_kept, vjp };
constexpr const char* call_names[]{"forward", "forward_kept", "vjp"};

/// The arrays of a layer. T: element type of sequences, V: of states.
template <class T, class V = float>
struct layer {
  using mixed = std::conditional_t<detail::is_complex<V>, V, T>;
  extents shape, bc, own, kept;
  std::int64_t states, n = shape.batch * shape.time * shape.channel;
  scanrec::strides lie;
  T *u = role(0), *delta = role(1), *z = role(2), *grad = role(3), *out = role(4);
  T *u_grad = role(5), *delta_grad = role(6), *z_grad = role(7);
  std::vector<mixed> b, c, b_grad, c_grad;
  std::vector<V> a, a_grad, checkpoints;

  layer(const extents& of, std::int64_t states_of, bool along_time)
      : shape(of),
        bc{.batch = of.batch, .time = of.time, .group = states_of},
        own{.channel = of.channel, .group = states_of},
        kept(memory::checkpoint_extents(of)),
        states(states_of),
        lie(along_time ? time_contiguous(of) : channels_last(of)) {
    kept.group = states;
    const auto rows = static_cast<std::size_t>(of.batch * of.time * states);
    b.resize(rows), c.resize(rows), b_grad.resize(rows), c_grad.resize(rows);
    a.resize(static_cast<std::size_t>(of.channel * states)), a_grad.resize(a.size());
    checkpoints.resize(static_cast<std::size_t>(kept.batch * kept.time * kept.channel * states));
    for (T* const x : {u, delta, z, grad}) fill(x, n, false);
    for (std::vector<mixed>* const x : {&b, &c})
      fill(reinterpret_cast<T*>(x->data()),
           static_cast<std::int64_t>(rows * (sizeof(mixed) / sizeof(T))), false);
    for (std::size_t i = 0; i < a.size(); ++i) {  // Mamba's initial values; S4D-Lin's if complex
      const auto n = static_cast<float>(i % static_cast<std::size_t>(states));
      if constexpr (detail::is_complex<V>)
        a[i] = {-0.5f, 3.14159274f * n};
      else
        a[i] = -1.0f - n;
    }
  }
  T* role(int i) {
    return static_cast<T*>(buffers.get(i, n * static_cast<std::int64_t>(sizeof(T))));
  }
  sequence_view<T> sequence(T* x) const { return {x, shape, lie}; }
  sequence_view<mixed> every_step(std::vector<mixed>& x) const {
    return {x.data(), bc, states_last(bc)};
  }
  state_view<V> a_values(std::vector<V>& x) const {
    return {x.data(), own, {.channel = states, .group = 1}};
  }
  void run(call what, const tiled& on) {
    const selective_arrays<V> arrays{.u = sequence(u),
                                     .delta = sequence(delta),
                                     .a = a_values(a),
                                     .b = every_step(b),
                                     .c = every_step(c),
                                     .z = sequence(z),
                                     .softplus = true};
    const sequence_view<V> before(checkpoints.data(), kept);
    if (what == call::forward) return selective_scan(on, arrays, sequence(out));
    if (what == call::forward_kept)
      return selective_scan(on, arrays, sequence(out), {.checkpoints = before});
    selective_scan_vjp(on, arrays, sequence(grad),
                       {.u = sequence(u_grad),
                        .delta = sequence(delta_grad),
                        .a = a_values(a_grad),
                        .b = every_step(b_grad),
                        .c = every_step(c_grad),
                        .z = sequence(z_grad)},
                       {.checkpoints = before});
  }
};

// ---- the arithmetic baseline ------------------------------------------------------------------

using lane = simd::lane_t<float, simd::lanes_v<float>>;
constexpr int width = simd::lanes_v<float>;

template <class State>
constexpr int block = detail::selective_block<State>;
template <class State>
lane whole(State x) {
  if constexpr (simd::is_complex_lanes<State>)
    return x.re + x.im;
  else
    return x;
}

/// The arithmetic of one block of states for a pack of channels; no step uses the result of
/// another.
template <bool Back, class State, class Number>
[[gnu::noinline]] void products_of(std::int64_t steps, const lane* delta, const lane* delta_u,
                                   const lane* grad, const Number* b, const Number* c,
                                   const State* a_values, lane* y, lane* sums) {
  constexpr int n = block<State>;
  using detail::add_scaled, detail::add_scaled_conj, detail::times_conj;
  State rate[n], x[n];
  for (int i = 0; i < n; ++i) rate[i] = a_values[i], x[i] = simd::constant<State>(1);
  for (std::int64_t t = 0; t < steps; ++t) {
    lane out = y[t], met = sums[t];
    State more = simd::constant<State>(0);
    simd::detail::unrolled<n>([&](auto i) SCANREC_LAMBDA {
      const State b_t = simd::splat<State>(b[t * width + i]),
                  c_t = simd::splat<State>(c[t * width + i]);
      const State a = detail::selective_gate<true>(delta[t], rate[i]);
      const State now = simd::fma(a, x[i], detail::scaled(delta_u[t], b_t));
      out = detail::add_real_product(c_t, now, out);
      if constexpr (Back) {
        const State l = add_scaled_conj(grad[t], c_t, x[i]);
        const State product = times_conj(l, simd::mul(a, now));
        met = detail::add_real_dot(l, b_t, detail::add_real_dot(rate[i], product, met));
        more = add_scaled(delta[t], product, add_scaled(delta_u[t], l, more));
        more = add_scaled_conj(grad[t], now, more + times_conj(l, a));
      }
    });
    y[t] = out;
    if constexpr (Back) sums[t] = met + whole(more);
  }
}

/// The arithmetic baseline, 32 steps at a time. Forward reads u, delta and z, and writes one array.
/// `Back` also reads a gradient, and writes three arrays.
template <bool Back, class T, class V>
void arithmetic(layer<T, V>& l, int threads) {
  using state = simd::lane_t<V, width>;
  using number = simd::lane_t<V, 1>;
  constexpr std::int64_t chunk = 32;
  const std::int64_t D = l.shape.channel, T_all = l.shape.batch * l.shape.time;
  in_parallel(threads, [&](int worker) {
    lane u[chunk], delta[chunk], z[chunk], g[chunk], delta_u[chunk], y[chunk], sums[chunk];
    state a_values[256];
    alignas(64) number b[chunk * width] = {}, c[chunk * width] = {};
    const std::int64_t first = T_all * worker / threads / chunk * chunk;
    const std::int64_t last =
        worker + 1 == threads ? T_all : T_all * (worker + 1) / threads / chunk * chunk;
    const auto load = [&](const T* from, lane* to, std::int64_t steps) {
      for (std::int64_t t = 0; t < steps; ++t) to[t] = simd::load_unit<lane>(from + t * D);
    };
    for (std::int64_t t0 = first; t0 < last; t0 += chunk)
      for (std::int64_t d = 0; d + width <= D; d += width) {
        const std::int64_t steps = std::min(chunk, last - t0), at = t0 * D + d;
        load(l.u + at, u, steps), load(l.delta + at, delta, steps), load(l.z + at, z, steps);
        if (Back) load(l.grad + at, g, steps);
        for (std::int64_t t = 0; t < steps; ++t) {
          const auto step = simd::softplus(delta[t]);
          delta[t] = step.value, delta_u[t] = simd::mul(step.value, u[t]);
          y[t] = sums[t] = simd::constant<lane>(0);
          const auto s = simd::sigmoid(z[t]);
          z[t] = simd::mul(z[t], s.value);
          if (Back) g[t] = simd::mul(g[t], z[t]), u[t] = simd::mul(u[t], s.slope);
          for (int k = 0; k < width; ++k) {
            b[t * width + k] = simd::from_element(l.b[(t0 + t) * l.states + k % l.states]);
            c[t * width + k] = simd::from_element(l.c[(t0 + t) * l.states + k % l.states]);
          }
        }
        for (std::int64_t n = 0; n < l.states; ++n)
          a_values[n] =
              simd::load<state>(static_cast<const V*>(&l.a[d * l.states + n]), l.states, width);
        for (std::int64_t n = 0; n + block<state> <= l.states; n += block<state>)
          products_of<Back>(steps, delta, delta_u, g, b + n % width, c + n % width, a_values + n, y,
                            sums);
        for (std::int64_t t = 0; t < steps; ++t) {
          const std::int64_t to = at + t * D;
          simd::store_unit((Back ? l.u_grad : l.out) + to, simd::mul(y[t], z[t]));
          if (!Back) continue;
          simd::store_unit(l.delta_grad + to, simd::mul(sums[t], u[t]));
          simd::store_unit(l.z_grad + to, simd::mul(y[t], g[t]));
        }
      }
  });
}

// ---- the composition --------------------------------------------------------------------------

/// Writes the gates and inputs of all steps to memory, overwrites the inputs with the states by a
/// linear scan, and computes the outputs from the states.
struct composition {
  layer<float>& l;
  std::int64_t n = l.n * l.states;
  std::vector<float> gate = std::vector<float>(static_cast<std::size_t>(n)), input = gate;

  void run(int threads) {
    const std::int64_t D = l.shape.channel, N = l.states, rows = l.shape.batch * l.shape.time;
    const auto each_row = [&](auto f) {
      in_parallel(threads, [&](int worker) {
        for (std::int64_t t = rows * worker / threads; t < rows * (worker + 1) / threads; ++t)
          for (std::int64_t d = 0; d < D; ++d) f(t, t * D + d, d);
      });
    };
    each_row([&](std::int64_t t, std::int64_t at, std::int64_t d) {
      const float step = simd::softplus(l.delta[at]).value;
      for (std::int64_t k = 0; k + width <= N; k += width) {
        const lane rate = simd::load_unit<lane>(static_cast<const float*>(&l.a[d * N + k]));
        const lane b = simd::load_unit<lane>(static_cast<const float*>(&l.b[t * N + k]));
        simd::store_unit(&gate[at * N + k],
                         simd::exp_of_negative(simd::mul(simd::splat<lane>(step), rate)));
        simd::store_unit(&input[at * N + k], simd::mul(b, simd::splat<lane>(step * l.u[at])));
      }
    });
    extents wide = l.shape;
    wide.channel *= N;
    const sequence_view<float> states(input.data(), wide);
    linear_scan(tiled{.threads = threads}, sequence_view<float>(gate.data(), wide), states, states);
    each_row([&](std::int64_t t, std::int64_t at, std::int64_t) {
      lane y = simd::constant<lane>(0);
      for (std::int64_t k = 0; k + width <= N; k += width)
        y = simd::fma(simd::load_unit<lane>(static_cast<const float*>(&input[at * N + k])),
                      simd::load_unit<lane>(static_cast<const float*>(&l.c[t * N + k])), y);
      l.out[at] = simd::sum(y) * l.z[at] * simd::sigmoid(l.z[at]).value;
    });
  }
};

// ---- rows -------------------------------------------------------------------------------------

template <class T, class V>
void measure_layer(runner& by, const extents& shape, std::int64_t states, call what,
                   bool along_time, int threads) {
  layer<T, V> l(shape, states, along_time);
  const tiled on{.threads = threads};
  const int workers = threads > 0 ? threads : default_threads();
  const bool back = what == call::vjp;
  l.run(call::forward_kept, on);
  const std::int64_t bytes = l.n * static_cast<std::int64_t>(sizeof(T));
  const auto at = [](T* x) { return reinterpret_cast<float*>(x); };
  const read_arrays in{at(l.u), at(l.delta), at(l.z), at(l.grad)};
  const written_arrays out{at(l.u_grad), at(l.delta_grad), at(l.z_grad)};
  const traffic moved = back ? traffic{4, 3} : traffic{3, 1};
  const auto baseline = [&](bool stream) { run_baseline(moved, in, out, bytes, stream, workers); };
  const std::vector<double> seconds =
      by.medians({[&] { l.run(what, on); },
                  [&] { back ? arithmetic<true>(l, workers) : arithmetic<false>(l, workers); },
                  [&] { baseline(false); }, [&] { baseline(true); }});
  const double own = seconds[0], elements = static_cast<double>(l.n);
  by.counter("ns/element", own * 1e9 / elements);
  by.counter("ns/state", own * 1e9 / (elements * static_cast<double>(states)));
  by.counter("GB/s", static_cast<double>((moved.reads + moved.writes) * bytes) * 1e-9 / own);
  by.counter("fraction_of_baseline", std::min(seconds[2], seconds[3]) / own);
  by.counter("fraction_of_arithmetic", seconds[1] / own);
}
template <class T, class V = float>
row make_row(const std::string& workload, const extents& shape, std::int64_t states, call what,
             bool along_time = false, int threads = 0) {
  return {workload + "/" + call_names[static_cast<int>(what)], 9,
          [=](runner& by) { measure_layer<T, V>(by, shape, states, what, along_time, threads); }};
}
row composed_row(const extents& shape) {
  return {"composed/forward", 5, [=](runner& by) {
            layer<float> l(shape, 16, false);
            composition c{l};
            const int workers = default_threads();
            const auto seconds =
                by.medians({[&] { c.run(workers); }, [&] { l.run(call::forward, tiled{}); }});
            by.counter("ns/element", seconds[0] * 1e9 / static_cast<double>(l.n));
            by.counter("times_fused", seconds[0] / seconds[1]);
          }};
}

}  // namespace

std::vector<row> bench::rows(bool quick) {
  const extents mamba{.batch = 2, .time = 4096, .channel = 1536};
  const extents small{.batch = 1, .time = 256, .channel = 64};
  const extents shape = quick ? small : mamba;
  std::vector<row> all;
  for (const call what : {call::forward, call::forward_kept, call::vjp}) {
    all.push_back(make_row<float>("in_cache", small, 16, what, false, 1));
    all.push_back(make_row<float>("channels_last", shape, 16, what));
    all.push_back(make_row<float>("time_contiguous", shape, 16, what, true));
    all.push_back(make_row<bfloat16>("bfloat16", shape, 16, what));
    all.push_back(make_row<float, std::complex<float>>("complex", shape, 8, what));
    if (quick) continue;
    all.push_back(make_row<float>("one_thread", shape, 16, what, false, 1));
    all.push_back(make_row<float>("64_states", {.time = 2048, .channel = 1536}, 64, what));
  }
  all.push_back(composed_row(quick ? small : extents{.time = 1024, .channel = 1536}));
  return all;
}
